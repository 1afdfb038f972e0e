"""Bundles of strangers: damaged, and forged so that all hashes fit."""

import io
import json
import shutil
from pathlib import Path
from random import Random
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from blake3 import blake3
from mutation import dumped, grafted, mutated

from mlagentbench.bundles.read import unpack_bundle
from mlagentbench.errors import Fault, UsageError
from mlagentbench.runner.folder import RunFolder

RAISES = (UsageError, Fault)
WEIGHT, SHORT = 10, 60
RECORDED = Path(__file__).parents[2] / "formats" / "1.zip"
with ZipFile(RECORDED) as _bundle:
    HELD = {name: _bundle.read(name) for name in _bundle.namelist()}
CONTENTS = "MANIFEST.json"
NAMES = [
    "../out",
    "/etc/x",
    "a\\b",
    "outputs/" + "é" * 100 + ".txt",
    "run.json",
    "outputs/../x.txt",
    "",
    "agent.py/x",
    "\0",
]
WORDS = [
    b"PK\x01\x02",
    b"PK\x03\x04",
    b"PK\x05\x06",
    b"PK\x06\x06",
    b"\xff\xff\xff\xff",
    b"\x01\x00",
    b"\x08\x00",
    b"\0" * 4,
]
FOUND = [RECORDED.read_bytes()[:9000] + RECORDED.read_bytes()[9500:]]
damaged, exchanged = mutated([RECORDED.read_bytes()], WORDS), grafted([json.loads(HELD[CONTENTS])])


def make(random: Random) -> bytes:
    if random.random() < 0.5:
        data = damaged(random)
        return data if len(data) < 80_000 else data[-80_000:]
    return _forged(random)


def _forged(random: Random) -> bytes:
    """Some file replaced, renamed or added, and the list of contents made to fit, or not."""
    held = {name: data for name, data in HELD.items() if name != CONTENTS}
    name = random.choice([*held])
    held[random.choice([name, name, *NAMES])] = mutated([held.pop(name)])(random)[:20_000]
    contents = json.loads(HELD[CONTENTS])
    contents["files"] = {name: [blake3(data).hexdigest(), len(data)] for name, data in held.items()}
    contents["run"] = random.choice(["run", "../x", "é" * 200, "", ".", "a\0", "x" * 200])
    list_ = exchanged(random) if random.random() < 0.2 else contents
    file = io.BytesIO()
    with ZipFile(file, "w", ZIP_STORED if random.random() < 0.9 else ZIP_DEFLATED) as bundle:
        for name, data in {CONTENTS: dumped(list_), **held}.items():
            entry = ZipInfo(name or "empty")
            entry.external_attr = random.choice((0o100644, 0o120777, 0o040755)) << 16
            bundle.writestr(entry, data)
    return file.getvalue()


def attempt(case: bytes, room: Path) -> None:
    path, place = room / "some.zip", room / "place"
    path.write_bytes(case)
    place.mkdir()
    before = {*room.iterdir()}
    try:
        folder = RunFolder(unpack_bundle(path, place))
        folder.steps(), list(folder.calls()), folder.open_store(writable=False).find_problems()
    except UsageError as error:
        assert "\n" not in str(error), str(error)
        raise
    finally:
        shutil.rmtree(place)
        assert {*room.iterdir()} == before - {place}
