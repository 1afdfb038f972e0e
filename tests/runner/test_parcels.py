"""What is new in a run's folder, sent piece by piece."""

from pathlib import Path

import pytest

from mlagentbench.runner.batch.ray import folder_sync
from mlagentbench.runner.batch.ray.folder_sync import FolderSender, write_part
from mlagentbench.runner.batch.ray.payload import pack_folder, unpack_archive


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "run"
    (place / "snapshots" / "objects" / "ab").mkdir(parents=True)
    (place / "outputs").mkdir()
    (place / "workspace").mkdir()
    (place / "workspace" / "big.bin").write_bytes(b"stays")
    (place / "run.json").write_text("{}")
    (place / "trace.jsonl").write_text("one\n")
    return place


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def send(sender: FolderSender, target: Path) -> list[str]:
    """The files that were told of."""
    pieces = [piece for parcel in sender.read_new_chunks() for piece in parcel]
    for piece in pieces:
        write_part(target, piece)
    return [piece.path for piece in pieces]


def test_only_what_is_new_is_sent_and_journals_grow(folder: Path, tmp_path: Path) -> None:
    sender, target = FolderSender(folder), tmp_path / "there"
    assert send(sender, target) == ["run.json", "trace.jsonl"]
    assert send(sender, target) == []
    with (folder / "trace.jsonl").open("a") as file:
        file.write("two\nthr")
    (folder / "snapshots" / "objects" / "ab" / "cd").write_bytes(b"content")
    (folder / "snapshots" / "manifest.jsonl").write_text("state\n")
    assert send(sender, target) == ["snapshots/objects/ab/cd", "snapshots/manifest.jsonl", "trace.jsonl"]
    assert content(target) == {
        "run.json": b"{}",
        "trace.jsonl": b"one\ntwo\n",  # half a line is none
        "snapshots/objects/ab/cd": b"content",
        "snapshots/manifest.jsonl": b"state\n",
    }


def test_the_access_ledger_comes_before_the_step_that_it_is_of(folder: Path, tmp_path: Path) -> None:
    (folder / "access").mkdir()
    (folder / "access" / "step-0001.jsonl").write_text("{}\n")
    (folder / "access" / "step-0002.part").write_text("{")
    assert send(FolderSender(folder), tmp_path / "there") == [
        "run.json",
        "access/step-0001.jsonl",
        "trace.jsonl",
    ]


def test_a_journal_that_was_rewound_is_sent_anew_even_if_it_is_longer_now(
    folder: Path, tmp_path: Path
) -> None:
    sender, target = FolderSender(folder), tmp_path / "there"
    send(sender, target)
    (folder / "trace.jsonl").write_text("ONE\ntwo\nthree\n")
    send(sender, target)
    assert content(target)["trace.jsonl"] == b"ONE\ntwo\nthree\n"
    (folder / "trace.jsonl").write_text("")
    send(sender, target)
    assert content(target)["trace.jsonl"] == b""


def test_what_the_other_side_has_is_not_sent_back(folder: Path, tmp_path: Path) -> None:
    there = FolderSender(tmp_path / "there")
    send(FolderSender(folder), tmp_path / "there")
    there.mark_all_sent()
    assert list(there.read_new_chunks()) == []
    with (tmp_path / "there" / "trace.jsonl").open("a") as file:
        file.write("two\n")
    (parcel,) = there.read_new_chunks()
    assert [(piece.path, piece.offset, piece.data, piece.appends) for piece in parcel] == [
        ("trace.jsonl", 4, b"two\n", True)
    ]


def test_wherever_it_is_cut_off_nothing_speaks_of_what_is_not_there(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_sync, "MAX_CHUNK_BYTES", 10)
    (folder / "snapshots" / "objects" / "ab" / "cd").write_bytes(b"content that takes several pieces")
    (folder / "snapshots" / "manifest.jsonl").write_text("state\n")
    (folder / "outputs" / "step-0001.txt").write_text("said")
    (folder / "result.json").write_text("{}")
    whole = [piece for parcel in FolderSender(folder).read_new_chunks() for piece in parcel]
    assert len(whole) > 6
    later = {"trace.jsonl": "snapshots/manifest.jsonl", "snapshots/manifest.jsonl": "snapshots/objects/ab/cd"}
    later |= {"result.json": "trace.jsonl", "snapshots/objects/ab/cd": "run.json"}
    for end in range(len(whole) + 1):
        target = tmp_path / f"cut-{end}"
        target.mkdir()
        for piece in whole[:end]:
            write_part(target, piece)
        there = content(target)
        assert all(earlier in there for name, earlier in later.items() if name in there)
        assert there.get("snapshots/objects/ab/cd", b"content that takes several pieces").endswith(b"pieces")
    assert {name: data for name, data in content(folder).items() if "workspace" not in name} == there


def test_a_packed_folder_keeps_names_contents_and_modes(folder: Path, tmp_path: Path) -> None:
    (folder / "private").mkdir(mode=0o700)
    (folder / "private" / "answers").write_text("42")
    (folder / "private" / "answers").chmod(0o600)
    target = tmp_path / "there"
    target.mkdir()
    unpack_archive(pack_folder(folder), target)
    assert content(target) == content(folder)
    assert (target / "private").stat().st_mode & 0o777 == 0o700
    assert (target / "private" / "answers").stat().st_mode & 0o777 == 0o600
