"""Copies of run folders on other machines."""

from pathlib import Path

import pytest

from mlagentbench.runner.batch.ray import folder_sync
from mlagentbench.runner.batch.ray.folder_sync import FolderSender, write_part
from mlagentbench.runner.batch.ray.payload import pack_folder, unpack_archive


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    (path / "snapshots" / "objects" / "ab").mkdir(parents=True)
    (path / "outputs").mkdir()
    (path / "workspace").mkdir()
    (path / "workspace" / "big.bin").write_bytes(b"stays")
    (path / "run.json").write_text("{}")
    (path / "trace.jsonl").write_text("one\n")
    return path


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def send(sender: FolderSender, target: Path) -> list[str]:
    """Send what is new, and return the paths of the parts."""
    parts = [part for chunk in sender.read_new_chunks() for part in chunk]
    for part in parts:
        write_part(target, part)
    return [part.path for part in parts]


def test_only_new_content_is_sent_and_journals_are_appended_to(folder: Path, tmp_path: Path) -> None:
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
        "trace.jsonl": b"one\ntwo\n",  # an incomplete line is not sent
        "snapshots/objects/ab/cd": b"content",
        "snapshots/manifest.jsonl": b"state\n",
    }


def test_the_access_log_of_a_step_is_sent_before_the_step(folder: Path, tmp_path: Path) -> None:
    (folder / "access").mkdir()
    (folder / "access" / "step-0001.jsonl").write_text("{}\n")
    (folder / "access" / "step-0002.part").write_text("{")
    assert send(FolderSender(folder), tmp_path / "there") == [
        "run.json",
        "access/step-0001.jsonl",
        "trace.jsonl",
    ]


def test_a_rewound_journal_is_sent_again_even_if_it_is_longer_now(folder: Path, tmp_path: Path) -> None:
    sender, target = FolderSender(folder), tmp_path / "there"
    send(sender, target)
    (folder / "trace.jsonl").write_text("ONE\ntwo\nthree\n")
    send(sender, target)
    assert content(target)["trace.jsonl"] == b"ONE\ntwo\nthree\n"
    (folder / "trace.jsonl").write_text("")
    send(sender, target)
    assert content(target)["trace.jsonl"] == b""


def test_what_the_receiver_has_is_not_sent_back(folder: Path, tmp_path: Path) -> None:
    there = FolderSender(tmp_path / "there")
    send(FolderSender(folder), tmp_path / "there")
    there.mark_all_sent()
    assert list(there.read_new_chunks()) == []
    with (tmp_path / "there" / "trace.jsonl").open("a") as file:
        file.write("two\n")
    (chunk,) = there.read_new_chunks()
    assert [(part.path, part.offset, part.data, part.appends) for part in chunk] == [
        ("trace.jsonl", 4, b"two\n", True)
    ]


def test_wherever_a_transfer_is_cut_off_no_file_refers_to_a_missing_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_sync, "MAX_CHUNK_BYTES", 10)
    (folder / "snapshots" / "objects" / "ab" / "cd").write_bytes(b"content that takes several parts")
    (folder / "snapshots" / "manifest.jsonl").write_text("state\n")
    (folder / "outputs" / "step-0001.txt").write_text("output")
    (folder / "result.json").write_text("{}")
    all_parts = [part for chunk in FolderSender(folder).read_new_chunks() for part in chunk]
    assert len(all_parts) > 6
    needs = {"trace.jsonl": "snapshots/manifest.jsonl", "snapshots/manifest.jsonl": "snapshots/objects/ab/cd"}
    needs |= {"result.json": "trace.jsonl", "snapshots/objects/ab/cd": "run.json"}
    for end in range(len(all_parts) + 1):
        target = tmp_path / f"cut-{end}"
        target.mkdir()
        for part in all_parts[:end]:
            write_part(target, part)
        there = content(target)
        assert all(needed in there for name, needed in needs.items() if name in there)
        assert there.get("snapshots/objects/ab/cd", b"content that takes several parts").endswith(b"parts")
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
