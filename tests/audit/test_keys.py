"""Keys are in the environment of whoever runs the benchmark, and in nothing that it writes."""

import json
import os
import re
import stat
import time
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import zstandard
from fake_provider import FakeProvider, error_reply

from mlagentbench.providers.names import PROVIDERS
from mlagentbench.system.cache import cache_dir

KEY = "sk-audit-0123456789abcdefghijklmnop"
OTHERS = ("HF_TOKEN", "KAGGLE_KEY", "KAGGLE_API_TOKEN", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN")
PACKED = zstandard.MAGIC_NUMBER.to_bytes(4, "little")
FOREIGN = {"runtimes", "downloads"}  # of the cache: pip's and other people's files, and large
LOOK = """Reflection: none
Research Plan and Status: look
Fact Check: none
Thought: look around
Action: Execute Script
Action Input: {"script_name": "look.py"}
"""
CODE = """
import os, pathlib, sys
print(dict(os.environ), sys.argv)
open("kept", "w").write(str(os.environ))
for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
    try:
        print(path, path.read_bytes())
    except OSError as error:
        print(path, error)
"""
WRITE = LOOK.replace("Execute Script", "Write File").replace(
    '{"script_name": "look.py"}', json.dumps({"file_name": "look.py", "content": CODE})
)


@pytest.fixture
def wire(monkeypatch, tmp_path):
    """A provider on the loopback, every key that there is set to the same, and a home below the test's own folder."""
    cache = str(cache_dir())
    for name in ("HOME", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("MLAGENTBENCH_HOME", cache)
    with FakeProvider(key=KEY) as server:
        for name in {key for provider in PROVIDERS.values() for key in provider.key_variables} | set(OTHERS):
            monkeypatch.setenv(name, KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server


def files(folder: Path, since: float = 0) -> Iterator[Path]:
    """What was written; a file that another test removes meanwhile is not there."""
    for parent, folders, names in os.walk(folder):
        folders[:] = set(folders) - (FOREIGN if Path(parent) == cache_dir() else set())
        for path in (Path(parent, name) for name in names):
            with suppress(FileNotFoundError):
                found = path.stat()
                if stat.S_ISREG(found.st_mode) and found.st_mtime >= since:
                    yield path


def holders(paths: Iterable[Path]) -> list[str]:
    """The files that hold the key, also if they are packed."""
    return [path.name for path in paths if any(KEY.encode() in each for each in contents(path))]


def contents(path: Path) -> Iterator[bytes]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    yield content
    yield unpacked(content)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield from (unpacked(archive.read(name)) for name in archive.namelist())


def unpacked(content: bytes) -> bytes:
    return (
        zstandard.ZstdDecompressor().decompressobj().decompress(content)
        if content.startswith(PACKED)
        else content
    )


def test_a_batch_with_its_outputs_snapshots_and_index_holds_no_key(cli, wire, toy, tmp_path):
    start = time.time()
    refused = error_reply(500, "0", echo=True)  # the key stands in the error
    wire.script = [refused, WRITE, LOOK, f"I was given {KEY}, was I not?", *["nothing more"] * 9]
    out = tmp_path / "batch"
    options = [
        "--task",
        toy,
        "--agent",
        "research",
        "--model",
        "openai-chat:gpt-4o",
        "--steps",
        3,
        "--out",
        out,
    ]
    done = cli("batch", *options)
    (run,) = out.glob("*/run.json")
    assert len(wire.seen) >= 4 and {seen.headers["authorization"] for seen in wire.seen} == {f"Bearer {KEY}"}
    shown = "".join(path.read_text() for path in run.parent.glob("outputs/*.txt"))
    assert "PATH" in shown and list(out.rglob("index.sqlite")) and list(out.rglob("objects/*"))
    assert "[key]" in (run.parent / "model_calls.jsonl").read_text()  # which the provider said
    said = done.stdout + done.stderr
    looks = ("show", run.parent), ("watch", out, "--once", "--json"), ("verify", run.parent)
    for command in (
        *looks,
        ("report", out, "-o", tmp_path / "site"),
        ("export", run.parent, "-o", tmp_path / "a.zip"),
    ):
        done = cli(*command)
        said += done.stdout + done.stderr
    assert (tmp_path / "site" / "index.html").is_file() and zipfile.is_zipfile(tmp_path / "a.zip")
    assert holders(files(tmp_path)) == holders(files(cache_dir(), start)) == [] and KEY not in said


def test_whoever_looks_for_the_key_finds_it_where_it_is(tmp_path):
    packed = zstandard.compress(f"the key is {KEY}".encode())
    (tmp_path / "plain").write_text(f"the key is {KEY}")
    (tmp_path / "packed").write_bytes(packed)
    with zipfile.ZipFile(tmp_path / "bundle", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("packed", packed)
    (tmp_path / "none").write_text(re.sub("sk", "ks", KEY))
    assert sorted(holders(files(tmp_path))) == ["bundle", "packed", "plain"]
    assert holders(files(tmp_path, time.time() + 60)) == []
