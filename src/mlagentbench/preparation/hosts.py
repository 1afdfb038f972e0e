"""Sources that serve single files over HTTP: Kaggle, the Hugging Face hub, any web address."""

import base64
import json
import os
import shutil
import zipfile
from pathlib import Path
from urllib.parse import quote

from mlagentbench.errors import UsageError
from mlagentbench.preparation.download import RemoteFile, download, version_tag_path
from mlagentbench.system.progress import ProgressCallback
from mlagentbench.task import Source

KAGGLE_URL = "https://www.kaggle.com"
HUB_URL = "https://huggingface.co"
KAGGLE_TOKEN_HELP = (
    f"Create a token at {KAGGLE_URL}/settings. Then set KAGGLE_API_TOKEN, or KAGGLE_USERNAME and KAGGLE_KEY, "
    "or save kaggle.json in ~/.kaggle."
)


def fetch_kaggle(source: Source, part: Path, progress: ProgressCallback) -> None:
    """Download one file of a competition, or all of them if the file is `<competition>.zip`."""
    mirror = os.environ.get("MLAGENTBENCH_KAGGLE_URL")
    headers = kaggle_auth_headers()
    if not headers and not mirror:
        raise UsageError(f"Kaggle competition {source.name} needs a token. {KAGGLE_TOKEN_HELP}")
    if source.file == f"{source.name}.zip":
        path = f"download-all/{source.name}"
    else:
        path = f"download/{source.name}/{quote(source.file, safe='')}"
    remote = RemoteFile(
        url=f"{(mirror or f'{KAGGLE_URL}/api/v1').rstrip('/')}/competitions/data/{path}",
        headers=headers,
        error_messages={
            401: f"Kaggle did not accept the token. {KAGGLE_TOKEN_HELP}",
            403: f"Kaggle refused access to {source.name}. Accept the rules of the competition at "
            f"{KAGGLE_URL}/competitions/{source.name}/rules, then run again.",
            404: f"Kaggle has no file {source.file!r} in the competition {source.name!r}.",
        },
    )
    download(remote, part, progress)
    unzip_single_file(part, Path(source.file).name)


def kaggle_auth_headers() -> dict[str, str]:
    """Return the header with the user's token; empty if there is no token."""
    user, key = os.environ.get("KAGGLE_USERNAME"), os.environ.get("KAGGLE_KEY")
    if not (user and key) and (token := os.environ.get("KAGGLE_API_TOKEN")):
        return {"Authorization": f"Bearer {token.strip()}"}
    if not (user and key) and (file := find_kaggle_json()):
        try:
            token_file = json.loads(file.read_text())
            user, key = token_file["username"], token_file["key"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{file} is not a Kaggle token ({type(error).__name__}). {KAGGLE_TOKEN_HELP}"
            ) from error
    if not (user and key):
        return {}
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{key}".encode()).decode()}


def find_kaggle_json() -> Path | None:
    """Find the token file in the usual folders."""
    chosen = os.environ.get("KAGGLE_CONFIG_DIR")
    folders = [Path(chosen)] if chosen else []
    folders += [Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config", "kaggle"), Path("~/.kaggle")]
    files = [folder.expanduser() / "kaggle.json" for folder in folders]
    return next((file for file in files if file.is_file()), None)


def unzip_single_file(part: Path, name: str) -> None:
    """Extract the file if Kaggle wrapped it into a zip archive."""
    if not zipfile.is_zipfile(part):
        return
    with zipfile.ZipFile(part) as archive:
        members = archive.infolist()
        # An .npz or .xlsx is a zip too, but has no member with its own name.
        if len(members) != 1 or Path(members[0].filename).name != name:
            return
        unpacked = part.with_name(f"{part.name}.unpacked")
        with archive.open(members[0]) as member, unpacked.open("wb") as file:
            shutil.copyfileobj(member, file)
    # The file is no longer a part of what the server has, so the download cannot be resumed.
    version_tag_path(part).unlink(missing_ok=True)
    unpacked.replace(part)


def fetch_hub(source: Source, part: Path, progress: ProgressCallback) -> None:
    """Download a file of a Hugging Face repository; data sets are named `datasets/<owner>/<name>`."""
    host = (os.environ.get("HF_ENDPOINT") or HUB_URL).rstrip("/")
    token = os.environ.get("HF_TOKEN", "").strip()
    gated = (
        f"{source.name} on the hub is gated, private or missing. Accept its terms at {host}/{source.name}, "
        f"create a token at {host}/settings/tokens, set HF_TOKEN to it and run again."
    )
    version = source.version or "main"
    remote = RemoteFile(
        url=f"{host}/{source.name}/resolve/{quote(version, safe='')}/{quote(source.file)}",
        headers={"Authorization": f"Bearer {token}"} if token else {},
        error_messages={
            401: gated,
            403: gated,
            404: f"The hub has no file {source.file!r} in version {version} of {source.name}.",
        },
    )
    download(remote, part, progress)


def fetch_url(source: Source, part: Path, progress: ProgressCallback) -> None:
    """Download the file at the address that is the source's name."""
    pinned_http = source.name.startswith("http://") and source.sha256
    if not (source.name.startswith("https://") or pinned_http):
        raise UsageError(f"{source.name}: only https:// addresses are supported (http:// needs a sha256).")
    missing = f"Nothing found at {source.name} (HTTP 404)."
    download(RemoteFile(source.name, {}, {404: missing}), part, progress)
