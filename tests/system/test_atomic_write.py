import os
import threading
from pathlib import Path

import pytest

from mlagentbench.system.atomic_write import PARTIAL_SUFFIX, partial_path, write_atomic


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_created_and_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, "first\n")
    assert path.read_text() == "first\n"
    write_atomic(path, b"\xff\x00")
    assert path.read_bytes() == b"\xff\x00"
    assert names_in(tmp_path) == ["file"]


def test_text_that_utf8_cannot_encode_is_escaped(tmp_path: Path) -> None:
    write_atomic(tmp_path / "file", "é \udcff")
    assert (tmp_path / "file").read_bytes() == "é \\udcff".encode()


def test_an_exclusive_write_does_not_replace_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, "first", exclusive=True)
    with pytest.raises(FileExistsError):
        write_atomic(path, "second", exclusive=True)
    assert path.read_text() == "first" and names_in(tmp_path) == ["file"]


def test_a_failed_write_leaves_the_old_content_and_nothing_else(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "missing" / "file", "x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomic(tmp_path / "folder", "x")
    assert names_in(tmp_path) == ["folder"] and names_in(tmp_path / "folder") == []


def test_readers_see_a_whole_version_while_threads_replace_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    versions = [str(digit) * 300_000 for digit in range(4)]
    write_atomic(path, versions[0])

    def write_repeatedly(version: str) -> None:
        for _ in range(25):
            write_atomic(path, version)

    writers = [threading.Thread(target=write_repeatedly, args=[version]) for version in versions]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert path.read_text() in versions
    assert names_in(tmp_path) == ["file"]


def test_partial_files_are_recognized_by_their_suffix_and_differ_between_threads(tmp_path: Path) -> None:
    partials = {partial_path(tmp_path / "file")}
    thread = threading.Thread(target=lambda: partials.add(partial_path(tmp_path / "file")))
    thread.start()
    thread.join()
    assert len(partials) == 2
    assert all(path.parent == tmp_path and path.name.endswith(PARTIAL_SUFFIX) for path in partials)
    assert all(str(os.getpid()) in path.name for path in partials)
