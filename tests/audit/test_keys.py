"""API keys are read from the environment and are in no file that the benchmark writes."""

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
ZSTD_MAGIC = zstandard.MAGIC_NUMBER.to_bytes(4, "little")
SKIPPED = {"runtimes", "downloads"}  # folders of the cache with large files of pip and others
RUN_REPLY = """Reflection: none
Research Plan and Status: inspect
Fact Check: none
Thought: inspect the environment
Action: Execute Script
Action Input: {"script_name": "inspect.py"}
"""
INSPECT_CODE = """
import os, pathlib, sys
print(dict(os.environ), sys.argv)
open("environment.txt", "w").write(str(os.environ))
for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
    try:
        print(path, path.read_bytes())
    except OSError as error:
        print(path, error)
"""
WRITE_REPLY = RUN_REPLY.replace("Execute Script", "Write File").replace(
    '{"script_name": "inspect.py"}', json.dumps({"file_name": "inspect.py", "content": INSPECT_CODE})
)


@pytest.fixture
def provider(monkeypatch, tmp_path):
    """A fake provider, every known key variable set to the same key, and a home inside the test folder."""
    cache = str(cache_dir())
    for name in ("HOME", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("MLAGENTBENCH_HOME", cache)
    with FakeProvider(key=KEY) as server:
        known = {name for provider in PROVIDERS.values() for name in provider.key_variables}
        for name in known | set(OTHERS):
            monkeypatch.setenv(name, KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server


def files(folder: Path, since: float = 0) -> Iterator[Path]:
    """The files written since then; a file that another test removes meanwhile is skipped."""
    for parent, folders, names in os.walk(folder):
        folders[:] = set(folders) - (SKIPPED if Path(parent) == cache_dir() else set())
        for path in (Path(parent, name) for name in names):
            with suppress(FileNotFoundError):
                status = path.stat()
                if stat.S_ISREG(status.st_mode) and status.st_mtime >= since:
                    yield path


def files_with_key(paths: Iterable[Path]) -> list[str]:
    """The names of the files that contain the key, also in compressed form."""
    return [path.name for path in paths if any(KEY.encode() in content for content in contents(path))]


def contents(path: Path) -> Iterator[bytes]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    yield content
    yield decompress(content)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield from (decompress(archive.read(name)) for name in archive.namelist())


def decompress(content: bytes) -> bytes:
    if not content.startswith(ZSTD_MAGIC):
        return content
    return zstandard.ZstdDecompressor().decompressobj().decompress(content)


@pytest.mark.slow
def test_a_batch_with_its_outputs_snapshots_and_index_contains_no_key(cli, provider, toy, tmp_path):
    start = time.time()
    failure = error_reply(500, "0", echo_key=True)  # the error message contains the key
    provider.script = [failure, WRITE_REPLY, RUN_REPLY, f"I was given {KEY}, right?", *["nothing more"] * 9]
    out = tmp_path / "batch"
    agent = ("--agent", "research", "--model", "openai-chat:gpt-4o")
    done = cli("batch", "--task", toy, *agent, "--steps", 3, "--out", out)
    (run,) = out.glob("*/run.json")
    assert len(provider.requests) >= 4
    assert {request.headers["authorization"] for request in provider.requests} == {f"Bearer {KEY}"}
    shown = "".join(path.read_text() for path in run.parent.glob("outputs/*.txt"))
    assert "PATH" in shown and list(out.rglob("index.sqlite")) and list(out.rglob("objects/*"))
    assert "[key]" in (run.parent / "model_calls.jsonl").read_text()  # where the provider quoted it
    printed = done.stdout + done.stderr
    views = ("show", run.parent), ("watch", out, "--once", "--json"), ("verify", run.parent)
    for command in (
        *views,
        ("report", out, "-o", tmp_path / "site"),
        ("export", run.parent, "-o", tmp_path / "a.zip"),
    ):
        done = cli(*command)
        printed += done.stdout + done.stderr
    assert (tmp_path / "site" / "index.html").is_file() and zipfile.is_zipfile(tmp_path / "a.zip")
    assert files_with_key(files(tmp_path)) == files_with_key(files(cache_dir(), start)) == []
    assert KEY not in printed


def test_the_search_for_the_key_finds_it_in_plain_compressed_and_zipped_files(tmp_path):
    compressed = zstandard.compress(f"the key is {KEY}".encode())
    (tmp_path / "plain").write_text(f"the key is {KEY}")
    (tmp_path / "compressed").write_bytes(compressed)
    with zipfile.ZipFile(tmp_path / "bundle", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("compressed", compressed)
    (tmp_path / "none").write_text(re.sub("sk", "ks", KEY))
    assert sorted(files_with_key(files(tmp_path))) == ["bundle", "compressed", "plain"]
    assert files_with_key(files(tmp_path, time.time() + 60)) == []
