"""Prints a line for each part of the data in the working folder that is in a package of this Python."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .matching import (
    SAMPLE_SIZE,
    KnownRows,
    make_thumbnails,
    match_images,
    match_rows,
    match_texts,
    split_into_shingles,
)
from .packages import package_parts
from .parts import DATA_SUFFIXES, MIN_ROWS, DataPart, data_suffix, read_file

MAX_FILES = 400  # of the task; of more, a sample is read
MAX_TEXTS = 500
MIN_LEAK_RATE, MIN_LEAKED = 0.05, 5  # fewer matches may be chance
LEAK_PREFIX = "LEAK "


def main() -> None:
    """Compare the files in the working folder with the packages."""
    warnings.simplefilter("ignore")
    for line in find_leaks(read_task_parts(Path()), package_parts()):
        print(line, flush=True)


def read_task_parts(folder: Path) -> list[DataPart]:
    """The parts of all data files of a task; the images of one folder are one part."""
    files = [
        path for path in sorted(folder.rglob("*")) if path.is_file() and data_suffix(path) in DATA_SUFFIXES
    ]
    parts, images = list[DataPart](), dict[str, list[DataPart]]()
    for path in files[:: max(1, len(files) // MAX_FILES)]:
        name = path.relative_to(folder)
        for part in read_file(path, str(name)):
            if part.images is not None and len(part.images) == 1:
                images.setdefault(f"{name.parent}/*{name.suffix}", []).append(part)
            else:
                parts.append(part)
    for pattern, singles in images.items():
        stack = [make_thumbnails(part.images) for part in singles[:SAMPLE_SIZE] if part.images is not None]
        parts.append(DataPart(pattern, images=np.concatenate(stack)))
    return parts


def find_leaks(task_parts: list[DataPart], package_data: Iterator[DataPart]) -> Iterator[str]:
    """Yield a line for each leak, and one at the end that says what was compared."""
    shingles = {
        part.name: [split_into_shingles(text) for text in part.texts[:: max(1, len(part.texts) // MAX_TEXTS)]]
        for part in task_parts
        if part.texts
    }
    compared, leaked = 0, set[tuple[str, str]]()
    for known in package_data:
        compared += 1
        known_shingles = frozenset[int]().union(*map(split_into_shingles, known.texts if shingles else ()))
        has_rows = known.rows is not None and len(known.rows) >= MIN_ROWS
        rows = KnownRows(known.rows) if has_rows else None
        for part in task_parts:
            kind, rate, count = _match(part, known, rows, shingles.get(part.name, []), known_shingles)
            is_leak = rate >= MIN_LEAK_RATE and rate * count >= min(MIN_LEAKED, count)
            if is_leak and (part.name, kind) not in leaked:
                leaked.add((part.name, kind))
                yield f"{LEAK_PREFIX}{rate:.0%} of the {kind} of {part.name} are in {known.name}"
    yield f"compared {len(task_parts)} parts of the task with {compared} parts of packages"


def _match(
    part: DataPart,
    known: DataPart,
    rows: KnownRows | None,
    shingles: list[frozenset[int]],
    known_shingles: frozenset[int],
) -> tuple[str, float, int]:
    """What kind of data was compared, the rate of matches, and the number of items that were looked up."""
    if part.rows is not None and rows and len(part.rows) >= MIN_ROWS:
        return "rows", match_rows(part.rows, rows), min(SAMPLE_SIZE, len(part.rows))
    if part.images is not None and known.images is not None:
        return "images", match_images(part.images, known.images), min(SAMPLE_SIZE, len(part.images))
    return "texts", match_texts(shingles, known_shingles) if known_shingles else 0.0, len(shingles)
