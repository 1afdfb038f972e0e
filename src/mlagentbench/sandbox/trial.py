"""One real command in a sandbox before anything depends on it, and what to do where it fails."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mlagentbench.errors import BenchError, SandboxFault, UsageError
from mlagentbench.runtimes.base import PYTHON_NAME, Runtime
from mlagentbench.sandbox.base import Sandbox, SandboxSpec
from mlagentbench.sandbox.limit_monitor import require_free_disk
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.selection import choose_unprivileged_uid, create_sandbox
from mlagentbench.system.cache import cache_dir, temporary_dir

log = logging.getLogger(__name__)

TRIAL_COMMAND = ("python", "-IS", "-c", "")
TRIAL_TIMEOUT_S = 60
MAX_REASON_CHARS = 300
STRONGEST_FIRST = ("bwrap", "landlock")
WITHOUT_ROOT = (
    "without sudo: apt-get download bubblewrap && dpkg -x bubblewrap_*.deb ~/bubblewrap, "
    "then put ~/bubblewrap/usr/bin first in PATH"
)


@dataclass(frozen=True)
class EmptyRuntime(Runtime):
    """A runtime without packages: a sandbox can be tried before one is built."""

    path: Path = Path()

    @property
    def folder(self) -> Path:
        """A temporary folder."""
        return self.path


@contextmanager
def _empty_runtime(folder: Path) -> Iterator[Runtime]:
    runtime = EmptyRuntime("empty", "", folder)
    for name in ("bin", f"lib/{PYTHON_NAME}/site-packages"):
        (folder / name).mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(f"{runtime.prefix_inside}/bin/{PYTHON_NAME}")
    for path in (folder, folder / "bin"):
        path.chmod(0o755)
    yield runtime


def try_sandbox(sandbox: Sandbox, runtime: Runtime | None = None) -> float:
    """Run one command in a sandbox, as every step of a run does.

    Args:
        sandbox: The sandbox.
        runtime: The runtime to use; none is needed.

    Returns:
        How many seconds the command took.

    Raises:
        SandboxFault: It does not work; the message says why and what to do.
    """
    uid = choose_unprivileged_uid("trial") if sandbox.uses_separate_user else None
    try:
        with (
            temporary_dir() as folder,
            temporary_dir() as runtime_folder,
            _empty_runtime(runtime_folder) as empty_runtime,
            CommandOutput() as output,
        ):
            if uid:
                os.chown(folder, uid, uid)
            spec = SandboxSpec(folder, runtime or empty_runtime, uid=uid)
            try:
                execution = sandbox.run(TRIAL_COMMAND, spec, TRIAL_TIMEOUT_S, output)
            finally:
                sandbox.release_workspace(spec)
                sandbox.release_workspace(SandboxSpec(runtime_folder, empty_runtime))
    except (BenchError, OSError) as error:
        raise SandboxFault(_explain(str(error))) from error
    if execution.exit_code != 0:
        reason = output.text.strip()[-MAX_REASON_CHARS:] or f"exit code {execution.exit_code}"
        raise SandboxFault(_explain(f"Python cannot start inside: {reason}"))
    return execution.seconds


@cache
def require_working(name: str, gpu: str) -> None:
    """Try a sandbox, once in a process, so that a broken one costs no model call.

    Raises:
        UsageError: It does not work on this machine; the message says what to do.
    """
    if name != "none":
        _require_free_cache()
        try:
            try_sandbox(create_sandbox(name, gpu))
        except SandboxFault as fault:
            raise UsageError(f"--sandbox {name} does not work on this machine. {fault}") from fault


@cache
def choose_sandbox_name(gpu: str) -> str:
    """The strongest sandbox that works on this machine; never "none".

    Raises:
        UsageError: None works; the message says why, and what to do.
    """
    _require_free_cache()
    reasons = []
    for name in STRONGEST_FIRST:
        try:
            require_working(name, gpu)
        except UsageError as error:
            reasons.append(str(error))
            log.info("%s", error)
        else:
            return name
    explanation = " ".join(reasons)
    raise UsageError(f"No sandbox works on this machine. {explanation} --sandbox none isolates nothing.")


def _require_free_cache() -> None:
    """Raise if no sandbox could work because the disk is full."""
    try:
        require_free_disk(cache_dir())
    except SandboxFault as fault:
        raise UsageError(
            f"{fault} Free some, or set MLAGENTBENCH_HOME to a folder on another disk."
        ) from fault


def _explain(reason: str) -> str:
    """A reason with its remedy."""
    remedy = find_remedy(reason)
    return f"{reason.rstrip('.')}. {remedy}" if remedy else reason


def find_remedy(reason: str, root: Path = Path("/")) -> str:
    """What to do about a sandbox that does not start.

    Args:
        reason: What the sandbox said.
        root: Where the settings of the machine are read.
    """
    if "bubblewrap is not installed" in reason:
        return f"Or, {WITHOUT_ROOT}."
    if "uid of an unprivileged user" in reason:
        return (
            "Root has no other users in this container (/proc/self/uid_map). "
            "Run the harness as an ordinary user, or use --sandbox landlock."
        )
    if "hybrid" in reason:
        return (
            "crun supports no mix of cgroups versions 1 and 2. Install runc, and write "
            'runtime = "runc" under [engine] in containers.conf.'
        )
    if "mount proc" in reason or "remount" in reason:
        return (
            "This container hides parts of /proc, so no other /proc can be mounted. Start it with "
            "--security-opt systempaths=unconfined (podman: --security-opt unmask=ALL), "
            "or use --sandbox landlock."
        )
    denied = ("namespace", "uid map", "Operation not permitted", "Permission denied")
    if not any(text in reason for text in denied):
        return ""
    return " ".join(_namespace_remedies(root)) or "Use --sandbox landlock."


def _namespace_remedies(root: Path) -> Iterator[str]:
    settings = {
        "kernel/apparmor_restrict_unprivileged_userns": (
            "1",
            "AppArmor forbids user namespaces. Allow them to bubblewrap: write "
            "'abi <abi/4.0>, include <tunables/global> profile bwrap /usr/bin/bwrap flags=(unconfined) "
            "{ userns, }' to /etc/apparmor.d/bwrap and run: sudo systemctl reload apparmor.",
        ),
        "kernel/unprivileged_userns_clone": (
            "0",
            "User namespaces are turned off. Turn them on: sudo sysctl kernel.unprivileged_userns_clone=1.",
        ),
        "user/max_user_namespaces": (
            "0",
            "User namespaces are turned off. Turn them on: sudo sysctl user.max_user_namespaces=15000.",
        ),
    }
    for name, (value, remedy) in settings.items():
        file = root / "proc/sys" / name
        if file.is_file() and file.read_text().strip() == value:
            yield remedy
    if (root / ".dockerenv").exists() or (root / "run/.containerenv").exists():
        yield (
            "This container may not create namespaces. Start it with --security-opt seccomp=unconfined "
            "--security-opt apparmor=unconfined --security-opt systempaths=unconfined."
        )
    yield "Without the right to change that, use --sandbox landlock."
