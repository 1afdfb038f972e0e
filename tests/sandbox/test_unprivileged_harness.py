"""The same sandbox when the harness runs as an ordinary user, who cannot create cgroups."""

import json
import os
import site
import subprocess
import sys
from pathlib import Path

import pytest
from script_runner import SMALL, ScriptRunner

import mlagentbench

UID = 1234
HARNESS = Path(__file__).parent / "harness.py"
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="becomes another user; as one, the other tests do this"
)


def as_user(
    run: ScriptRunner,
    code: str,
    timeout_s: float = 20,
    sandbox: str = "bwrap",
    before: str = "true",
    **variables: str,
) -> dict[str, object]:
    """Run a harness as user 1234, with our Python, packages and runtime mounted where it can read them."""
    runtime, home = run.spec.runtime, run.folder / "home"
    mounts = {
        runtime.prefix: run.folder / "python",
        Path(mlagentbench.__file__).parent: run.folder / "source" / "mlagentbench",
        Path(site.getsitepackages()[0]): run.folder / "packages",
        HARNESS.parent: run.folder / "tests",
        runtime.folder: home / "runtimes" / runtime.folder.name,
    }
    for target in mounts.values():
        target.mkdir(parents=True, exist_ok=True)
    (run.workspace / "script.py").write_text(code)
    for path in (home, run.workspace, run.workspace / "script.py"):
        os.chown(path, UID, UID)
    run.folder.chmod(0o755)
    mount_commands = " && ".join(f"mount --bind {source} {target}" for source, target in mounts.items())
    user = ["setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups", "--"]
    python = str(run.folder / "python" / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")
    arguments = [sandbox, str(run.workspace), run.marker, str(timeout_s), SMALL.model_dump_json()]
    completed = subprocess.run(
        [
            "unshare",
            "-m",
            "sh",
            "-c",
            f'{mount_commands} && {before} && exec "$@"',
            "sh",
            *user,
            python,
            "tests/harness.py",
            *arguments,
        ],
        cwd=run.folder,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "XDG_RUNTIME_DIR": str(home),
            "MLAGENTBENCH_HOME": str(home),
            "PYTHONPATH": f"{run.folder}/source:{run.folder}/packages",
            "SOME_API_KEY": "s3cret",
            **variables,
        },
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr.decode()
    outcome: dict[str, object] = json.loads(completed.stdout.splitlines()[-1])
    assert outcome["controllers"] == 0
    return {**outcome, "text": completed.stdout.decode("utf-8", "replace")}


def test_a_script_has_no_more_rights_than_with_a_root_harness(run: ScriptRunner) -> None:
    outcome = as_user(
        run,
        f"""
import os, numpy
print([p for p in ('{run.folder}', '/root', '/work', '/var', '/sys', '/etc/shadow') if os.path.lexists(p)])
print(os.getuid(), [p for p in os.listdir('/proc') if p.isdigit()], 's3cret' in str(os.environ))
for action in (lambda: os.setuid(0), lambda: os.setuid({UID}), lambda: open('/usr/x', 'w'),
               lambda: os.unshare(0)):
    try: action(); print('done')
    except (OSError, AttributeError): pass
status = dict(line.split(':', 1) for line in open('/proc/self/status').read().splitlines())
print({{int(status[name], 16) for name in ('CapEff', 'CapPrm', 'CapBnd')}}, status['NoNewPrivs'].strip())
open('mine', 'w').write('x')
""",
    )
    lines = str(outcome["text"]).splitlines()
    assert lines[:3] == ["[]", "1000 ['1', '2'] False", "{0} 1"]
    assert outcome["exit_code"] == 0
    assert (run.workspace / "mine").stat().st_uid == UID


EXCEEDING = {
    "time": "import os\nif os.fork() == 0: os.setsid(); os.fork()\nwhile True: pass",
    "memory": """
import os
for _ in range(3): os.fork()
kept = bytearray(b'x' * (90 << 20))
while True: pass
""",
    "disk": """
import os
os.mkdir('d')
for n in range(10): open(f'd/{n}', 'wb').truncate(40 << 20)
os.chmod('d', 0); os.chmod('.', 0)
while True: pass
""",
}


@pytest.mark.parametrize("limit", EXCEEDING)
def test_limits_are_enforced_for(limit: str, run: ScriptRunner) -> None:
    outcome = as_user(run, EXCEEDING[limit], timeout_s=1 if limit == "time" else 20)
    assert outcome["limit"] == limit
    assert run.survivors() == []


def test_memory_of_a_process_that_hides_itself_is_counted(run: ScriptRunner) -> None:
    code = """
import ctypes, os
ctypes.CDLL(None).prctl(4, 0)  # not dumpable, which makes most of /proc unreadable to the same user
kept = []
while True:
    kept.append(os.memfd_create('x'))
    for _ in range(16): os.write(kept[-1], b'x' * (1 << 20))
    if len(kept) > 60: os._exit(0)
"""
    assert as_user(run, code)["limit"] == "memory"


def test_daemons_are_found_and_killed_without_a_sandbox(run: ScriptRunner) -> None:
    code = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    time.sleep(1000)
time.sleep(0.2)
"""
    assert as_user(run, code, sandbox="none")["exit_code"] == 0
    assert run.survivors() == []


def test_accesses_are_recorded_for_an_ordinary_user(run: ScriptRunner) -> None:
    code = "open('out', 'w'); open('/etc/passwd')\ntry: open('/etc/shadow')\nexcept OSError: pass"
    accesses = as_user(run, code, RECORD_ACCESS="yes")["accesses"]
    expected = [
        ["/workspace/out", "write", 1, 0],
        ["/etc/passwd", "read", 1, 0],
        ["/etc/shadow", "read", 1, 1],
    ]
    assert all(row in accesses for row in expected)  # type: ignore[operator]
