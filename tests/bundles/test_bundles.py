"""A run as one file: whole, the same every time, verified elsewhere, and never believed."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import pytest
from blake3 import blake3

from mlagentbench.analysis.runs import read_runs
from mlagentbench.bundles.read import open_run_or_bundle, open_runs_or_bundles, unpack_bundle
from mlagentbench.bundles.write import MANIFEST_NAME, export_run
from mlagentbench.errors import UsageError
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup
from mlagentbench.runner.start import start_run
from mlagentbench.system.cache import cache_dir

Files = dict[str, bytes]
SLOWLY = """
import sys
from pathlib import Path
from mlagentbench.bundles.write import export
from mlagentbench.runner.folder import RunFolder

def hear(event, words):
    if event == "open" and str(words[0]).endswith("big.txt") and list(target.parent.glob("x.zip.*part")):
        open(sys.argv[3]).read()

target = Path(sys.argv[2])
sys.addaudithook(hear)
export(RunFolder(Path(sys.argv[1])), target)
"""


@pytest.fixture(scope="module")
def recorded(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A finished run, and the same as one file."""
    place = tmp_path_factory.mktemp("recorded")
    start_run(setup, "tuner", place / "run", limits={"steps": 7})
    export_run(RunFolder(place / "run"), place / "run.zip")
    return place / "run", place / "run.zip"


@pytest.fixture
def run(recorded: tuple[Path, Path], tmp_path: Path) -> RunFolder:
    """A finished run."""
    shutil.copytree(recorded[0], tmp_path / "run")
    return RunFolder(tmp_path / "run")


@pytest.fixture
def bundle(recorded: tuple[Path, Path], tmp_path: Path) -> Path:
    """The same as one file."""
    return Path(shutil.copyfile(recorded[1], tmp_path / "run.zip"))


@pytest.fixture
def forged(bundle: Path, tmp_path: Path) -> Callable[..., Path]:
    """The bundle with some files replaced, whose list of contents is made to fit unless it is replaced too."""

    def forge(
        files: Files, packed: int = ZIP_STORED, twice: str = "", link: str = "", fitting: bool = True
    ) -> Path:
        with ZipFile(bundle) as whole:
            held = {name: whole.read(name) for name in whole.namelist()}
        held |= files
        if fitting and MANIFEST_NAME not in files:
            contents = json.loads(held.pop(MANIFEST_NAME))
            contents["files"] = {name: [blake3(data).hexdigest(), len(data)] for name, data in held.items()}
            held[MANIFEST_NAME] = json.dumps(contents).encode()
        target = tmp_path / "forged.zip"
        with ZipFile(target, "w", packed) as forgery:
            for name, data in held.items():
                entry = zipfile.ZipInfo(name)
                entry.compress_type, entry.external_attr = (
                    packed,
                    (0o120777 if name == link else 0o100644) << 16,
                )
                forgery.writestr(entry, data)
            if twice:
                with pytest.warns(UserWarning, match="Duplicate"):
                    forgery.writestr(twice, b"")
        return target

    return forge


def test_a_bundle_holds_the_record_the_environment_and_every_content(run, bundle, setup):
    with ZipFile(bundle) as whole:
        names = set(whole.namelist())
        contents = json.loads(whole.read(MANIFEST_NAME))
    assert names >= {MANIFEST_NAME, "run.json", "result.json", "trace.jsonl", "snapshots/manifest.jsonl"}
    assert not any(name.startswith("workspace") or "lock" in name for name in names)
    assert contents["packages"]["pydantic"]
    assert any(line.startswith("numpy==") for line in contents["runtime"])
    public = {name for name, _ in setup.data.files.values()}
    held = {"".join(name.split("/")[-2:]).removesuffix(".zst") for name in names if "objects" in name}
    assert public <= held
    assert not any((run.path / "snapshots" / "objects" / name[:2] / name[2:]).exists() for name in public)


def test_no_answer_is_in_a_bundle(bundle, setup):
    with ZipFile(bundle) as whole:
        everything = [whole.read(name) for name in whole.namelist()]
    for path in setup.data.private.iterdir():
        assert not any(path.read_bytes() in data for data in everything)


def test_the_same_run_makes_the_same_bytes(run, bundle, tmp_path):
    copy = tmp_path / "elsewhere" / run.path.name
    shutil.copytree(run.path, copy)
    os.utime(copy / "trace.jsonl", (0, 0))
    export_run(RunFolder(copy), tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == bundle.read_bytes()


def test_a_machine_that_never_saw_the_task_verifies_a_bundle(bundle, run, tmp_path, cli, toy):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "runtimes").symlink_to(cache_dir() / "runtimes")  # which takes minutes to build
    shutil.rmtree(run.path)
    there = {**os.environ, "MLAGENTBENCH_HOME": str(elsewhere)}
    told = cli("verify", bundle, "--task", toy, "--json", env=there)
    assert told.returncode == 0, told.stdout + told.stderr
    assert all(check["holds"] for check in json.loads(told.stdout))
    assert "the agent, given the recorded replies" in told.stdout
    assert (elsewhere / "data" / "toy").is_dir()
    assert not any((elsewhere / "temporary").iterdir())


def test_a_bundle_can_be_shown_step_by_step_where_nothing_is_prepared(bundle, tmp_path, cli):
    there = {**os.environ, "MLAGENTBENCH_HOME": str(tmp_path / "elsewhere")}
    told = cli("show", bundle, env=there)
    assert told.returncode == 0, told.stderr
    assert f"show {bundle} --step N" in told.stdout
    assert "temporary" not in told.stdout
    assert "+id,value" in cli("show", bundle, "--diff", env=there).stdout


def test_reports_read_bundles_beside_folders(bundle, run):
    run.keep("run.json", run.spec.but(id="another").model_dump_json())
    run.keep("result.json", run.result.but(trace="another").model_dump_json(exclude={"folder"}))
    with open_runs_or_bundles([bundle, run.path]) as places:
        runs = read_runs(places)
        assert [each.name for each in runs] == ["run", "run"]
        assert runs[0].steps == runs[1].steps
    assert not places[0].exists()
    assert run.path.exists()


def test_a_bundle_beside_the_run_that_it_holds_is_no_second_run(bundle, run, capsys):
    with open_runs_or_bundles([run.path, bundle]) as places:
        assert [each.folder.path for each in read_runs(places)] == [run.path]
        assert capsys.readouterr().err == f"{places[1]} is {run.path} again: counted once\n"


def test_without_data_a_bundle_refers_to_it(run, tmp_path, setup):
    export_run(run, tmp_path / "small.zip", include_data=False)
    public = {f"{name[:2]}/{name[2:]}" for name, _ in setup.data.files.values()}
    with ZipFile(tmp_path / "small.zip") as whole:
        assert not any(name.removesuffix(".zst").endswith(tuple(public)) for name in whole.namelist())
        assert not json.loads(whole.read(MANIFEST_NAME))["data"]


def test_what_was_judged_and_graded_goes_along(run, tmp_path):
    (run.path / "judged.json").write_text("{}")
    (run.path / "grades.jsonl").write_text("")
    contents = export_run(run, tmp_path / "run.zip")
    assert contents.files.keys() >= {"judged.json", "grades.jsonl"}


def test_an_unfinished_run_and_a_file_that_is_there_are_refused(run, bundle):
    with pytest.raises(UsageError, match="is there already"):
        export_run(run, bundle)
    (run.path / "result.json").unlink()
    with pytest.raises(UsageError, match="not finished"):
        export_run(run, bundle.with_name("other.zip"))
    assert not bundle.with_name("other.zip").exists()


def test_of_two_exports_to_one_file_the_slower_is_refused_and_spoils_nothing(run, tmp_path):
    quicker, big = tmp_path / "x.zip", run.path / "outputs" / "big.txt"
    os.mkfifo(tmp_path / "pipe")
    big.write_bytes(b"x" * (1 << 22))
    command = [sys.executable, "-c", SLOWLY, run.path, quicker, tmp_path / "pipe"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as slower:
        with (tmp_path / "pipe").open("w"):  # it is in the midst of writing now
            export_run(run, quicker)
            content = quicker.read_bytes()
        said = slower.communicate()[1]
    assert slower.returncode != 0 and f"{quicker} is there already" in said
    assert quicker.read_bytes() == content and [path.name for path in tmp_path.glob("x.zip*")] == ["x.zip"]


def test_a_key_of_this_machine_never_leaves_with_a_run(run, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret-0123456789")
    with (run.path / "outputs" / "step-0002.txt").open("a") as file:
        file.write("Authorization: Bearer sk-very-secret-0123456789\n")
    with pytest.raises(UsageError, match=r"step-0002\.txt holds a key"):
        export_run(run, tmp_path / "run.zip")
    assert list(tmp_path.glob("run.zip*")) == []


def test_links_in_a_run_are_not_followed_out_of_it(run, tmp_path):
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
def test_a_bundle_with_a_file_that_no_run_has_is_refused(forged, tmp_path, name):
    room = tmp_path / "room"
    with pytest.raises(UsageError, match="is no file of a run"):
        unpack_bundle(forged({name: b"x"}), room)
    assert not room.exists()


def test_a_link_in_a_bundle_becomes_a_plain_file(forged, tmp_path):
    target = unpack_bundle(forged({"crash.txt": b"/etc/passwd"}, link="crash.txt"), tmp_path / "room")
    assert (target / "crash.txt").read_text() == "/etc/passwd"
    assert not (target / "crash.txt").is_symlink()


def test_a_bundle_that_is_packed_is_refused_since_it_may_be_a_bomb(forged, tmp_path):
    with pytest.raises(UsageError, match="is packed; a bundle is not"):
        unpack_bundle(forged({"outputs/bomb.txt": b"0" * 10_000_000}, packed=ZIP_DEFLATED), tmp_path / "room")


def test_entries_that_overlap_are_refused(forged, tmp_path):
    path = forged({"outputs/big.txt": b"0" * 1_000_000})
    with ZipFile(path, "a") as bundle:
        big = bundle.getinfo("outputs/big.txt")
        for number in range(3):  # all of them are the same million bytes
            alias = zipfile.ZipInfo(f"outputs/big-{number}.txt")
            alias.header_offset, alias.CRC = big.header_offset, big.CRC
            alias.file_size = alias.compress_size = big.file_size
            bundle.filelist.append(alias)
        bundle._didModify = True  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="larger than it is"):
        unpack_bundle(path, tmp_path / "room")


def test_a_workspace_that_would_not_fit_on_a_disk_is_refused(forged, bundle, tmp_path):
    with ZipFile(bundle) as whole:
        lines = whole.read("snapshots/manifest.jsonl").splitlines()
    first = json.loads(lines[0])
    first["changed"]["train.py"]["size"] = 2**50
    manifest = b"\n".join([json.dumps(first).encode(), *lines[1:]]) + b"\n"
    with pytest.raises(UsageError, match="its workspace is larger than"):
        unpack_bundle(forged({"snapshots/manifest.jsonl": manifest}), tmp_path / "room")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"fitting": False, "files": {"trace.jsonl": b"{}\n"}}, "another size"),
        ({"fitting": False, "files": {"outputs/more.txt": b""}}, "differ: outputs/more.txt"),
        ({"files": {MANIFEST_NAME: b"{}"}}, "MANIFEST.json: "),
        ({"files": {}, "twice": "run.json"}, "lists a name twice"),
    ],
)
def test_a_bundle_that_does_not_fit_its_list_is_refused(forged, tmp_path, change, why):
    with pytest.raises(UsageError, match=why):
        unpack_bundle(forged(**change), tmp_path / "room")


def test_one_changed_byte_is_noticed(bundle, tmp_path):
    with ZipFile(bundle) as whole:
        trace = whole.read("trace.jsonl")
    data = bundle.read_bytes()
    broken = tmp_path / "broken.zip"
    broken.write_bytes(data.replace(trace, trace.replace(b"measure", b"MEASURE", 1)))
    with pytest.raises(UsageError, match="not a sound bundle"):
        unpack_bundle(broken, tmp_path / "room")


def test_a_claim_that_was_forged_together_with_its_hashes_is_found_by_verify(forged, bundle, cli):
    with ZipFile(bundle) as whole:
        result = json.loads(whole.read("result.json"))
    path = forged({"result.json": json.dumps({**result, "score": 0.0}).encode()})
    told = cli("verify", path)
    assert told.returncode == 1
    assert "FAIL  result.json: score" in told.stdout


def test_a_file_that_is_no_bundle_is_a_mistake_of_one_line(cli, tmp_path):
    (tmp_path / "x.zip").write_text("hello")
    told = cli("verify", tmp_path / "x.zip")
    assert (told.returncode, told.stderr.count("\n")) == (2, 1)
    assert "neither the folder of a run nor a bundle" in told.stderr


def test_the_name_of_a_run_cannot_lead_out(forged, bundle, tmp_path):
    with ZipFile(bundle) as whole:
        contents = json.loads(whole.read(MANIFEST_NAME))
    room = tmp_path / "deep" / "room"
    target = unpack_bundle(
        forged({MANIFEST_NAME: json.dumps({**contents, "run": "../../out"}).encode()}), room
    )
    assert target == room / "run"


def test_a_folder_is_opened_as_it_is(run):
    with open_run_or_bundle(run.path) as place:
        assert place == run.path


def test_the_command_says_what_it_wrote_and_how_to_check_it(run, cli, tmp_path):
    told = cli("export", run.path, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert "verify run.zip" in told.stdout
    assert (tmp_path / "run.zip").is_file()
    told = cli("export", run.path, "-o", tmp_path / "mine.zip", "--without-data", "--json")
    assert json.loads(told.stdout)["files"].keys() >= {"run.json"}
