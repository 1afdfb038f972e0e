"""The format of a bundle: MANIFEST.json and the file names that a run may have."""

import re

from mlagentbench.records import Record

MANIFEST_NAME = "MANIFEST.json"
BUNDLE_FORMAT = 1
SNAPSHOT_MANIFEST, OBJECTS_DIR = "snapshots/manifest.jsonl", "snapshots/objects"
OBJECT_PATTERN = re.compile(rf"{OBJECTS_DIR}/([0-9a-f]{{2}})/([0-9a-f]{{62}})(\.zst)?")
FILE_PATTERN = re.compile(
    r"(run|result|result-\d{1,4}|judged)\.json|(trace|model_calls|grades)\.jsonl|agent\.py|crash\.txt"
    rf"|outputs/[\w-]{{1,100}}\.txt|access/step-\d{{4,9}}\.jsonl|{SNAPSHOT_MANIFEST}|{OBJECT_PATTERN.pattern}",
    re.ASCII,
)


class BundleManifest(Record):
    """MANIFEST.json: hash and size of every file, and the packages that wrote the bundle and can run it."""

    format: int = BUNDLE_FORMAT
    version: str
    run: str
    data: bool  # whether the public data of the task is included
    packages: dict[str, str]  # of the harness that exported the run
    runtime: tuple[str, ...] = ()  # pinned requirements of the agent's scripts
    files: dict[str, tuple[str, int]]
