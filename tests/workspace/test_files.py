"""Whatever an agent leaves in its workspace, the harness reads and writes only inside it."""

import os
import posixpath
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlagentbench.errors import ActionError, Fault
from mlagentbench.workspace.files import Workspace
from mlagentbench.workspace.paths import PathPatterns, format_size, normalize_path

UNUSUAL_NAMES = [
    "with space",
    "new\nline",
    "ünïcødé 🎈",
    os.fsdecode(b"not \xff utf-8"),
    "-rf",
    "*",
    "a" * 255,
]
is_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("secret")
    return path


@pytest.mark.parametrize(
    ("given_path", "normalized"),
    [
        ("./a//b/../c", "a/c"),
        ("/workspace/a", "a"),
        ("/workspace", ""),
        ("/workspace/../workspace/a/", "a"),
        ("//workspace//a", "a"),
        (".", ""),
        ("a/..", ""),
        ("workspace/a", "workspace/a"),
        ("...", "..."),
    ],
)
def test_paths_are_normalized_lexically(given_path: str, normalized: str) -> None:
    assert normalize_path(given_path) == normalized


@pytest.mark.parametrize(
    "path", ["..", "../a", "a/../../b", "/etc/passwd", "/workspace/../etc", "/", "/workspaces"]
)
def test_a_path_that_leaves_the_workspace_is_rejected(path: str) -> None:
    with pytest.raises(ActionError, match="is outside the workspace"):
        normalize_path(path)


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", "a/" * 65, "a/../" * 4000])
def test_an_invalid_path_is_rejected_in_one_short_line(path: str) -> None:
    with pytest.raises(ActionError) as caught:
        normalize_path(path)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 300


@given(st.text(alphabet="ab./", max_size=20))
def test_a_normalized_path_agrees_with_posixpath_and_never_leaves(path: str) -> None:
    try:
        normalized = normalize_path(path)
    except ActionError:
        collapsed = posixpath.normpath(path) if path else ""
        assert not path or path.startswith("/") or collapsed.startswith("..") or ".." in path
        return
    assert posixpath.normpath(path).replace("//", "/") in (normalized or ".", f"/workspace/{normalized}")
    assert ".." not in normalized.split("/") and not normalized.startswith("/")
    assert not normalized or normalize_path(normalized) == normalized


@given(st.text(max_size=40))
def test_no_text_breaks_normalization(path: str) -> None:
    try:
        normalized = normalize_path(path)
    except ActionError as error:
        assert str(error).isprintable()
    else:
        assert {"", ".", ".."}.isdisjoint(normalized.split("/")) or normalized == ""


def test_files_are_written_read_and_appended_to_and_folders_created(root: Path) -> None:
    workspace = Workspace(root)
    workspace.write("a/b/c.txt", b"hello")
    workspace.append("a/b/c.txt", b" world")
    workspace.append("a/new.txt", b"first")
    assert workspace.read("/workspace/a/b/c.txt") == (b"hello world", 11)
    assert workspace.read("a/b/c.txt", max_bytes=5) == (b"hello", 11)
    assert workspace.read("a/new.txt")[0] == b"first"
    assert names(root / "a" / "b") == ["c.txt"]


@pytest.mark.parametrize("name", UNUSUAL_NAMES)
def test_unusual_names_are_handled_like_any_other(root: Path, name: str) -> None:
    workspace = Workspace(root)
    workspace.write(f"folder/{name}", b"x")
    workspace.copy(f"folder/{name}", name)
    assert workspace.read(name) == (b"x", 1)
    (listed,) = workspace.list_folder("folder")
    assert listed.name == name and str(listed).isprintable()
    workspace.remove(name)
    assert names(root) == ["folder"]


@pytest.mark.parametrize("content", [b"", b"shorter", b"a longer text than before", b"x" * 200_000])
def test_a_rewritten_file_has_exactly_the_new_content(root: Path, content: bytes) -> None:
    workspace = Workspace(root)
    workspace.write("notes.txt", b"the old notes")
    workspace.write("notes.txt", content)
    assert (root / "notes.txt").read_bytes() == content
    assert [path.name for path in root.iterdir()] == ["notes.txt"]


def test_a_small_file_is_rewritten_without_a_new_inode(root: Path) -> None:
    workspace = Workspace(root)
    workspace.write("notes.txt", b"the old notes")
    inode = (root / "notes.txt").stat().st_ino
    workspace.write("notes.txt", b"new")
    assert (root / "notes.txt").stat().st_ino == inode


def test_rewriting_a_file_changes_no_other_name_of_it(root: Path) -> None:
    workspace = Workspace(root)
    workspace.write("questions.csv", b"the old questions")
    (root / "link.csv").hardlink_to(root / "questions.csv")
    workspace.write("link.csv", b"new")
    assert (root / "questions.csv").read_bytes() == b"the old questions"
    assert (root / "link.csv").read_bytes() == b"new"


def test_a_rewritten_file_keeps_its_mode_but_never_a_set_uid_bit(root: Path) -> None:
    workspace = Workspace(root)
    workspace.write("run.sh", b"old")
    assert stat.S_IMODE((root / "run.sh").stat().st_mode) == 0o644
    (root / "run.sh").chmod(0o4750)
    workspace.write("run.sh", b"new")
    assert stat.S_IMODE((root / "run.sh").stat().st_mode) == 0o750


def test_a_rewritten_file_does_not_change_under_its_other_hard_link(root: Path) -> None:
    (root / "a").write_text("old")
    (root / "b").hardlink_to(root / "a")
    Workspace(root).write("a", b"new")
    assert (root / "b").read_text() == "old"


def test_no_method_follows_a_link(root: Path, secret: Path) -> None:
    workspace = Workspace(root)
    (root / "real").mkdir()
    (root / "real" / "file").write_text("x")
    (root / "passwd").symlink_to("/etc/passwd")
    (root / "out").symlink_to(secret)
    (root / "dangling").symlink_to(secret.parent / "made")
    (root / "up").symlink_to(secret.parent)
    (root / "within").symlink_to("real")
    attempts = [
        lambda: workspace.read("passwd"),
        lambda: workspace.read("up/secret"),
        lambda: workspace.read("within/file"),
        lambda: workspace.write("out", b"x"),
        lambda: workspace.write("dangling", b"x"),
        lambda: workspace.write("up/secret", b"x"),
        lambda: workspace.write("up/made/deeper", b"x"),
        lambda: workspace.append("out", b"x"),
        lambda: workspace.append("dangling", b"x"),
        lambda: workspace.append("up/secret", b"x"),
        lambda: workspace.copy("out", "copy"),
        lambda: workspace.copy("real/file", "out"),
        lambda: workspace.copy("real/file", "up/made"),
        lambda: workspace.remove("up/secret"),
        lambda: workspace.list_folder("up"),
        lambda: workspace.list_folder("within"),
    ]
    for attempt in attempts:
        with pytest.raises(ActionError, match="links are not followed"):
            attempt()
    assert secret.read_text() == "secret"
    assert names(secret.parent) == ["secret", "workspace"]
    workspace.remove("out")
    assert secret.exists() and not os.path.lexists(root / "out")


def test_pipes_and_folders_are_rejected_without_blocking(root: Path) -> None:
    workspace = Workspace(root)
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    (root / "file").write_text("x")
    for attempt in (
        lambda: workspace.read("pipe"),
        lambda: workspace.write("pipe", b""),
        lambda: workspace.append("pipe", b""),
        lambda: workspace.copy("pipe", "x"),
    ):
        with pytest.raises(ActionError, match="pipe is not a regular file"):
            attempt()
    for attempt in (
        lambda: workspace.read("./folder"),
        lambda: workspace.write("./folder", b""),
        lambda: workspace.append("./folder", b""),
        lambda: workspace.copy("file", "./folder"),
        lambda: workspace.remove("./folder"),
    ):
        with pytest.raises(ActionError, match=r"^\./folder is a folder$"):
            attempt()
    assert str(workspace.list_folder()[-1]) == "pipe (not a regular file)"


def test_every_error_names_the_path_as_it_was_given(root: Path) -> None:
    workspace = Workspace(root)
    (root / "file").write_text("x")
    for attempt, message in (
        (lambda: workspace.read("./no/such"), "./no/such does not exist"),
        (lambda: workspace.read("file/below"), "file/below is not a folder, or is below a file"),
        (lambda: workspace.write("file/below", b""), "file/below is not a folder, or is below a file"),
        (lambda: workspace.list_folder("file"), "file is not a folder, or is below a file"),
        (lambda: workspace.read("."), ". is a folder"),
        (lambda: workspace.write("a/..", b""), "a/.. is a folder"),
        (lambda: workspace.write("n" * 256, b""), f"the name {'n' * 200}… is too long"),
    ):
        with pytest.raises(ActionError) as caught:
            attempt()
        assert str(caught.value) == message


def test_a_failed_write_leaves_nothing_behind(root: Path) -> None:
    (root / "folder").mkdir()
    with pytest.raises(ActionError):
        Workspace(root).write("folder", b"x")
    with pytest.raises(ActionError):
        Workspace(root).write("x" * 300, b"x")
    assert names(root) == ["folder"]


def test_a_folder_is_listed_sorted_with_kinds_and_sizes(root: Path) -> None:
    (root / "b").mkdir()
    (root / "a.csv").write_bytes(b"x" * 1234)
    (root / "c").symlink_to("/etc/passwd")
    assert [str(entry) for entry in Workspace(root).list_folder()] == [
        "a.csv (1.2 kB)",
        "b/",
        "c -> /etc/passwd",
    ]
    assert [format_size(n) for n in (0, 999, 1000, 10**6, 10**12)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "1.0 MB",
        "1.0 TB",
    ]


def test_a_huge_sparse_file_is_neither_read_nor_copied_completely(root: Path) -> None:
    with (root / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert Workspace(root).read("sparse", max_bytes=10) == (bytes(10), 1 << 40)
    with pytest.raises(ActionError, match=r"sparse is too big to copy \(1.1 TB\)"):
        Workspace(root).copy("sparse", "copy")


def test_a_copy_gets_the_mode_of_its_source(root: Path) -> None:
    (root / "a").write_bytes(os.urandom(3_000_000))
    (root / "a").chmod(0o755)
    Workspace(root).copy("a", "b/c")
    assert (root / "b" / "c").read_bytes() == (root / "a").read_bytes()
    assert stat.S_IMODE((root / "b" / "c").stat().st_mode) == 0o755


READ_ONLY = ("train.csv", "data/", "more/**", "deep/*.csv", "**/fixed.txt")


PROTECTED_PATHS = [
    "train.csv",
    "./x/../train.csv",
    "train.csv/x",
    "data",
    "data/a/b",
    "/workspace/data/a",
    "more",
]
PROTECTED_PATHS += ["more/x", "deep/a.csv", "fixed.txt", "a/b/fixed.txt", "a/fixed.txt/x"]


@pytest.mark.parametrize("path", PROTECTED_PATHS)
def test_every_writing_method_rejects_read_only_paths(root: Path, path: str) -> None:
    workspace = Workspace(root, READ_ONLY)
    workspace.write("mine", b"x")
    assert workspace.is_read_only(path)
    for attempt in (
        lambda: workspace.write(path, b""),
        lambda: workspace.append(path, b""),
        lambda: workspace.copy("mine", path),
        lambda: workspace.remove(path),
    ):
        with pytest.raises(ActionError) as caught:
            attempt()
        assert str(caught.value) == f"{path} is read-only"
    assert names(root) == ["mine"]


def test_the_parent_of_a_read_only_file_cannot_become_a_file(root: Path) -> None:
    workspace = Workspace(root, READ_ONLY)
    with pytest.raises(ActionError, match="deep is read-only: it is a folder that contains read-only files"):
        workspace.write("deep", b"")
    workspace.write("deep/a.txt", b"")
    workspace.write("train.csv.bak", b"")
    workspace.write("x/train.csv", b"")
    assert not workspace.is_read_only("deep/a/b.csv") and not workspace.is_read_only(".")


def test_the_topmost_existing_read_only_paths_are_found(root: Path, secret: Path) -> None:
    for name in ("train.csv", "data/a/b", "deep/a.csv", "deep/b.txt", "a/b/fixed.txt", "other/x"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    (root / "fixed.txt").symlink_to(secret)
    (root / "more").symlink_to(secret.parent)
    (root / "loop").symlink_to(".")
    assert Workspace(root, READ_ONLY).find_read_only_paths() == [
        "a/b/fixed.txt",
        "data",
        "deep/a.csv",
        "train.csv",
    ]
    assert Workspace(root).find_read_only_paths() == []


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4))
def test_everything_below_a_matching_path_matches(parts: list[str]) -> None:
    patterns = PathPatterns(["a/b", "**/c"])
    path = "/".join(parts)
    assert patterns.matches(path) == (path == "a/b" or path.startswith("a/b/") or "c" in parts)


def test_a_folder_is_copied_in_without_links_or_bytecode(root: Path, tmp_path: Path, secret: Path) -> None:
    source = tmp_path / "starter"
    (source / "data" / "empty").mkdir(parents=True)
    (source / "__pycache__").mkdir()
    (source / "__pycache__" / "x.pyc").write_text("x")
    (source / "train.csv").write_text("1,2")
    (source / "train.csv").chmod(0o400)
    (source / "data" / "run.sh").write_text("ls")
    (source / "data" / "run.sh").chmod(0o700)
    (source / "link").symlink_to(secret)
    (source / "folder").symlink_to(secret.parent)
    Workspace(root, ("train.csv",)).copy_in(source)
    paths = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    assert paths == ["data", "data/empty", "data/run.sh", "train.csv"]
    assert stat.S_IMODE((root / "train.csv").stat().st_mode) == 0o644
    assert stat.S_IMODE((root / "data" / "run.sh").stat().st_mode) == 0o755


def test_copying_in_over_a_link_or_from_a_missing_folder_is_a_fault(
    root: Path, tmp_path: Path, secret: Path
) -> None:
    source = tmp_path / "starter"
    source.mkdir()
    (source / "out").write_text("x")
    (root / "out").symlink_to(secret)
    with pytest.raises(Fault):
        Workspace(root).copy_in(source)
    with pytest.raises(Fault, match="is not a folder"):
        Workspace(root).copy_in(tmp_path / "none")
    assert secret.read_text() == "secret"


def test_a_missing_workspace_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(Fault, match="is missing"):
        Workspace(tmp_path / "none").read("x")


@is_root
def test_everything_written_belongs_to_the_owner(root: Path, tmp_path: Path) -> None:
    (tmp_path / "starter" / "s").mkdir(parents=True)
    (tmp_path / "starter" / "s" / "t").write_text("x")
    workspace = Workspace(root, owner=12345)
    workspace.copy_in(tmp_path / "starter")
    workspace.write("a/b", b"")
    workspace.append("c/d", b"")
    workspace.copy("a/b", "e/f")
    owners = {(path.lstat().st_uid, path.lstat().st_gid) for path in root.rglob("*")}
    assert owners == {(12345, 12345)}


@is_root
def test_a_full_disk_is_a_fault_and_keeps_the_old_file(root: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(root)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("cannot mount here")
    try:
        workspace = Workspace(root)
        workspace.write("a", b"old")
        for attempt in (workspace.write, workspace.append):
            with pytest.raises(Fault, match="disk full: a"):
                attempt("a", bytes(2_000_000))
        assert workspace.read("a") == (b"old", 3)
        assert names(root) == ["a"]
    finally:
        subprocess.run(["umount", str(root)], check=True)
