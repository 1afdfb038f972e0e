"""Keys are in the environment of whoever runs the benchmark, and in nothing that it writes."""

import json
import re
from pathlib import Path

import pytest
import zstandard
from wire import Wire

from mlagentbench.providers.names import PROVIDERS

KEY = "sk-audit-0123456789abcdefghijklmnop"
OTHERS = ("HF_TOKEN", "KAGGLE_KEY", "KAGGLE_API_TOKEN", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN")
LOOK = """Reflection: none
Research Plan and Status: look
Fact Check: none
Thought: look around
Action: Execute Script
Action Input: {"script_name": "look.py"}
"""
CODE = "import os, sys; print(dict(os.environ), sys.argv); open('kept', 'w').write(str(os.environ))"
WRITE = LOOK.replace("Execute Script", "Write File").replace(
    '{"script_name": "look.py"}', json.dumps({"file_name": "look.py", "content": CODE})
)


@pytest.fixture
def wire(monkeypatch):
    """A provider on the loopback, and every key that there is set to the same."""
    with Wire(key=KEY) as server:
        for name in {key for provider in PROVIDERS.values() for key in provider.keys} | set(OTHERS):
            monkeypatch.setenv(name, KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server


def holders(folder: Path) -> list[str]:
    """The files that hold the key, also if they are packed."""
    return [str(path) for path in folder.rglob("*") if path.is_file() and KEY.encode() in unpacked(path)]


def unpacked(path: Path) -> bytes:
    content = path.read_bytes()
    if content.startswith(zstandard.MAGIC_NUMBER.to_bytes(4, "little")):
        content += zstandard.ZstdDecompressor().decompressobj().decompress(content)
    return content


def test_a_batch_with_its_outputs_snapshots_and_index_holds_no_key(cli, wire, toy, tmp_path):
    wire.script = [WRITE, LOOK, f"I was given {KEY}, was I not?", *["nothing more"] * 9]
    out = tmp_path / "batch"
    options = ["--task", toy, "--agent", "research", "--model", "openai-chat:gpt-4o", "--steps", 3, "--out", out]
    done = cli("batch", *options)
    (run,) = out.glob("*/run.json")
    assert len(wire.seen) >= 3, done.stderr
    shown = "".join(path.read_text() for path in run.parent.glob("outputs/*.txt"))
    assert "PATH" in shown and list(out.rglob("index.sqlite")) and list(out.rglob("objects/*"))
    assert holders(tmp_path) == [] and KEY not in done.stdout + done.stderr
    looks = ("show", run.parent), ("watch", out, "--once", "--json"), ("verify", run.parent)
    for command in (*looks, ("report", out, "-o", tmp_path / "site"), ("export", run.parent, "-o", tmp_path / "a.zip")):
        done = cli(*command)
        assert KEY not in done.stdout + done.stderr
    assert (tmp_path / "site" / "index.html").is_file() and holders(tmp_path) == []


def test_whoever_looks_for_the_key_finds_it_where_it_is(tmp_path):
    (tmp_path / "plain").write_text(f"the key is {KEY}")
    (tmp_path / "packed").write_bytes(zstandard.compress(f"the key is {KEY}".encode()))
    (tmp_path / "none").write_text(re.sub("sk", "ks", KEY))
    assert sorted(Path(each).name for each in holders(tmp_path)) == ["packed", "plain"]
