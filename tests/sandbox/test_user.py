"""The same walls when the harness is an ordinary user, who may not make control groups."""

import json
import os
import site
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SMALL, Runner

import mlagentbench

USER = 1234
HARNESS = Path(__file__).parent / "harness.py"
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="becomes another user; as one, the other tests do this"
)


def as_user(
    run: Runner, code: str, seconds: float = 20, isolation: str = "bwrap", before: str = "true", **given: str
) -> dict[str, object]:
    """A harness of user 1234, with the Python, the packages and the runtime of ours where that user can read them."""
    runtime, home = run.box.runtime, run.folder / "home"
    places = {
        runtime.prefix: run.folder / "python",
        Path(mlagentbench.__file__).parent: run.folder / "source" / "mlagentbench",
        Path(site.getsitepackages()[0]): run.folder / "packages",
        HARNESS.parent: run.folder / "tests",
        runtime.folder: home / "runtimes" / runtime.folder.name,
    }
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True)
    (run.workspace / "script.py").write_text(code)
    for path in (home, run.workspace, run.workspace / "script.py"):
        os.chown(path, USER, USER)
    run.folder.chmod(0o755)
    mounts = " && ".join(f"mount --bind {source} {place}" for source, place in places.items())
    user = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups", "--"]
    python = str(run.folder / "python" / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")
    arguments = [isolation, str(run.workspace), run.marker, str(seconds), SMALL.model_dump_json()]
    done = subprocess.run(
        [
            "unshare",
            "-m",
            "sh",
            "-c",
            f'{mounts} && {before} && exec "$@"',
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
            **given,
        },
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    assert found["groups"] == 0
    return {**found, "text": done.stdout.decode("utf-8", "replace")}


def test_a_script_sees_and_may_no_more_than_that_of_a_root_harness(run: Runner) -> None:
    found = as_user(
        run,
        f"""
import os, numpy
print([p for p in ('{run.folder}', '/root', '/work', '/var', '/sys', '/etc/shadow') if os.path.lexists(p)])
print(os.getuid(), [p for p in os.listdir('/proc') if p.isdigit()], 's3cret' in str(os.environ))
for deed in (lambda: os.setuid(0), lambda: os.setuid({USER}), lambda: open('/usr/x', 'w'), lambda: os.unshare(0)):
    try: deed(); print('done')
    except (OSError, AttributeError): pass
status = dict(line.split(':', 1) for line in open('/proc/self/status').read().splitlines())
print({{int(status[name], 16) for name in ('CapEff', 'CapPrm', 'CapBnd')}}, status['NoNewPrivs'].strip())
open('mine', 'w').write('x')
""",
    )
    lines = str(found["text"]).splitlines()
    assert lines[:3] == ["[]", "1000 ['1', '2'] False", "{0} 1"]
    assert found["exit_code"] == 0
    assert (run.workspace / "mine").stat().st_uid == USER


GREEDY = {
    "time": "import os\nif os.fork() == 0: os.setsid(); os.fork()\nwhile True: pass",
    "memory": "import os\nfor _ in range(3): os.fork()\nkept = bytearray(b'x' * (90 << 20))\nwhile True: pass",
    "disk": """
import os
os.mkdir('d')
for n in range(10): open(f'd/{n}', 'wb').truncate(40 << 20)
os.chmod('d', 0); os.chmod('.', 0)
while True: pass
""",
}


@pytest.mark.parametrize("limit", GREEDY)
def test_limits_hold_for(limit: str, run: Runner) -> None:
    found = as_user(run, GREEDY[limit], seconds=1 if limit == "time" else 20)
    assert found["limit"] == limit
    assert run.survivors() == []


def test_hidden_memory_is_counted_too(run: Runner) -> None:
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


def test_daemons_are_hunted_down_without_a_sandbox_too(run: Runner) -> None:
    code = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    time.sleep(1000)
time.sleep(0.2)
"""
    assert as_user(run, code, isolation="none")["exit_code"] == 0
    assert run.survivors() == []


def test_there_is_an_access_ledger_all_the_same(run: Runner) -> None:
    code = "open('out', 'w'); open('/etc/passwd')\ntry: open('/etc/shadow')\nexcept OSError: pass"
    told = as_user(run, code, RECORD_ACCESS="yes")["accesses"]
    wanted = [["/workspace/out", "write", 1, 0], ["/etc/passwd", "read", 1, 0], ["/etc/shadow", "read", 1, 1]]
    assert all(row in told for row in wanted)  # type: ignore[operator]
