"""Secrets that the audit plants where no agent may look: one that turns up in a run says where it came from."""

import fcntl
import os
import secrets
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mlagentbench.system.cache import cache_dir

SECRET_VARIABLE = "MLAGENTBENCH_AUDIT_API_KEY"
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Secret:
    """A token, where it was put, in words and, if it lies in a file, by its path."""

    location: str
    token: str
    path: Path | None = None
    port: int = 0


def new_token() -> str:
    """A token that is nowhere else."""
    return f"canary-{secrets.token_hex(12)}"


@contextmanager
def plant_host_secrets() -> Iterator[tuple[Secret, ...]]:
    """Secrets all over the host: in files, in the environment, in another process, behind a port."""
    name = f"mlagentbench-audit-{secrets.token_hex(4)}"
    files = {
        "the user's home": Path.home() / f".{name}",
        "the cache": cache_dir() / name,
        "the host's /tmp": Path("/tmp", name),
        "the host's shared memory": Path("/dev/shm", name),
    }
    found = []
    with ExitStack() as stack:
        for where, path in files.items():
            with suppress(OSError):  # not every machine has every place
                found.append(stack.enter_context(temporary_secret_file(where, path)))
        key = Secret("the harness's environment", new_token())
        os.environ[SECRET_VARIABLE] = key.token
        stack.callback(os.environ.pop, SECRET_VARIABLE, None)
        yield (*found, key, stack.enter_context(_secret_process()), stack.enter_context(_secret_server()))


@contextmanager
def temporary_secret_file(where: str, path: Path) -> Iterator[Secret]:
    """A planted file NAME-TOKEN for a while; those of the same NAME that a killed audit left are removed before."""
    for other in path.parent.glob(f"{path.name.rpartition('-')[0]}-*"):
        _remove_if_abandoned(other)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # before it says anything: an empty one may not be held yet
        try:
            yield write_secret_file(where, path)
        finally:
            path.unlink(missing_ok=True)


def _remove_if_abandoned(path: Path) -> None:
    """Remove a secret that nobody holds: the kernel lets go of what the dead held."""
    with suppress(OSError):
        file = os.open(
            path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        )  # anybody may put anything into /tmp
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file).st_size:
                path.unlink()
        finally:
            os.close(file)


def write_secret_file(where: str, path: Path) -> Secret:
    """A file that anybody could read who got to it."""
    secret = Secret(where, new_token(), path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{secret.token}\n")
    path.chmod(0o644)
    return secret


@contextmanager
def _secret_process() -> Iterator[Secret]:
    """A process of the user's, whose environment holds a key."""
    secret = Secret("another process's environment", new_token())
    # It waits for an input that ends with us, however we end.
    process = subprocess.Popen(
        ["cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={SECRET_VARIABLE: secret.token, "PATH": os.defpath},
    )
    try:
        yield secret
    finally:
        process.communicate()


@contextmanager
def _secret_server() -> Iterator[Secret]:
    """A service on the host's loopback that tells everybody."""
    token = new_token()

    class Telling(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(f"{token}\n".encode())

    with socketserver.TCPServer(("127.0.0.1", 0), Telling) as server:
        # Who interrupts us before we can wait for it need not wait for it either.
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield Secret("a service of the host", token, port=server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


def find_leaked_secrets(folder: Path, known: tuple[Secret, ...]) -> list[Secret]:
    """The secrets that are anywhere in what a run wrote, but for the files that were planted there."""
    tokens = {secret.token.encode(): secret for secret in known}
    planted_here = {secret.path for secret in known}
    found = set()
    for place, folders, names in os.walk(folder):
        if Path(place) == folder:
            folders[:] = [
                name for name in folders if name != "snapshots"
            ]  # the workspace is looked at itself
        for path in (Path(place, name) for name in names):
            if path not in planted_here and path.is_file() and not path.is_symlink():
                found |= {token for token in tokens if _contains_token(path, token)}
    return [tokens[token] for token in sorted(found)]


def _contains_token(path: Path, token: bytes) -> bool:
    """Whether the beginning of a file, or its end, holds a token; the middle of a giant does not matter."""
    with suppress(OSError), path.open("rb") as file:
        if token in file.read(8 * CHUNK_BYTES):
            return True
        size = path.stat().st_size
        file.seek(max(0, size - 8 * CHUNK_BYTES))
        return token in file.read(8 * CHUNK_BYTES)
    return False
