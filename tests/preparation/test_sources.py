import io
import os
import shutil
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest
from loopback import Serve, sha256

from mlagentbench.errors import UsageError
from mlagentbench.preparation.download_cache import fetch_archive
from mlagentbench.preparation.registries import wheel_flags
from mlagentbench.task import Source

FOREIGN_WHEEL = "tiny-1.0-cp37-cp37m-manylinux_2_5_x86_64.manylinux1_x86_64.whl"


def url_source(url: str, sha: str) -> Source:
    return Source(kind="url", name=url, file="b.csv", sha256=sha)


def test_a_changed_archive_is_one_line_with_both_hashes(serve: Serve, tmp_path: Path, said) -> None:
    server = serve(lambda request: request.reply(200, b"other"))
    with pytest.raises(UsageError, match="archive changed") as caught:
        fetch_archive(url_source(server.url, sha256(b"good")), tmp_path, said.append)
    line = str(caught.value)
    assert sha256(b"good") in line and sha256(b"other") in line and "task.toml" in line and "\n" not in line
    assert [path.name for path in tmp_path.rglob("b.csv*")] == ["b.csv.lock"]


def test_a_damaged_archive_in_the_cache_is_fetched_again(serve: Serve, tmp_path: Path, said) -> None:
    server = serve(lambda request: request.reply(200, b"good"))
    source = url_source(server.url, sha256(b"good"))
    path = fetch_archive(source, tmp_path, said.append)
    path.write_bytes(b"bad")
    assert fetch_archive(source, tmp_path, said.append).read_bytes() == b"good"
    assert "damaged" in said[-1]


def test_an_unpinned_archive_must_stay_what_it_was(serve: Serve, tmp_path: Path, said, monkeypatch) -> None:
    contents = iter([b"first", b"first", b"second"])
    server = serve(lambda request: request.reply(200, next(contents)))
    monkeypatch.setenv("MLAGENTBENCH_KAGGLE_URL", server.url)
    source = Source(kind="kaggle", name="house", file="a.csv")
    path = fetch_archive(source, tmp_path, said.append)
    assert path.with_name("a.csv.sha256").read_text() == sha256(b"first")
    path.unlink()
    assert fetch_archive(source, tmp_path, said.append).read_bytes() == b"first"
    path.write_bytes(b"bad")
    with pytest.raises(UsageError, match=r"archive changed.*remove .*a\.csv\.sha256"):
        fetch_archive(source, tmp_path, said.append)
    assert not path.exists()


def test_an_archive_laid_in_the_cache_by_hand_is_used(tmp_path: Path, said) -> None:
    path = tmp_path / "kaggle" / "house" / "latest" / "a.csv"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"mine")
    assert fetch_archive(Source(kind="kaggle", name="house", file="a.csv"), tmp_path, said.append) == path
    assert path.with_name("a.csv.sha256").read_text() == sha256(b"mine")


def test_two_who_want_the_same_archive_download_it_once(serve: Serve, tmp_path: Path) -> None:
    asked, waits = threading.Event(), threading.Event()

    def answer(request) -> None:
        asked.set()
        assert waits.wait(5)
        request.reply(200, b"good")

    server = serve(answer)
    source = url_source(server.url, sha256(b"good"))
    first = threading.Thread(target=fetch_archive, args=(source, tmp_path, print))
    first.start()
    assert asked.wait(5)
    said: list[str] = []
    fetch_archive(source, tmp_path, lambda line: (said.append(line), waits.set()))
    first.join(5)
    assert said == ["waiting for another process that fetches b.csv"] and len(server.seen) == 1


@pytest.mark.parametrize("file", ["../b.csv", "/etc/b.csv"])
def test_an_archive_cannot_be_kept_outside_of_the_cache(tmp_path: Path, said, file: str) -> None:
    with pytest.raises(UsageError, match="not a name"):
        fetch_archive(Source(kind="kaggle", name="house", file=file), tmp_path, said.append)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all that pip knows."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return folder


def wheel(folder: Path, file: str) -> Source:
    name, version, tag = file.removesuffix(".whl").split("-", 2)
    with zipfile.ZipFile(folder / file, "w") as archive:
        info = f"{name}-{version}.dist-info"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")
    return Source(
        kind="pypi", name=name, version=version, file=file, sha256=sha256((folder / file).read_bytes())
    )


@pytest.mark.parametrize("file", ["tiny-1.0-py3-none-any.whl", FOREIGN_WHEEL])
def test_a_wheel_comes_through_pip_whatever_machine_it_is_for(
    index: Path, tmp_path: Path, said, file: str
) -> None:
    source = wheel(index, file)
    path = fetch_archive(source, tmp_path / "cache", said.append)
    assert path == tmp_path / "cache" / "pypi" / "tiny" / "1.0" / file
    assert sorted(found.name for found in path.parent.iterdir()) == [file, f"{file}.lock"]


def test_the_flags_of_a_foreign_wheel() -> None:
    assert wheel_flags("a-1-py2.py3-none-any.whl") == []
    assert wheel_flags("a-1-7-cp38-abi3-win_amd64.whl") == (
        ["--implementation", "cp", "--python-version", "38", "--abi", "abi3", "--platform", "win_amd64"]
    )
    assert wheel_flags("a-1-py3-none-linux_x86_64.whl") == (
        ["--implementation", "py", "--abi", "none", "--platform", "linux_x86_64"]
    )


def test_a_source_archive_comes_without_running_its_code(index: Path, tmp_path: Path, said) -> None:
    file = index / "tiny-1.0.tar.gz"
    setup = f"open({str(tmp_path / 'ran')!r}, 'w')\n".encode()
    with tarfile.open(file, "w:gz") as archive:
        entry = tarfile.TarInfo("tiny-1.0/setup.py")
        entry.size = len(setup)
        archive.addfile(entry, io.BytesIO(setup))
    source = Source(kind="pypi", name="tiny", version="1.0", file=file.name, sha256=sha256(file.read_bytes()))
    assert fetch_archive(source, tmp_path / "cache", said.append).read_bytes() == file.read_bytes()
    assert not (tmp_path / "ran").exists()


def test_a_version_that_pip_does_not_find_is_one_line(index: Path, tmp_path: Path, said) -> None:
    source = wheel(index, "tiny-1.0-py3-none-any.whl").replace(version="2.0")
    with pytest.raises(UsageError, match=r"^pip finds no tiny==2.0; is the version in task.toml right\?$"):
        fetch_archive(source, tmp_path / "cache", said.append)


def test_a_registry_out_of_reach_is_one_line(index: Path, tmp_path: Path, said, monkeypatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    source = Source(kind="pypi", name="tiny", version="1.0", file="tiny-1.0-py3-none-any.whl")
    with pytest.raises(
        UsageError, match=r"^pip cannot reach its registry for tiny==1.0; is there a network\?$"
    ):
        fetch_archive(source, tmp_path / "cache", said.append)


def stub_npm(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    folder.mkdir()
    (folder / "npm").write_text(f"#!{shutil.which('sh')}\n{body}\n")
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def npm_source() -> Source:
    return Source(
        kind="npm", name="@o/tiny", version="1.0.0", file="o-tiny-1.0.0.tgz", sha256=sha256(b"archive")
    )


def test_an_npm_archive_comes_through_npm(tmp_path: Path, said, monkeypatch) -> None:
    stub_npm(
        tmp_path / "bin",
        monkeypatch,
        '[ "$1 $2 $3" = "pack @o/tiny@1.0.0 --pack-destination" ] && printf archive > "$4/o-tiny-1.0.0.tgz"',
    )
    path = fetch_archive(npm_source(), tmp_path / "cache", said.append)
    assert path == tmp_path / "cache" / "npm" / "@o" / "tiny" / "1.0.0" / "o-tiny-1.0.0.tgz"


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("echo npm error code ETARGET >&2; exit 1", r"npm finds no @o/tiny@1\.0\.0"),
        ("echo npm error code ENOTFOUND >&2; exit 1", r"npm cannot reach its registry"),
        ("echo hm; echo npm error bad day >&2; exit 1", r"npm could not fetch .*: npm error bad day$"),
        ('printf x > "$4/other.tgz"', r"expected o-tiny-1\.0\.0\.tgz but the registry gave other\.tgz$"),
    ],
)
def test_a_failure_of_npm_is_one_line(tmp_path: Path, said, monkeypatch, body: str, line: str) -> None:
    stub_npm(tmp_path / "bin", monkeypatch, body)
    with pytest.raises(UsageError, match=line) as caught:
        fetch_archive(npm_source(), tmp_path / "cache", said.append)
    assert "\n" not in str(caught.value)


def test_a_missing_npm_is_one_line(tmp_path: Path, said, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="install Node"):
        fetch_archive(npm_source(), tmp_path / "cache", said.append)
