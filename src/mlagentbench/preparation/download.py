"""Downloads a file over HTTP: resumes, retries, and explains in one line what the user must do."""

import ssl
import time
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from mlagentbench.errors import UsageError
from mlagentbench.system.progress import ProgressCallback

MAX_ATTEMPTS = 5  # in a row without progress
INITIAL_RETRY_DELAY_S = 1.0  # doubles with each failure
MAX_RETRY_DELAY_S = 60.0
TIMEOUT_S = 60.0
CHUNK_BYTES = 1 << 20
RETRYABLE_STATUSES = {408, 429, 500, 502, 503, 504}


class RemoteFile(NamedTuple):
    """The address of a file, the request headers, and messages for the user by HTTP status."""

    url: str
    headers: dict[str, str]
    error_messages: dict[int, str]


class TransientError(Exception):
    """A failure that may not happen again on a retry."""

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class SafeRedirectHandler(HTTPRedirectHandler):
    """Follows redirects, but sends credentials to the first host only and never leaves HTTPS."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """Build the request to the new address."""
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if new.scheme != "https" and new.scheme != old.scheme:
            fp.close()
            raise UsageError(f"{req.full_url} redirects to {new.scheme}://{new.netloc}, which is not safe.")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request and (old.scheme, old.netloc) != (new.scheme, new.netloc):
            request.remove_header("Authorization")
        return request


OPENER = build_opener(SafeRedirectHandler)


def download(remote: RemoteFile, part: Path, progress: ProgressCallback) -> None:
    """Download the whole file to `part`, resuming what an earlier attempt left there."""
    failures, largest_size = 0, size_on_disk(part)
    while True:
        try:
            attempt_download(remote, part, progress)
        except TransientError as error:
            failures = 1 if size_on_disk(part) > largest_size else failures + 1
            largest_size = max(size_on_disk(part), largest_size)
            if failures >= MAX_ATTEMPTS:
                raise UsageError(f"{remote.url}: {error}. Run again later to resume the download.") from error
            backoff = INITIAL_RETRY_DELAY_S * 2 ** (failures - 1)
            delay = min(max(backoff, error.retry_after_s), MAX_RETRY_DELAY_S)
            progress(f"{part.stem}: {error}; retrying in {delay:.0f} s")
            time.sleep(delay)
        else:
            return


def discard_partial(part: Path) -> None:
    """Delete what an interrupted download left."""
    part.unlink(missing_ok=True)
    version_tag_path(part).unlink(missing_ok=True)


def version_tag_path(part: Path) -> Path:
    """Return where the version of the partial file is noted."""
    return part.with_name(f"{part.name}.tag")


def size_on_disk(path: Path) -> int:
    """Return the size of a file, 0 if it does not exist."""
    return path.stat().st_size if path.exists() else 0


def attempt_download(remote: RemoteFile, part: Path, progress: ProgressCallback) -> None:
    """Send one request, for the rest of the file if a part of it is already here."""
    headers = {"User-Agent": "mlagentbench", **remote.headers}
    size, tag = size_on_disk(part), version_tag_path(part)
    if size and tag.exists() and (version := tag.read_text()):
        headers |= {"Range": f"bytes={size}-", "If-Range": version}
    try:
        with OPENER.open(Request(remote.url, headers=headers), timeout=TIMEOUT_S) as response:
            write_response(response, part, progress)
    except HTTPError as error:
        with error:
            handle_http_error(remote, error, part)
    except URLError as error:
        if not size:
            raise UsageError(
                f"Cannot reach {remote.url}: {error.reason}. Check the network connection."
            ) from error
        raise TransientError(f"cannot reach the server: {error.reason}") from error
    except (TimeoutError, ConnectionError, HTTPException, ssl.SSLError) as error:
        raise TransientError(f"the connection broke ({type(error).__name__})") from error
    except OSError as error:
        raise UsageError(f"Cannot write {part}: {error.strerror or error}.") from error


def write_response(response: HTTPResponse, part: Path, progress: ProgressCallback) -> None:
    """Append the response to the partial file, and check that nothing is missing at the end."""
    done = size_on_disk(part) if response.status == 206 else 0
    if done and not response.headers.get("Content-Range", "").startswith(f"bytes {done}-"):
        discard_partial(part)
        raise TransientError("the server sent another range than requested")
    length = response.headers.get("Content-Length")
    total = done + int(length) if length else None
    reported_at = time.monotonic()
    with part.open("ab" if done else "wb") as file:
        version_tag_path(part).write_text(resume_validator(response.headers))
        while chunk := response.read1(CHUNK_BYTES):
            file.write(chunk)
            done += len(chunk)
            if time.monotonic() - reported_at >= 1:
                reported_at = time.monotonic()
                of_total = f" of {total / 1e6:.1f}" if total else ""
                progress(f"{part.stem}: {done / 1e6:.1f}{of_total} MB")
    if total is not None and done < total:
        raise TransientError(f"the connection broke after {done} of {total} bytes")


def resume_validator(headers: HTTPMessage) -> str:
    """Return what identifies the version of the file when resuming; empty if nothing does."""
    tag = headers.get("ETag", "")
    return tag if tag.startswith('"') else headers.get("Last-Modified", "")


def handle_http_error(remote: RemoteFile, error: HTTPError, part: Path) -> None:
    """Handle an error status: already complete, worth a retry, or something that the user must fix."""
    if error.code == 416:
        if error.headers.get("Content-Range") == f"bytes */{size_on_disk(part)}":
            return  # the file was already complete
        discard_partial(part)
        raise TransientError("the file on the server changed")
    if error.code in RETRYABLE_STATUSES:
        retry_after = error.headers.get("Retry-After", "")
        delay = float(retry_after) if retry_after.isdigit() else 0.0
        raise TransientError(f"the server is busy (HTTP {error.code})", delay)
    message = remote.error_messages.get(error.code, f"{remote.url}: HTTP {error.code} {error.reason}")
    raise UsageError(message) from error
