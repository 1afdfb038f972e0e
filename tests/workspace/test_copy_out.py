"""What is copied out of a folder that an agent filled."""

import os
from pathlib import Path

import pytest

from mlagentbench.errors import ActionError
from mlagentbench.workspace.copy_out import copy_out


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "deep.txt").write_text("deep")
    (folder / "run.sh").write_text("run")
    (folder / "run.sh").chmod(0o700)
    return folder


def files(target: Path) -> dict[str, str]:
    return {str(path.relative_to(target)): path.read_text() for path in target.rglob("*") if path.is_file()}


def test_a_folder_is_copied_without_links_and_special_files(folder, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "linked").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    copy_out(folder, ".", tmp_path / "out")
    assert files(tmp_path / "out") == {"a/b/deep.txt": "deep", "run.sh": "run"}
    assert os.access(tmp_path / "out" / "run.sh", os.X_OK)


def test_one_file_or_a_folder_below_can_be_copied_and_paths_left_out(folder, tmp_path):
    copy_out(folder, "a/b/deep.txt", tmp_path / "one.txt")
    copy_out(folder, "a", tmp_path / "below")
    copy_out(folder, ".", tmp_path / "some", lambda path: path == "a/b")
    assert (tmp_path / "one.txt").read_text() == "deep"
    assert files(tmp_path / "below") == {"b/deep.txt": "deep"}
    assert files(tmp_path / "some") == {"run.sh": "run"}


@pytest.mark.parametrize("path", ["link/secret", "../secret", "nothing"])
def test_no_path_leads_out_of_the_folder(path, folder, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises((OSError, ActionError)):
        copy_out(folder, path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_link_in_the_target_is_replaced_and_not_written_through(folder, tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "run.sh").symlink_to(tmp_path / "mine")
    copy_out(folder, ".", tmp_path / "out")
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "out" / "run.sh").read_text() == "run"
