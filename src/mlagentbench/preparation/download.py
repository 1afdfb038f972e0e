"""Brings a file over HTTP: resumes, retries, and says in one line what a person must do."""

import ssl
import time
from collections.abc import Callable
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from mlagentbench.errors import UsageError

TRIES = 5  # without any progress in between
PAUSE = 1.0  # seconds after the first failure; doubles with each
LONGEST_PAUSE = 60.0
TIMEOUT = 60.0
CHUNK = 1 << 20
BUSY = {408, 429, 500, 502, 503, 504}

Say = Callable[[str], None]


class Address(NamedTuple):
    """Where a file is, what to show there, and what a refusal by status means to the person."""

    url: str
    headers: dict[str, str]
    refusals: dict[int, str]


class Trouble(Exception):
    """Something that may pass if one tries again."""

    def __init__(self, what: str, after: float = 0.0) -> None:
        super().__init__(what)
        self.after = after


class Redirects(HTTPRedirectHandler):
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


OPENER = build_opener(Redirects)


def download(address: Address, part: Path, say: Say) -> None:
    """Bring the whole file to `part`, going on from what an earlier attempt left there."""
    failures, furthest = 0, size(part)
    while True:
        try:
            attempt(address, part, say)
        except Trouble as trouble:
            failures = 1 if size(part) > furthest else failures + 1
            furthest = max(size(part), furthest)
            if failures >= TRIES:
                raise UsageError(f"{address.url}: {trouble}; run again later, it goes on from there") from trouble
            pause = min(max(PAUSE * 2 ** (failures - 1), trouble.after), LONGEST_PAUSE)
            say(f"{part.stem}: {trouble}; trying again in {pause:.0f} s")
            time.sleep(pause)
        else:
            return


def forget(part: Path) -> None:
    """Drop what an interrupted download left."""
    part.unlink(missing_ok=True)
    tag_of(part).unlink(missing_ok=True)


def tag_of(part: Path) -> Path:
    """Where it is noted which version of the file the part belongs to."""
    return part.with_name(f"{part.name}.tag")


def size(path: Path) -> int:
    """How many bytes of a file are there."""
    return path.stat().st_size if path.exists() else 0


def attempt(address: Address, part: Path, say: Say) -> None:
    """Ask once, for the rest of the file if its beginning is here."""
    headers = {"User-Agent": "mlagentbench", **address.headers}
    have, tag = size(part), tag_of(part)
    if have and tag.exists() and (version := tag.read_text()):
        headers |= {"Range": f"bytes={have}-", "If-Range": version}
    try:
        with OPENER.open(Request(address.url, headers=headers), timeout=TIMEOUT) as reply:
            receive(reply, part, say)
    except HTTPError as error:
        with error:
            refused(address, error, part)
    except URLError as error:
        if not have:
            raise UsageError(f"cannot reach {address.url}: {error.reason}; is there a network?") from error
        raise Trouble(f"cannot reach the server: {error.reason}") from error
    except (TimeoutError, ConnectionError, HTTPException, ssl.SSLError) as error:
        raise Trouble(f"the connection broke ({type(error).__name__})") from error
    except OSError as error:
        raise UsageError(f"cannot write {part}: {error.strerror or error}") from error


def receive(reply: HTTPResponse, part: Path, say: Say) -> None:
    """Write what comes to the part, and see that nothing is missing at its end."""
    done = size(part) if reply.status == 206 else 0
    if done and not reply.headers.get("Content-Range", "").startswith(f"bytes {done}-"):
        forget(part)
        raise Trouble("the server sent another piece than was asked for")
    length = reply.headers.get("Content-Length")
    total = done + int(length) if length else None
    told = time.monotonic()
    with part.open("ab" if done else "wb") as file:
        tag_of(part).write_text(version_of(reply.headers))
        while chunk := reply.read1(CHUNK):
            file.write(chunk)
            done += len(chunk)
            if time.monotonic() - told >= 1:
                told = time.monotonic()
                say(f"{part.stem}: {done / 1e6:.1f}" + (f" of {total / 1e6:.1f} MB" if total else " MB"))
    if total is not None and done < total:
        raise Trouble(f"the connection broke after {done} of {total} bytes")


def version_of(headers: HTTPMessage) -> str:
    """What proves, when asking for the rest, that the file is still the same; empty if nothing does."""
    tag = headers.get("ETag", "")
    return tag if tag.startswith('"') else headers.get("Last-Modified", "")


def refused(address: Address, error: HTTPError, part: Path) -> None:
    """Sort a refusal: done already, try again, or the person's to mend."""
    if error.code == 416:
        if error.headers.get("Content-Range") == f"bytes */{size(part)}":
            return  # all of it had arrived before
        forget(part)
        raise Trouble("the file on the server changed")
    if error.code in BUSY:
        after = error.headers.get("Retry-After", "")
        raise Trouble(f"the server is busy (HTTP {error.code})", float(after) if after.isdigit() else 0.0)
    meaning = address.refusals.get(error.code, f"{address.url}: HTTP {error.code} {error.reason}")
    raise UsageError(meaning) from error
