"""Keys are in no file that a run, its report or its bundle leaves; answers are readable by nobody inside a sandbox."""

import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from wire import Reply, Wire, refusal
from zstandard import ZstdDecompressor

from mlagentbench.home import home
from mlagentbench.runner.setup import Setup
from mlagentbench.sandbox.choose import unprivileged_user

KEY = "sk-canary-0123456789-in-no-file"
TOKEN = "hf_canary0123456789innofile"
ZSTD = b"\x28\xb5\x2f\xfd"
LEAVING = ("runtimes", "downloads")  # of the cache: made by pip and by downloads, and large
NOSY = "import os, pathlib\nprint(dict(os.environ))\nfor p in pathlib.Path('/proc').glob('[0-9]*/environ'):\n"
NOSY += "    try: print(p, p.read_bytes())\n    except OSError as error: print(p, error)\n"


def act(action: str, **args: Any) -> str:
    return f"Action: {action}\nAction Input: {json.dumps(args)}"


SCRIPT: tuple[Reply, ...] = (
    refusal(500, "0", echo=True),
    act("Write File", file_name="look.py", content=f"{NOSY}# is it {KEY}?"),
    act("Execute Script", script_name="look.py"),
    act("Execute Script", script_name="train.py"),
    act("Final Answer", final_answer=f"I was given {KEY}"),
)


@pytest.fixture
def wire() -> Iterator[Wire]:
    """A provider that quotes the key wherever it can."""
    with Wire(*SCRIPT, key=KEY) as server:
        yield server


@pytest.fixture
def command(wire: Wire, tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """The command line of somebody with keys, whose home and temporary folder are below the test's own."""
    own = {"HOME": str(tmp_path / "user"), "TMPDIR": str(tmp_path / "tmp"), "MLAGENTBENCH_HOME": str(home())}
    keys = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{wire.url}/v1", "HF_TOKEN": TOKEN, "NO_PROXY": "127.0.0.1"}
    for folder in ("user", "tmp"):
        (tmp_path / folder).mkdir()

    def call(*args: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "mlagentbench", *map(str, args)],
            env={**os.environ, **own, **keys},
            capture_output=True,
            text=True,
            check=False,
        )

    return call


def contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """What a file holds, unpacked."""
    yield str(path), unpacked(path.read_bytes())
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield from ((f"{path}: {name}", unpacked(archive.read(name))) for name in archive.namelist())


def unpacked(data: bytes) -> bytes:
    return ZstdDecompressor().decompressobj().decompress(data) if data.startswith(ZSTD) else data


def written_since(start: float) -> Iterator[Path]:
    """The files of the cache that are new or changed."""
    for parent, folders, files in os.walk(home()):
        if Path(parent) == home():
            folders[:] = [name for name in folders if name not in LEAVING]
        for name in files:
            path = Path(parent, name)
            if path.is_file() and path.stat().st_mtime >= start:
                yield path


def test_no_file_of_a_run_its_report_or_its_bundle_holds_a_key(
    command: Callable[..., "subprocess.CompletedProcess[str]"], wire: Wire, toy: Path, tmp_path: Path
) -> None:
    start = time.time()
    run = tmp_path / "run"
    done = command("run", toy, "--agent", "act", "--model", "openai-chat:gpt-4o", "--steps", "6", "--out", run)
    assert done.returncode == 0 and len(wire.seen) == len(SCRIPT), done.stderr
    assert all(seen.headers["authorization"] == f"Bearer {KEY}" for seen in wire.seen)  # it was asked with the key
    more = [command("report", run, "-o", tmp_path / "site"), command("export", run, "-o", tmp_path / "run.zip")]
    more += [command("show", run), command("verify", run)]
    assert [each.returncode for each in more] == [0, 0, 0, 0], more
    files = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]
    found = [each for path in (*files, *written_since(start)) for each in contents(path)]
    assert any(b"[key]" in data for _, data in found) and len(found) > 20
    assert [name for name, data in found for secret in (KEY, TOKEN) if secret.encode() in data] == []
    said = "".join(each.stdout + each.stderr for each in (done, *more))
    assert KEY not in said and TOKEN not in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only a root harness drops to another user")
def test_the_user_that_commands_run_as_can_read_no_answer_even_outside_the_sandbox(setup: Setup) -> None:
    user, private = unprivileged_user("a run"), setup.data.private
    alone = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    for look in (["ls", private], ["cat", private / "answers.csv"], ["cat", private / "seed.json"]):
        done = subprocess.run([*alone, *map(str, look)], capture_output=True, text=True, check=False, cwd="/")
        assert (done.stdout, done.returncode != 0) == ("", True) and "Permission denied" in done.stderr
    assert private.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in private.iterdir()} == {0o600}
