"""The history of a workspace is complete, exact and cheap, and survives a crash of its writer."""

import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from mlagentbench.errors import ActionError, Fault
from mlagentbench.workspace.store import ChangedPaths, Store, WorkspaceTooLarge

UNUSUAL_NAMES = [
    "with space",
    "new\nline",
    "ünïcødé 🎈",
    os.fsdecode(b"not \xff utf-8"),
    "-rf",
    '"',
    "a" * 255,
]
SOURCE_ROOT = Path(__file__).parents[2] / "src"
is_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def store(tmp_path: Path, root: Path) -> Store:
    return Store(tmp_path / "snapshots", root)


def read_tree(folder: Path) -> dict[str, tuple[str, int, object]]:
    """Return everything that a restored workspace must have in common with the original."""
    entries: dict[str, tuple[str, int, object]] = {}
    for path in folder.rglob("*"):
        mode = stat.S_IMODE(path.lstat().st_mode)
        name = str(path.relative_to(folder))
        if path.is_symlink():
            entries[name] = ("link", 0, path.readlink())
        elif path.is_dir():
            entries[name] = ("folder", mode, None)
        elif path.is_file():
            entries[name] = ("file", mode, path.read_bytes())
    return entries


def objects(store: Store) -> list[Path]:
    return sorted(path for path in (store.folder / "objects").rglob("*") if path.is_file())


def lines(store: Store) -> list[dict[str, object]]:
    return [json.loads(line) for line in (store.folder / "manifest.jsonl").read_text().splitlines()]


def wait_until_trusted(root: Path) -> None:
    """Wait for the next tick of the kernel's file clock, after which signatures are trusted."""
    latest = max((path.lstat().st_ctime_ns for path in root.rglob("*")), default=0)
    while time.time_ns() < latest + 25_000_000:
        pass


def test_a_snapshot_returns_what_was_added_modified_and_removed(store: Store, root: Path) -> None:
    assert store.snapshot(0) == ChangedPaths() and not store.snapshot(0)
    (root / "a").write_text("1")
    (root / "b").mkdir()
    assert store.snapshot(1) == ChangedPaths(added=("a", "b"))
    (root / "a").write_text("2")
    (root / "b").rmdir()
    (root / "c").symlink_to("/etc/passwd")
    assert store.snapshot(2) == ChangedPaths(("c",), ("a",), ("b",))
    assert not store.snapshot(3)
    assert [line["step"] for line in lines(store)] == [1, 2]
    assert {path: entry.kind for path, entry in store.state(1).items()} == {"a": "file", "b": "folder"}
    assert store.state(2)["c"].target == "/etc/passwd"
    assert store.state(0) == {} and store.state(99) == store.state(2)


def test_everything_is_restored_as_it_was(store: Store, root: Path, tmp_path: Path) -> None:
    for name in UNUSUAL_NAMES:
        (root / "odd" / name).mkdir(parents=True)
        (root / "odd" / name / name).write_text(name, errors="surrogateescape")
        (root / "odd" / f"{name[:200]}.link").symlink_to(name)
    (root / "empty").mkdir(mode=0o700)
    (root / "none").touch(mode=0o600)
    (root / "run.sh").write_text("ls")
    (root / "run.sh").chmod(0o751)
    (root / "big.bin").write_bytes(os.urandom(2_500_000))
    (root / "big.txt").write_bytes(b"some text\n" * 300_000)
    (root / "passwd").symlink_to("/etc/passwd")
    (root / "up").symlink_to("..")
    os.mkfifo(root / "pipe")
    store.snapshot(1)
    before = read_tree(root)
    store.restore(1, tmp_path / "copy")
    assert read_tree(tmp_path / "copy") == before
    assert Store(store.folder).find_problems() == []
    assert "pipe" not in store.state(1) and not (tmp_path / "copy" / "pipe").exists()
    assert store.read_content(1, "passwd/../none") == b""


def test_equal_content_is_stored_once_and_compressed_where_that_helps(store: Store, root: Path) -> None:
    (root / "a").write_bytes(b"text " * 10_000)
    (root / "b").write_bytes(b"text " * 10_000)
    (root / "noise").write_bytes(os.urandom(50_000))
    (root / "tiny").write_bytes(b"text " * 100)
    (root / "large").write_bytes(b"text " * 1_000_000)
    store.snapshot(1)
    sizes = {path.suffix: 0 for path in objects(store)}
    for path in objects(store):
        sizes[path.suffix] += path.stat().st_size
    assert len(objects(store)) == 4
    assert sizes[".zst"] < 5000 and sizes[""] == 50_500


def test_objects_are_copies_so_writing_in_place_does_not_change_history(store: Store, root: Path) -> None:
    (root / "a").write_text("old")
    store.snapshot(1)
    with (root / "a").open("r+") as file:
        file.write("new")
    store.snapshot(2)
    assert (store.read_content(1, "a"), store.read_content(2, "a")) == (b"old", b"new")
    assert all(path.stat().st_nlink == 1 for path in objects(store))


def count_indistinguishable_writes(store: Store, root: Path) -> int:
    """Write before and after each snapshot; count how often both writes have the same timestamps."""
    count = 0
    for step in range(0, 300, 2):
        fd = os.open(root / "a", os.O_CREAT | os.O_WRONLY)
        os.write(fd, b"one")
        before = os.fstat(fd)
        store.snapshot(step)
        os.pwrite(fd, b"two", 0)
        after = os.fstat(fd)
        os.close(fd)
        count += (before.st_mtime_ns, before.st_ctime_ns) == (after.st_mtime_ns, after.st_ctime_ns)
        assert store.snapshot(step + 1) == ChangedPaths(modified=("a",))
    return count


def test_two_writes_of_equal_length_within_one_tick_are_both_recorded(store: Store, root: Path) -> None:
    count_indistinguishable_writes(store, root)


@is_root
def test_both_writes_are_recorded_where_file_timestamps_are_coarse(tmp_path: Path) -> None:
    # Linux 6.13 gives most disks fine timestamps, but not ramfs, as long as nothing else is written.
    if subprocess.run(["mount", "-t", "ramfs", "none", str(tmp_path)], capture_output=True).returncode:
        pytest.skip("cannot mount here")
    try:
        (tmp_path / "workspace").mkdir()
        store = Store(tmp_path / "snapshots", tmp_path / "workspace")
        assert count_indistinguishable_writes(store, tmp_path / "workspace") > 0
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


def test_unchanged_files_are_not_read_again(store: Store, root: Path) -> None:
    with (root / "large").open("wb") as file:
        file.truncate(300_000_000)
    wait_until_trusted(root)
    store.snapshot(1)
    before = bytes_read()
    assert not store.snapshot(2)
    assert bytes_read() - before < 100_000


def test_a_touched_file_is_not_a_change_and_is_read_only_once_more(store: Store, root: Path) -> None:
    (root / "a").write_text("x")
    store.snapshot(1)
    os.utime(root / "a", ns=(0, 0))
    wait_until_trusted(root)
    assert not store.snapshot(2) and len(lines(store)) == 1
    (store.folder / "objects").rename(store.folder / "moved")
    assert not store.snapshot(3)
    assert not (store.folder / "objects").exists()


def test_a_change_of_the_mode_alone_is_a_change(store: Store, root: Path) -> None:
    (root / "a").write_text("x")
    (root / "b").mkdir()
    store.snapshot(1)
    (root / "a").chmod(0o700)
    (root / "b").chmod(0o700)
    assert store.snapshot(2) == ChangedPaths(modified=("a", "b"))
    (root / "a").chmod(0o4700)
    assert not store.snapshot(3), "a set-uid bit is never recorded"


def test_a_workspace_above_its_limits_is_rejected_before_anything_is_read(store: Store, root: Path) -> None:
    with (root / "giant").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(WorkspaceTooLarge, match=r"has 1.1 TB, which is more than 8.0 GB"):
        store.snapshot(1, max_bytes=8 * 10**9)
    (root / "giant").unlink()
    for n in range(11):
        (root / str(n)).touch()
    with pytest.raises(WorkspaceTooLarge, match="more than 10 files"):
        store.snapshot(1, max_files=10)
    assert objects(store) == [] and store.state(1) == {}
    assert len(store.snapshot(1, max_bytes=0, max_files=11).added) == 11


def create_nested_folders(root: Path, levels: int) -> None:
    script = f"import os\nfor _ in range({levels}): os.mkdir('d'); os.chdir('d')\nopen('end', 'w').close()"
    subprocess.run([sys.executable, "-c", script], cwd=root, check=True)


def test_a_tree_that_is_too_deep_is_rejected_and_can_still_be_removed(store: Store, root: Path) -> None:
    (root / "kept").write_text("x")
    store.snapshot(1)
    create_nested_folders(root, 3000)
    with pytest.raises(WorkspaceTooLarge, match="nested deeper than 64"):
        store.snapshot(2)
    store.restore(1, root)
    assert [path.name for path in root.iterdir()] == ["kept"]


def test_the_longest_accepted_paths_are_restored(store: Store, root: Path, tmp_path: Path) -> None:
    script = (
        "import os\nfor _ in range(62): os.mkdir('n' * 200); os.chdir('n' * 200)\nopen('end', 'w').close()"
    )
    subprocess.run([sys.executable, "-c", script], cwd=root, check=True)
    assert len(store.snapshot(1).added) == 63
    store.restore(1, tmp_path / "copy")
    again = Store(tmp_path / "again", tmp_path / "copy")
    again.snapshot(1)
    assert again.tree_hash(1) == store.tree_hash(1)
    for folder in (root, tmp_path / "copy"):
        Store(tmp_path / "nothing", folder).restore(0, folder)


def test_restore_makes_the_folder_exact(store: Store, root: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("x")
    (root / "folder").mkdir()
    (root / "folder" / "file").write_text("1")
    (root / "file").write_text("2")
    (root / "link").symlink_to("file")
    store.snapshot(1)
    before = read_tree(root)
    shutil.rmtree(root / "folder")
    (root / "folder").symlink_to(tmp_path / "precious")
    (root / "file").unlink()
    (root / "file").mkdir()
    (root / "file" / "x").symlink_to(tmp_path / "precious")
    (root / "link").unlink()
    (root / "link").write_text("no link")
    os.mkfifo(root / "pipe")
    (root / "locked" / "in").mkdir(parents=True)
    (root / "locked").chmod(0)
    store.snapshot(2)
    store.restore(1, root)
    assert read_tree(root) == before
    assert (tmp_path / "precious" / "file").read_text() == "x"
    assert store.snapshot(3), "the last recorded state is another one, so restoring is a change"
    assert store.tree_hash(3) == store.tree_hash(1) != store.tree_hash(2)


def test_restore_keeps_unchanged_files_and_the_next_snapshot_is_empty(store: Store, root: Path) -> None:
    for name in "abc":
        (root / name).write_text(name)
    store.snapshot(1)
    inodes = {name: (root / name).stat().st_ino for name in "abc"}
    (root / "b").write_text("changed")
    wait_until_trusted(root)
    store.snapshot(2)
    store.rewind(1)
    store.restore(1, root)
    assert {name for name in "abc" if (root / name).stat().st_ino == inodes[name]} >= {"a", "c"}
    assert (root / "b").read_text() == "b"
    assert not store.snapshot(2)
    fresh = Store(store.folder, root)
    fresh.restore(1, root)
    assert not fresh.snapshot(2)


def test_restore_does_not_write_through_a_hard_link(store: Store, root: Path) -> None:
    (root / "a").write_text("one")
    (root / "b").write_text("two")
    store.snapshot(1)
    (root / "a").unlink()
    (root / "a").hardlink_to(root / "b")
    store.restore(1, root)
    assert ((root / "a").read_text(), (root / "b").read_text()) == ("one", "two")


@is_root
def test_restored_files_belong_to_the_owner(store: Store, root: Path, tmp_path: Path) -> None:
    (root / "d").mkdir()
    (root / "d" / "f").write_text("x")
    (root / "l").symlink_to(tmp_path / "snapshots")
    store.snapshot(1)
    store.restore(1, root, owner=12345)
    assert {(p.lstat().st_uid, p.lstat().st_gid) for p in [root, *root.rglob("*")]} == {(12345, 12345)}
    assert store.folder.stat().st_uid == os.geteuid()
    assert not store.snapshot(2)


def test_rewinding_removes_later_steps_only(store: Store, root: Path) -> None:
    for step in range(5):
        (root / "a").write_text(str(step))
        store.snapshot(step)
    with pytest.raises(Fault, match="cannot record step 2"):
        store.snapshot(2)
    store.rewind(2)
    assert [line["step"] for line in lines(store)] == [0, 1, 2]
    store.restore(2, root)
    assert (root / "a").read_text() == "2"
    (root / "a").write_text("other")
    assert store.snapshot(3) == ChangedPaths(modified=("a",))
    assert Store(store.folder).read_content(3, "a") == b"other"
    store.rewind(-1)
    assert store.state(9) == {}


def test_external_contents_are_not_stored_but_found(root: Path, tmp_path: Path) -> None:
    data = os.urandom(2_000_000)
    (tmp_path / "train.csv").write_bytes(data)
    (root / "train.csv").write_bytes(data)
    external = {blake3(data).hexdigest(): tmp_path / "train.csv"}
    store = Store(tmp_path / "snapshots", root, external)
    store.snapshot(3)
    assert objects(store) == [] and store.find_problems() == []
    store.restore(3, tmp_path / "copy")
    assert (tmp_path / "copy" / "train.csv").read_bytes() == data
    with pytest.raises(Fault, match=r"train.csv at step 3: its stored content \w+ is missing"):
        Store(store.folder).restore(3, tmp_path / "other")
    (tmp_path / "train.csv").write_bytes(data[1:] + b"x")
    with pytest.raises(Fault, match="damaged"):
        store.restore(3, tmp_path / "third")


@pytest.mark.parametrize("size", [10, 50_000, 3_000_000])
@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped", "appended"])
def test_a_damaged_object_is_a_fault_and_is_found_by_the_check(
    store: Store, root: Path, tmp_path: Path, size: int, damage: str
) -> None:
    (root / "a").write_bytes(bytes(range(10)) * (size // 10))
    store.snapshot(1)
    (path,) = objects(store)
    data = path.read_bytes()
    match damage:
        case "missing":
            path.unlink()
        case "truncated":
            path.write_bytes(data[:-1])
        case "flipped":
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case "appended":
            path.write_bytes(data + data)
    if not (damage == "appended" and path.suffix):  # data after a compressed frame is never read
        assert len(store.find_problems()) == 1 and "a at step 1" in store.find_problems()[0]
        with pytest.raises(Fault, match="a at step 1"):
            store.read_content(1, "a")
        with pytest.raises(Fault, match="a at step 1"):
            store.export(1, "a", tmp_path / "out")
        with pytest.raises(Fault, match="a at step 1"):
            store.restore(1, tmp_path / "copy")
        assert not (tmp_path / "out").exists() and list((tmp_path / "copy").iterdir()) == []


def test_one_file_of_one_step_can_be_read_or_exported(store: Store, root: Path, tmp_path: Path) -> None:
    (root / "sub").mkdir()
    (root / "sub" / "a").write_text("text")
    (root / "link").symlink_to("/etc/passwd")
    store.snapshot(1)
    store.export(1, "/workspace/sub/a", tmp_path / "out")
    assert (tmp_path / "out").read_text() == "text"
    for path, message in (
        ("none", "none does not exist at step 1"),
        ("sub", "sub is a folder at step 1"),
        ("link", "link is a link at step 1"),
    ):
        with pytest.raises(ActionError, match=message):
            store.export(1, path, tmp_path / "out")
    with pytest.raises(ActionError, match=r"sub/a is too big \(4 B\)"):
        store.read_content(1, "sub/a", max_bytes=3)


def test_a_diff_shows_text_and_summarizes_the_rest(store: Store, root: Path) -> None:
    (root / "train.py").write_text("a\nb\nc\n")
    (root / "model.bin").write_bytes(b"\0" * 1000)
    (root / "gone.txt").write_text("bye")
    store.snapshot(1)
    (root / "train.py").write_text("a\nB\nc\n")
    (root / "model.bin").write_bytes(b"\0" * 2000)
    (root / "gone.txt").unlink()
    (root / "huge.txt").write_text("x\n" * 200_000)
    (root / "link").symlink_to("x")
    store.snapshot(2)
    assert store.diff(1, 2) == (
        "--- a/gone.txt\n+++ b/gone.txt\n@@ -1 +0,0 @@\n-bye\n\\ No newline at end of file\n"
        "huge.txt: nothing -> file, 400.0 kB, mode 644\n"
        "link: nothing -> link to x\n"
        "model.bin: file, 1.0 kB, mode 644 -> file, 2.0 kB, mode 644\n"
        "--- a/train.py\n+++ b/train.py\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"
    )
    assert store.diff(2, 2) == ""
    assert store.diff(1, 2, max_chars=60).endswith("... (cut off)\n")


def test_the_diffs_of_all_steps_equal_those_between_neighbours(store: Store, root: Path) -> None:
    (root / "train.py").write_text("a\nb\n")
    store.snapshot(0)
    (root / "train.py").write_text("a\nB\n")
    (root / "new.txt").write_text("new\n")
    store.snapshot(1)
    (root / "new.txt").unlink()
    (root / "link").symlink_to("x")
    store.snapshot(3)
    assert dict(store.iter_step_diffs()) == {1: store.diff(0, 1), 3: store.diff(1, 3)}
    assert dict(store.iter_step_diffs(after=1)) == {3: store.diff(1, 3)}
    assert store.steps_with_changes() == {0, 1, 3}


def test_missing_content_is_only_summarized_in_a_diff(tmp_path: Path, root: Path) -> None:
    (root / "data.csv").write_text("1\n")
    original = tmp_path / "data.csv"
    shutil.copy(root / "data.csv", original)
    store = Store(tmp_path / "snapshots", root, {blake3(b"1\n").hexdigest(): original})
    store.snapshot(0)
    (root / "data.csv").write_text("22\n")
    store.snapshot(1)
    reader = Store(tmp_path / "snapshots")
    assert dict(reader.iter_step_diffs()) == {1: "data.csv: file, 2 B, mode 644 -> file, 3 B, mode 644\n"}
    with pytest.raises(Fault):
        reader.diff(0, 1)


def test_a_diff_of_adversarial_files_terminates(store: Store, root: Path) -> None:
    (root / "a").write_text("".join(f"{n % 101}\n" for n in range(1999)))
    store.snapshot(1)
    (root / "a").write_text("".join(f"{n * 7 % 101}\n" for n in range(1999)))
    store.snapshot(2)
    assert store.diff(1, 2)


def test_the_tree_hash_depends_on_the_state_and_not_on_its_history(
    store: Store, root: Path, tmp_path: Path
) -> None:
    (root / "a").write_text("1")
    store.snapshot(1)
    (root / "b").write_text("2")
    store.snapshot(2)
    other = Store(tmp_path / "other", root)
    other.snapshot(1)
    assert other.tree_hash(1) == store.tree_hash(2) != store.tree_hash(1)


@pytest.mark.parametrize(
    "incomplete", [b'{"step": 9, "chan', b'{"step": 9}\n', b"\xff\xfe\n", b'{"step": 9}']
)
def test_an_incomplete_last_line_is_ignored_and_removed_by_the_next_writer(
    store: Store, root: Path, incomplete: bytes
) -> None:
    (root / "a").write_text("1")
    store.snapshot(1)
    manifest = store.folder / "manifest.jsonl"
    whole = manifest.read_bytes()
    manifest.write_bytes(whole + incomplete)
    assert list(Store(store.folder).state(9)) == ["a"]
    assert manifest.read_bytes() == whole + incomplete, "a reader changes nothing"
    (root / "b").write_text("2")
    assert Store(store.folder, root).snapshot(2) == ChangedPaths(added=("b",))
    assert manifest.read_bytes().startswith(whole + b'{"step":2')


@pytest.mark.parametrize(
    "changed",
    [
        {"../out": {"kind": "folder", "mode": 0o755}},
        {"/etc/x": {"kind": "folder", "mode": 0o755}},
        {"a/../../b": {"kind": "folder", "mode": 0o755}},
        {"a": {"kind": "file", "mode": 0o4755, "hash": "0" * 64, "size": 1}},
        {"a": {"kind": "file", "mode": 0o755, "hash": "../../secret", "size": 1}},
        {"a": {"kind": "device", "mode": 0o755}},
        {"a": {"kind": "folder", "mode": "x"}},
    ],
)
def test_a_forged_manifest_that_leads_outside_is_damaged(tmp_path: Path, changed: dict[str, object]) -> None:
    bad = json.dumps({"step": 1, "changed": changed, "removed": []})
    good = json.dumps({"step": 2, "changed": {}, "removed": []})
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "manifest.jsonl").write_text(f"{bad}\n{good}\n")
    with pytest.raises(Fault, match="line 1 is damaged"):
        Store(tmp_path / "s").restore(2, tmp_path / "copy")
    assert "line 1 is damaged" in Store(tmp_path / "s").find_problems()[0]


def test_a_forged_file_below_a_link_is_not_written_through_it(
    tmp_path: Path, store: Store, root: Path
) -> None:
    (root / "f").write_text("x")
    store.snapshot(1)
    entry = lines(store)[0]["changed"]["f"]  # type: ignore[index]
    changed = {"l": {"kind": "link", "target": str(tmp_path)}, "l/made": entry}
    (store.folder / "manifest.jsonl").write_text(
        json.dumps({"step": 1, "changed": changed, "removed": []}) + "\n"
    )
    with pytest.raises(Fault):
        Store(store.folder).restore(1, tmp_path / "copy")
    assert not (tmp_path / "made").exists()


ENDLESS_WRITER = """
import sys
from pathlib import Path
from mlagentbench.workspace.store import Store
folder = Path(sys.argv[1])
store, step = Store(folder / "snapshots", folder / "workspace"), int(sys.argv[2])
print("ready", flush=True)
while True:
    for n in range(20):
        (folder / "workspace" / f"{n}").write_text(f"{step} {n} " * (1 + 5000 * (n % 3)))
    store.snapshot(step)
    print(step, flush=True)
    step += 1
"""


def test_a_writer_killed_at_any_moment_leaves_a_complete_history(
    store: Store, root: Path, tmp_path: Path
) -> None:
    rng, last = random.Random(1), 0
    for number in range(8):
        environment = {**os.environ, "PYTHONPATH": str(SOURCE_ROOT)}
        command = [sys.executable, "-c", ENDLESS_WRITER, str(tmp_path), str(last + 1)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as writer:
            assert writer.stdout and writer.stdout.readline() == b"ready\n"
            if number % 2:  # on busy cores, the first snapshot may take longer than the writer lives
                assert writer.stdout.readline() == b"%d\n" % (last + 1)
            deadline = time.monotonic() + rng.random() * 0.1
            while time.monotonic() < deadline:
                pass
            writer.send_signal(signal.SIGKILL)
        reopened = Store(store.folder, root)
        assert reopened.find_problems() == []
        for path in objects(store):
            if not path.suffix:
                assert blake3(path.read_bytes()).hexdigest() == path.parent.name + path.name
        last = max((int(str(line["step"])) for line in complete_lines(store)), default=last)
        reopened.restore(last, root)
        assert not reopened.snapshot(last) and list((store.folder / "partial").iterdir()) == []
    assert last >= 4


def complete_lines(store: Store) -> list[dict[str, object]]:
    path = store.folder / "manifest.jsonl"
    data = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


@is_root
@pytest.mark.parametrize("files", [1, 3000])
def test_a_full_disk_is_a_fault_and_keeps_the_earlier_history(root: Path, tmp_path: Path, files: int) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    # One big file does not fit as an object; 3,000 names of one content do not fit as a line.
    size = "size=1m" if files == 1 else "size=400k"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "none", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("cannot mount here")
    try:
        store = Store(disk / "snapshots", root)
        (root / "first").write_text("x")
        store.snapshot(1)
        for n in range(files):
            (root / ("n" * 100 + str(n))).write_bytes(os.urandom(2_000_000) if files == 1 else b"")
        before = (store.folder / "manifest.jsonl").read_bytes()
        for _ in range(2):
            with pytest.raises(Fault, match="disk full"):
                store.snapshot(2)
        assert (store.folder / "manifest.jsonl").read_bytes() == before
        assert list((store.folder / "partial").iterdir()) == [] and store.find_problems() == []
        subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
        assert len(store.snapshot(2).added) == files
    finally:
        subprocess.run(["umount", str(disk)], check=True)


LOCKED_FILES_SCRIPT = """
import os, sys
from pathlib import Path
from mlagentbench.workspace.files import Workspace
from mlagentbench.workspace.store import Store
if os.geteuid() == 0:  # only now: other users may not be able to start this Python
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
folder = Path(sys.argv[1])
root = folder / "workspace"
(root / "shut" / "in" / "deep").mkdir(parents=True)
(root / "shut" / "in" / "file").write_text("hidden")
(root / "file").write_text("locked")
(root / "listed").mkdir()
(root / "listed" / "x").write_text("x")
locks = {"file": 0, "shut/in/file": 0o200, "shut/in/deep": 0o100, "shut/in": 0, "shut": 0o555}
locks |= {"listed": 0o400, ".": 0}
for name, mode in locks.items():
    (root / name).chmod(mode)
assert Workspace(root, ("shut/in/file",)).find_read_only_paths() == ["shut/in/file"]
store = Store(folder / "snapshots", root)
added = store.snapshot(1).added
assert added == ("file", "listed", "listed/x", "shut", "shut/in", "shut/in/deep", "shut/in/file"), added
assert root.stat().st_mode & 0o777 == 0, "its mode was not restored"
assert not store.snapshot(2)
modes = {name: entry.mode for name, entry in store.state(1).items()}
assert all(modes[name] == mode for name, mode in locks.items() if name != ".")
assert store.read_content(1, "shut/in/file") == b"hidden"
for target in (folder / "copy", folder / "copy", root):
    store.restore(1, target)
    again = Store(folder / "again", target)
    again.snapshot(1)
    assert again.tree_hash(1) == store.tree_hash(1)
store.restore(0, root)
store.restore(0, folder / "copy")
assert list(root.iterdir()) == list((folder / "copy").iterdir()) == []
"""


def test_locked_files_are_recorded_restored_and_removed_without_root_too() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        (Path(temporary) / "workspace").mkdir()
        if os.geteuid() == 0:
            for path in (Path(temporary), Path(temporary) / "workspace"):
                os.chown(path, 65534, 65534)
        environment = {**os.environ, "PYTHONPATH": str(SOURCE_ROOT)}
        command = [sys.executable, "-c", LOCKED_FILES_SCRIPT, temporary]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


NAMES = st.sampled_from(["a", "b", "c d", "é", os.fsdecode(b"\xff"), "n\nl"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), PATHS, st.binary(max_size=8)),
        st.tuples(st.just("mode"), PATHS, st.sampled_from([0o600, 0o755, 0o700])),
        st.tuples(st.just("folder"), PATHS, st.none()),
        st.tuples(st.just("link"), PATHS, st.sampled_from(["a", "..", "/etc/passwd"])),
        st.tuples(st.just("remove"), PATHS, st.none()),
    ),
    max_size=8,
)


def apply_operation(root: Path, operation: str, path: str, argument: object) -> None:
    target = root / path
    if any(parent.is_symlink() for parent in target.parents if parent != root):
        return
    try:
        match operation:
            case "write" if not target.is_symlink():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(argument)  # type: ignore[arg-type]
            case "mode" if not target.is_symlink():
                # Only root can look into a folder without the permission to enter it.
                owner_access = 0o700 if target.is_dir() and os.geteuid() != 0 else 0
                target.chmod(argument | owner_access)  # type: ignore[operator]
            case "folder":
                target.mkdir(parents=True, exist_ok=True)
            case "link":
                target.symlink_to(argument)  # type: ignore[arg-type]
            case "remove":
                shutil.rmtree(target) if target.is_dir() and not target.is_symlink() else target.unlink()
    except OSError:
        pass


@settings(max_examples=60, deadline=None)
@given(st.lists(OPERATIONS, min_size=1, max_size=4), st.data())
def test_every_step_of_any_history_can_be_restored(
    history: list[list[tuple[str, str, object]]], data: st.DataObject
):
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary) / "workspace"
        root.mkdir()
        store, steps = Store(Path(temporary) / "snapshots", root), []
        for step, operations in enumerate(history):
            for operation in operations:
                apply_operation(root, *operation)
            change = store.snapshot(step)
            steps.append(read_tree(root))
            assert bool(change) == (steps[-1] != (steps[-2] if step else {}))
        for step in data.draw(st.permutations(range(len(steps)))):
            store.restore(step, root)
            assert read_tree(root) == steps[step]
            assert {path: entry.kind for path, entry in store.state(step).items()} == {
                path: kind for path, (kind, _, _) in steps[step].items()
            }
        store.snapshot(len(steps))
        assert store.tree_hash(len(steps)) == store.tree_hash(step)
        assert Store(store.folder).find_problems() == []


def test_a_thousand_small_changes_are_a_thousand_lines_and_objects(store: Store, root: Path) -> None:
    for step in range(1000):
        (root / "train.py").write_text(f"print({step})")
        store.snapshot(step)
    assert len(lines(store)) == len(objects(store)) == 1000
