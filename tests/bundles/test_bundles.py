"""Bundles: complete, reproducible, verifiable on another machine, and treated as untrusted input."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import pytest
from blake3 import blake3

from mlagentbench.analysis.runs import read_runs
from mlagentbench.bundles.manifest import MANIFEST_NAME
from mlagentbench.bundles.read import open_run_or_bundle, open_runs_or_bundles, unpack_bundle
from mlagentbench.bundles.write import export_run
from mlagentbench.errors import UsageError
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup
from mlagentbench.runner.start import start_run
from mlagentbench.system.cache import cache_dir

Files = dict[str, bytes]
PAUSED_EXPORT = """
import sys
from pathlib import Path
from mlagentbench.bundles.write import export_run
from mlagentbench.runner.folder import RunFolder

def pause_when_reading(event, args):
    if event == "open" and str(args[0]).endswith("big.txt") and list(target.parent.glob("x.zip.*part")):
        open(sys.argv[3]).read()

target = Path(sys.argv[2])
sys.addaudithook(pause_when_reading)
export_run(RunFolder(Path(sys.argv[1])), target)
"""


@pytest.fixture(scope="module")
def recorded(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A finished run, and its bundle."""
    folder = tmp_path_factory.mktemp("recorded")
    start_run(setup, "tuner", folder / "run", limits={"steps": 7})
    export_run(RunFolder(folder / "run"), folder / "run.zip")
    return folder / "run", folder / "run.zip"


@pytest.fixture
def run(recorded: tuple[Path, Path], tmp_path: Path) -> RunFolder:
    """A finished run."""
    shutil.copytree(recorded[0], tmp_path / "run")
    return RunFolder(tmp_path / "run")


@pytest.fixture
def bundle(recorded: tuple[Path, Path], tmp_path: Path) -> Path:
    """The bundle of the same run."""
    return Path(shutil.copyfile(recorded[1], tmp_path / "run.zip"))


@pytest.fixture
def forged(bundle: Path, tmp_path: Path) -> Callable[..., Path]:
    """The bundle with some files replaced; its manifest is updated to match unless it is replaced too."""

    def forge(
        files: Files,
        compression: int = ZIP_STORED,
        duplicate: str = "",
        link: str = "",
        update_manifest: bool = True,
    ) -> Path:
        with ZipFile(bundle) as archive:
            contents = {name: archive.read(name) for name in archive.namelist()}
        contents |= files
        if update_manifest and MANIFEST_NAME not in files:
            manifest = json.loads(contents.pop(MANIFEST_NAME))
            manifest["files"] = {
                name: [blake3(data).hexdigest(), len(data)] for name, data in contents.items()
            }
            contents[MANIFEST_NAME] = json.dumps(manifest).encode()
        target = tmp_path / "forged.zip"
        with ZipFile(target, "w", compression) as forgery:
            for name, data in contents.items():
                entry = zipfile.ZipInfo(name)
                entry.compress_type = compression
                entry.external_attr = (0o120777 if name == link else 0o100644) << 16
                forgery.writestr(entry, data)
            if duplicate:
                with pytest.warns(UserWarning, match="Duplicate"):
                    forgery.writestr(duplicate, b"")
        return target

    return forge


def test_a_bundle_contains_the_record_the_environment_and_all_file_contents(run, bundle, setup):
    with ZipFile(bundle) as archive:
        names = set(archive.namelist())
        manifest = json.loads(archive.read(MANIFEST_NAME))
    assert names >= {MANIFEST_NAME, "run.json", "result.json", "trace.jsonl", "snapshots/manifest.jsonl"}
    assert not any(name.startswith("workspace") or "lock" in name for name in names)
    assert manifest["packages"]["pydantic"]
    assert any(line.startswith("numpy==") for line in manifest["runtime"])
    public = {name for name, _ in setup.data.files.values()}
    stored = {"".join(name.split("/")[-2:]).removesuffix(".zst") for name in names if "objects" in name}
    assert public <= stored
    assert not any((run.path / "snapshots" / "objects" / name[:2] / name[2:]).exists() for name in public)


def test_a_bundle_contains_no_answers(bundle, setup):
    with ZipFile(bundle) as archive:
        everything = [archive.read(name) for name in archive.namelist()]
    for path in setup.data.private.iterdir():
        assert not any(path.read_bytes() in data for data in everything)


def test_exporting_the_same_run_gives_the_same_bytes(run, bundle, tmp_path):
    copy = tmp_path / "elsewhere" / run.path.name
    shutil.copytree(run.path, copy)
    os.utime(copy / "trace.jsonl", (0, 0))
    export_run(RunFolder(copy), tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == bundle.read_bytes()


def test_a_machine_without_the_prepared_task_can_verify_a_bundle(
    bundle, run, tmp_path, cli, toy, monkeypatch
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "runtimes").symlink_to(cache_dir() / "runtimes")  # building it takes minutes
    shutil.rmtree(run.path)
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(elsewhere))
    completed = cli("verify", bundle, "--task", toy, "--json")
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert all(check["holds"] for check in json.loads(completed.stdout))
    assert "the agent takes the same steps when the record is replayed" in completed.stdout
    assert (elsewhere / "data" / "toy").is_dir()
    assert not any((elsewhere / "temporary").iterdir())


def test_a_bundle_can_be_shown_on_a_machine_where_nothing_is_prepared(bundle, tmp_path, cli, monkeypatch):
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(tmp_path / "elsewhere"))
    completed = cli("show", bundle)
    assert completed.returncode == 0, completed.stderr
    assert f"show {bundle} --step N" in completed.stdout
    assert "temporary" not in completed.stdout
    assert "+id,value" in cli("show", bundle, "--diff").stdout


def test_bundles_and_run_folders_can_be_read_together(bundle, run):
    run.write_file("run.json", run.spec.replace(id="another").model_dump_json())
    run.write_file("result.json", run.result.replace(trace="another").model_dump_json(exclude={"folder"}))
    with open_runs_or_bundles([bundle, run.path]) as folders:
        runs = read_runs(folders)
        assert [run.name for run in runs] == ["run", "run"]
        assert runs[0].steps == runs[1].steps
    assert not folders[0].exists()
    assert run.path.exists()


def test_a_run_and_its_own_bundle_count_as_one_run(bundle, run, capsys):
    with open_runs_or_bundles([run.path, bundle]) as folders:
        assert [found.folder.path for found in read_runs(folders)] == [run.path]
        assert capsys.readouterr().err == f"{folders[1]} is a copy of {run.path}; counted once\n"


def test_a_bundle_without_data_only_references_it(run, tmp_path, setup):
    export_run(run, tmp_path / "small.zip", include_data=False)
    public = {f"{name[:2]}/{name[2:]}" for name, _ in setup.data.files.values()}
    with ZipFile(tmp_path / "small.zip") as archive:
        assert not any(name.removesuffix(".zst").endswith(tuple(public)) for name in archive.namelist())
        assert not json.loads(archive.read(MANIFEST_NAME))["data"]


def test_judgements_and_step_grades_are_exported(run, tmp_path):
    (run.path / "judged.json").write_text("{}")
    (run.path / "grades.jsonl").write_text("")
    manifest = export_run(run, tmp_path / "run.zip")
    assert manifest.files.keys() >= {"judged.json", "grades.jsonl"}


def test_exporting_an_unfinished_run_or_over_an_existing_file_is_refused(run, bundle):
    with pytest.raises(UsageError, match="already exists"):
        export_run(run, bundle)
    (run.path / "result.json").unlink()
    with pytest.raises(UsageError, match="not finished"):
        export_run(run, bundle.with_name("other.zip"))
    assert not bundle.with_name("other.zip").exists()


def test_of_two_concurrent_exports_to_one_file_the_slower_is_refused_and_changes_nothing(
    run, tmp_path, until
):
    target, big = tmp_path / "x.zip", run.path / "outputs" / "big.txt"
    os.mkfifo(tmp_path / "pipe")
    big.write_bytes(b"x" * (1 << 22))
    command = [sys.executable, "-c", PAUSED_EXPORT, run.path, target, tmp_path / "pipe"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as slow_export:
        pipe: list[int] = []

        def is_paused() -> bool:
            with suppress(OSError):  # the other export has not opened the pipe yet
                pipe.append(os.open(tmp_path / "pipe", os.O_WRONLY | os.O_NONBLOCK))
            return bool(pipe) or slow_export.poll() is not None

        until(is_paused)
        export_run(run, target)
        content = target.read_bytes()
        for descriptor in pipe:
            os.close(descriptor)
        stderr = slow_export.communicate()[1]
    assert slow_export.returncode != 0 and f"{target} already exists" in stderr
    assert target.read_bytes() == content and [path.name for path in tmp_path.glob("x.zip*")] == ["x.zip"]


def test_a_run_that_contains_an_api_key_of_this_machine_is_not_exported(run, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret-0123456789")
    with (run.path / "outputs" / "step-0002.txt").open("a") as file:
        file.write("Authorization: Bearer sk-very-secret-0123456789\n")
    with pytest.raises(UsageError, match=r"step-0002\.txt contains an API key"):
        export_run(run, tmp_path / "run.zip")
    assert list(tmp_path.glob("run.zip*")) == []


def test_links_in_a_run_folder_are_not_followed(run, tmp_path):
    (tmp_path / "secret").write_text("mine")
    (run.path / "crash.txt").symlink_to(tmp_path / "secret")
    assert "crash.txt" not in export_run(run, tmp_path / "run.zip").files


@pytest.mark.parametrize(
    "name",
    [
        "../evil.txt",
        "/etc/evil",
        "outputs/../../evil.txt",
        "workspace/train.py",
        "outputs/a\\b.txt",
        "stop",
        "evil.py",
    ],
)
def test_a_bundle_with_a_file_name_that_no_run_has_is_refused(forged, tmp_path, name):
    parent = tmp_path / "unpacked"
    with pytest.raises(UsageError, match="is not a file of a run"):
        unpack_bundle(forged({name: b"x"}), parent)
    assert not parent.exists()


def test_a_link_in_a_bundle_is_extracted_as_a_regular_file(forged, tmp_path):
    target = unpack_bundle(forged({"crash.txt": b"/etc/passwd"}, link="crash.txt"), tmp_path / "unpacked")
    assert (target / "crash.txt").read_text() == "/etc/passwd"
    assert not (target / "crash.txt").is_symlink()


def test_a_compressed_bundle_is_refused_because_it_may_be_a_zip_bomb(forged, tmp_path):
    with pytest.raises(UsageError, match="is compressed; bundles are uncompressed"):
        unpack_bundle(
            forged({"outputs/bomb.txt": b"0" * 10_000_000}, compression=ZIP_DEFLATED), tmp_path / "unpacked"
        )


def test_overlapping_entries_are_refused(forged, tmp_path):
    path = forged({"outputs/big.txt": b"0" * 1_000_000})
    with ZipFile(path, "a") as bundle:
        big = bundle.getinfo("outputs/big.txt")
        for number in range(3):  # all share the same million bytes
            alias = zipfile.ZipInfo(f"outputs/big-{number}.txt")
            alias.header_offset, alias.CRC = big.header_offset, big.CRC
            alias.file_size = alias.compress_size = big.file_size
            bundle.filelist.append(alias)
        bundle._didModify = True  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="larger than the file"):
        unpack_bundle(path, tmp_path / "unpacked")


def test_a_bundle_with_an_oversized_workspace_is_refused(forged, bundle, tmp_path):
    with ZipFile(bundle) as archive:
        lines = archive.read("snapshots/manifest.jsonl").splitlines()
    first = json.loads(lines[0])
    first["changed"]["train.py"]["size"] = 2**50
    manifest = b"\n".join([json.dumps(first).encode(), *lines[1:]]) + b"\n"
    with pytest.raises(UsageError, match="its workspace is larger than"):
        unpack_bundle(forged({"snapshots/manifest.jsonl": manifest}), tmp_path / "unpacked")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"update_manifest": False, "files": {"trace.jsonl": b"{}\n"}}, "the size of trace.jsonl differs"),
        ({"update_manifest": False, "files": {"outputs/more.txt": b""}}, "differ: outputs/more.txt"),
        ({"files": {MANIFEST_NAME: b"{}"}}, "MANIFEST.json: "),
        ({"files": {}, "duplicate": "run.json"}, "duplicate names"),
    ],
)
def test_a_bundle_that_does_not_match_its_manifest_is_refused(forged, tmp_path, change, reason):
    with pytest.raises(UsageError, match=reason):
        unpack_bundle(forged(**change), tmp_path / "unpacked")


def test_a_single_changed_byte_is_detected(bundle, tmp_path):
    with ZipFile(bundle) as archive:
        trace = archive.read("trace.jsonl")
    data = bundle.read_bytes()
    broken = tmp_path / "broken.zip"
    broken.write_bytes(data.replace(trace, trace.replace(b"measure", b"MEASURE", 1)))
    with pytest.raises(UsageError, match="not a valid bundle"):
        unpack_bundle(broken, tmp_path / "unpacked")


def test_verify_detects_a_forged_score_with_matching_hashes(forged, bundle, cli):
    with ZipFile(bundle) as archive:
        result = json.loads(archive.read("result.json"))
    path = forged({"result.json": json.dumps({**result, "score": 0.0}).encode()})
    completed = cli("verify", path)
    assert completed.returncode == 1
    assert "FAIL  result.json: score" in completed.stdout


def test_a_file_that_is_not_a_bundle_gives_a_one_line_error(cli, tmp_path):
    (tmp_path / "x.zip").write_text("hello")
    completed = cli("verify", tmp_path / "x.zip")
    assert (completed.returncode, completed.stderr.count("\n")) == (2, 1)
    assert "neither a run folder nor a bundle" in completed.stderr


def test_the_name_of_a_run_cannot_escape_the_target_folder(forged, bundle, tmp_path):
    with ZipFile(bundle) as archive:
        manifest = json.loads(archive.read(MANIFEST_NAME))
    parent = tmp_path / "deep" / "parent"
    forgery = forged({MANIFEST_NAME: json.dumps({**manifest, "run": "../../out"}).encode()})
    target = unpack_bundle(forgery, parent)
    assert target == parent / "run"


def test_a_run_folder_is_opened_in_place(run):
    with open_run_or_bundle(run.path) as folder:
        assert folder == run.path


def test_the_export_command_prints_what_it_wrote_and_how_to_verify_it(run, cli, tmp_path):
    completed = cli("export", run.path, cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert "verify run.zip" in completed.stdout
    assert (tmp_path / "run.zip").is_file()
    completed = cli("export", run.path, "-o", tmp_path / "mine.zip", "--without-data", "--json")
    assert json.loads(completed.stdout)["files"].keys() >= {"run.json"}
