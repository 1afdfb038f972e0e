"""Secrets planted where no agent may look: a secret that shows up in a run tells where it was read."""

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
from mlagentbench.system.lock import try_lock

SECRET_VARIABLE = "MLAGENTBENCH_AUDIT_API_KEY"
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Secret:
    """A random token, a description of where it was planted, and its file path or port if it has one."""

    location: str
    token: str
    path: Path | None = None
    port: int = 0


def new_token() -> str:
    """Create a token that exists nowhere else."""
    return f"canary-{secrets.token_hex(12)}"


@contextmanager
def plant_host_secrets() -> Iterator[tuple[Secret, ...]]:
    """Plant secrets on the host: in files, in the environment, in another process, behind a port."""
    name = f"mlagentbench-audit-{secrets.token_hex(4)}"
    files = {
        "the user's home": Path.home() / f".{name}",
        "the cache": cache_dir() / name,
        "the host's /tmp": Path("/tmp", name),
        "the host's shared memory": Path("/dev/shm", name),
    }
    planted = []
    with ExitStack() as stack:
        for location, path in files.items():
            with suppress(OSError):  # some machines lack one of these folders
                planted.append(stack.enter_context(temporary_secret_file(location, path)))
        key = Secret("the harness's environment", new_token())
        os.environ[SECRET_VARIABLE] = key.token
        stack.callback(os.environ.pop, SECRET_VARIABLE, None)
        yield (*planted, key, stack.enter_context(_secret_process()), stack.enter_context(_secret_server()))


@contextmanager
def temporary_secret_file(location: str, path: Path) -> Iterator[Secret]:
    """Plant a file NAME-SUFFIX; first remove files with the same NAME left by an audit that was killed."""
    for other in path.parent.glob(f"{path.name.rpartition('-')[0]}-*"):
        _remove_if_abandoned(other)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:  # before the file exists: an interrupt may come right after it was created
        with path.open("x") as file:
            try_lock(file)  # before writing: an empty file may not be locked by its owner yet
            yield write_secret_file(location, path)
    finally:
        path.unlink(missing_ok=True)


def _remove_if_abandoned(path: Path) -> None:
    """Remove a secret file that is not locked: the kernel releases the locks of dead processes."""
    # /tmp may contain anything: links, pipes, files of other users.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    with suppress(OSError), os.fdopen(os.open(path, flags)) as file:
        if try_lock(file, timeout_s=0) and os.fstat(file.fileno()).st_size:
            path.unlink()


def write_secret_file(location: str, path: Path) -> Secret:
    """Write a new secret to a world-readable file."""
    secret = Secret(location, new_token(), path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{secret.token}\n")
    path.chmod(0o644)
    return secret


@contextmanager
def _secret_process() -> Iterator[Secret]:
    """Run a process of the user whose environment holds a secret."""
    secret = Secret("another process's environment", new_token())
    # It waits on a pipe that closes when this process ends, however it ends.
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
    """Run a service on the loopback interface of the host that sends a secret to every client."""
    token = new_token()

    class SecretHandler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(f"{token}\n".encode())

    with socketserver.TCPServer(("127.0.0.1", 0), SecretHandler) as server:
        # A daemon, so that an interrupt before the join below does not have to wait for it.
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield Secret("a service of the host", token, port=server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


def find_leaked_secrets(folder: Path, known: tuple[Secret, ...]) -> list[Secret]:
    """Find the secrets in all files below a folder, except in the planted files themselves."""
    tokens = {secret.token.encode(): secret for secret in known}
    planted_here = {secret.path for secret in known}
    found_tokens = set()
    for parent, folders, names in os.walk(folder):
        if Path(parent) == folder:
            # The workspace itself is searched, so its snapshots need not be.
            folders[:] = [name for name in folders if name != "snapshots"]
        for path in (Path(parent, name) for name in names):
            if path not in planted_here and path.is_file() and not path.is_symlink():
                found_tokens |= {token for token in tokens if _contains_token(path, token)}
    return [tokens[token] for token in sorted(found_tokens)]


def _contains_token(path: Path, token: bytes) -> bool:
    """Whether the first or last 8 MB of a file contain a token; the middle of a larger file is skipped."""
    with suppress(OSError), path.open("rb") as file:
        if token in file.read(8 * CHUNK_BYTES):
            return True
        size = path.stat().st_size
        file.seek(max(0, size - 8 * CHUNK_BYTES))
        return token in file.read(8 * CHUNK_BYTES)
    return False
