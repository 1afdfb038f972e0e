"""Brings a file over HTTP: resumes, retries, and says in one line what a person must do."""

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

MAX_ATTEMPTS = 5  # without any progress in between
INITIAL_RETRY_DELAY_S = 1.0  # seconds after the first failure; doubles with each
MAX_RETRY_DELAY_S = 60.0
TIMEOUT_S = 60.0
CHUNK_BYTES = 1 << 20
RETRYABLE_STATUSES = {408, 429, 500, 502, 503, 504}


class RemoteFile(NamedTuple):
    """Where a file is, what to show there, and what a refusal by status means to the person."""

    url: str
    headers: dict[str, str]
    error_messages: dict[int, str]


class TransientError(Exception):
    """Something that may pass if one tries again."""

    def __init__(self, what: str, after: float = 0.0) -> None:
        super().__init__(what)
        self.retry_after_s = after


class SafeRedirectHandler(HTTPRedirectHandler):
    """Follows redirects, but shows credentials to the first host only and never leaves HTTPS."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """The request to send to the new address."""
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if new.scheme != "https" and new.scheme != old.scheme:
            fp.close()
            raise UsageError(f"{req.full_url} leads to {new.scheme}://{new.netloc}, which is not safe")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request and (old.scheme, old.netloc) != (new.scheme, new.netloc):
            request.remove_header("Authorization")
        return request


OPENER = build_opener(SafeRedirectHandler)


def download(address: RemoteFile, part: Path, say: ProgressCallback) -> None:
    """Bring the whole file to `part`, going on from what an earlier attempt left there."""
    failures, furthest = 0, size_on_disk(part)
    while True:
        try:
            attempt_download(address, part, say)
        except TransientError as trouble:
            failures = 1 if size_on_disk(part) > furthest else failures + 1
            furthest = max(size_on_disk(part), furthest)
            if failures >= MAX_ATTEMPTS:
                raise UsageError(
                    f"{address.url}: {trouble}; run again later, it goes on from there"
                ) from trouble
            pause = min(
                max(INITIAL_RETRY_DELAY_S * 2 ** (failures - 1), trouble.retry_after_s), MAX_RETRY_DELAY_S
            )
            say(f"{part.stem}: {trouble}; trying again in {pause:.0f} s")
            time.sleep(pause)
        else:
            return


def discard_partial(part: Path) -> None:
    """Drop what an interrupted download left."""
    part.unlink(missing_ok=True)
    version_tag_path(part).unlink(missing_ok=True)


def version_tag_path(part: Path) -> Path:
    """Where it is noted which version of the file the part belongs to."""
    return part.with_name(f"{part.name}.tag")


def size_on_disk(path: Path) -> int:
    """How many bytes of a file are there."""
    return path.stat().st_size if path.exists() else 0


def attempt_download(address: RemoteFile, part: Path, say: ProgressCallback) -> None:
    """Ask once, for the rest of the file if its beginning is here."""
    headers = {"User-Agent": "mlagentbench", **address.headers}
    have, tag = size_on_disk(part), version_tag_path(part)
    if have and tag.exists() and (version := tag.read_text()):
        headers |= {"Range": f"bytes={have}-", "If-Range": version}
    try:
        with OPENER.open(Request(address.url, headers=headers), timeout=TIMEOUT_S) as reply:
            write_response(reply, part, say)
    except HTTPError as error:
        with error:
            handle_http_error(address, error, part)
    except URLError as error:
        if not have:
            raise UsageError(f"cannot reach {address.url}: {error.reason}; is there a network?") from error
        raise TransientError(f"cannot reach the server: {error.reason}") from error
    except (TimeoutError, ConnectionError, HTTPException, ssl.SSLError) as error:
        raise TransientError(f"the connection broke ({type(error).__name__})") from error
    except OSError as error:
        raise UsageError(f"cannot write {part}: {error.strerror or error}") from error


def write_response(reply: HTTPResponse, part: Path, say: ProgressCallback) -> None:
    """Write what comes to the part, and see that nothing is missing at its end."""
    done = size_on_disk(part) if reply.status == 206 else 0
    if done and not reply.headers.get("Content-Range", "").startswith(f"bytes {done}-"):
        discard_partial(part)
        raise TransientError("the server sent another piece than was asked for")
    length = reply.headers.get("Content-Length")
    total = done + int(length) if length else None
    told = time.monotonic()
    with part.open("ab" if done else "wb") as file:
        version_tag_path(part).write_text(resume_validator(reply.headers))
        while chunk := reply.read1(CHUNK_BYTES):
            file.write(chunk)
            done += len(chunk)
            if time.monotonic() - told >= 1:
                told = time.monotonic()
                say(f"{part.stem}: {done / 1e6:.1f}" + (f" of {total / 1e6:.1f} MB" if total else " MB"))
    if total is not None and done < total:
        raise TransientError(f"the connection broke after {done} of {total} bytes")


def resume_validator(headers: HTTPMessage) -> str:
    """What proves, when asking for the rest, that the file is still the same; empty if nothing does."""
    tag = headers.get("ETag", "")
    return tag if tag.startswith('"') else headers.get("Last-Modified", "")


def handle_http_error(address: RemoteFile, error: HTTPError, part: Path) -> None:
    """Sort a refusal: done already, try again, or the person's to mend."""
    if error.code == 416:
        if error.headers.get("Content-Range") == f"bytes */{size_on_disk(part)}":
            return  # all of it had arrived before
        discard_partial(part)
        raise TransientError("the file on the server changed")
    if error.code in RETRYABLE_STATUSES:
        after = error.headers.get("Retry-After", "")
        raise TransientError(
            f"the server is busy (HTTP {error.code})", float(after) if after.isdigit() else 0.0
        )
    meaning = address.error_messages.get(error.code, f"{address.url}: HTTP {error.code} {error.reason}")
    raise UsageError(meaning) from error
