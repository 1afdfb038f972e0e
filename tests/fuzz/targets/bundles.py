"""Bundles from unknown sources: damaged, or forged with matching hashes."""

import io
import json
import shutil
from pathlib import Path
from random import Random
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from blake3 import blake3
from mutation import dump_json, mutate_bytes, mutate_json

from mlagentbench.bundles.read import unpack_bundle
from mlagentbench.errors import Fault, UsageError
from mlagentbench.runner.folder import RunFolder

EXPECTED_ERRORS = (UsageError, Fault)
CASES_PER_1000, SHORT_CASES = 10, 60
RECORDED = Path(__file__).parents[2] / "formats" / "1.zip"
with ZipFile(RECORDED) as _bundle:
    FILES = {name: _bundle.read(name) for name in _bundle.namelist()}
MANIFEST = "MANIFEST.json"
ODD_NAMES = [
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
TOKENS = [
    b"PK\x01\x02",
    b"PK\x03\x04",
    b"PK\x05\x06",
    b"PK\x06\x06",
    b"\xff\xff\xff\xff",
    b"\x01\x00",
    b"\x08\x00",
    b"\0" * 4,
]
REGRESSION_CASES = [RECORDED.read_bytes()[:9000] + RECORDED.read_bytes()[9500:]]
mutate, mutate_object = (
    mutate_bytes([RECORDED.read_bytes()], TOKENS),
    mutate_json([json.loads(FILES[MANIFEST])]),
)


def make_case(random: Random) -> bytes:
    if random.random() < 0.5:
        data = mutate(random)
        return data if len(data) < 80_000 else data[-80_000:]
    return _forge(random)


def _forge(random: Random) -> bytes:
    """Replace, rename or add a file, and make the manifest match, or not."""
    files = {name: data for name, data in FILES.items() if name != MANIFEST}
    name = random.choice([*files])
    files[random.choice([name, name, *ODD_NAMES])] = mutate_bytes([files.pop(name)])(random)[:20_000]
    matching_manifest = json.loads(FILES[MANIFEST])
    matching_manifest["files"] = {name: [blake3(data).hexdigest(), len(data)] for name, data in files.items()}
    matching_manifest["run"] = random.choice(["run", "../x", "é" * 200, "", ".", "a\0", "x" * 200])
    manifest = mutate_object(random) if random.random() < 0.2 else matching_manifest
    file = io.BytesIO()
    with ZipFile(file, "w", ZIP_STORED if random.random() < 0.9 else ZIP_DEFLATED) as bundle:
        for name, data in {MANIFEST: dump_json(manifest), **files}.items():
            entry = ZipInfo(name or "empty")
            entry.external_attr = random.choice((0o100644, 0o120777, 0o040755)) << 16
            bundle.writestr(entry, data)
    return file.getvalue()


def run_case(case: bytes, folder: Path) -> None:
    path, target = folder / "some.zip", folder / "target"
    path.write_bytes(case)
    target.mkdir()
    before = {*folder.iterdir()}
    try:
        run_folder = RunFolder(unpack_bundle(path, target))
        run_folder.steps(), list(run_folder.calls()), run_folder.open_store(writable=False).find_problems()
    except UsageError as error:
        assert "\n" not in str(error), str(error)
        raise
    finally:
        shutil.rmtree(target)
        assert {*folder.iterdir()} == before - {target}
