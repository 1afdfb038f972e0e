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


def test_a_changed_archive_gives_a_one_line_error_with_both_hashes(
    serve: Serve, tmp_path: Path, progress
) -> None:
    server = serve(lambda request: request.reply(200, b"other"))
    with pytest.raises(UsageError, match="Archive changed") as caught:
        fetch_archive(url_source(server.url, sha256(b"good")), tmp_path, progress.append)
    line = str(caught.value)
    assert sha256(b"good") in line and sha256(b"other") in line and "task.toml" in line and "\n" not in line
    assert [path.name for path in tmp_path.rglob("b.csv*")] == ["b.csv.lock"]


def test_a_damaged_archive_in_the_cache_is_downloaded_again(serve: Serve, tmp_path: Path, progress) -> None:
    server = serve(lambda request: request.reply(200, b"good"))
    source = url_source(server.url, sha256(b"good"))
    path = fetch_archive(source, tmp_path, progress.append)
    path.write_bytes(b"bad")
    assert fetch_archive(source, tmp_path, progress.append).read_bytes() == b"good"
    assert "damaged" in progress[-1]


def test_an_archive_that_is_not_pinned_must_not_change(
    serve: Serve, tmp_path: Path, progress, monkeypatch
) -> None:
    contents = iter([b"first", b"first", b"second"])
    server = serve(lambda request: request.reply(200, next(contents)))
    monkeypatch.setenv("MLAGENTBENCH_KAGGLE_URL", server.url)
    source = Source(kind="kaggle", name="house", file="a.csv")
    path = fetch_archive(source, tmp_path, progress.append)
    assert path.with_name("a.csv.sha256").read_text() == sha256(b"first")
    path.unlink()
    assert fetch_archive(source, tmp_path, progress.append).read_bytes() == b"first"
    path.write_bytes(b"bad")
    with pytest.raises(UsageError, match=r"Archive changed.*delete .*a\.csv\.sha256"):
        fetch_archive(source, tmp_path, progress.append)
    assert not path.exists()


def test_an_archive_that_the_user_put_into_the_cache_is_used(tmp_path: Path, progress) -> None:
    path = tmp_path / "kaggle" / "house" / "latest" / "a.csv"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"mine")
    assert fetch_archive(Source(kind="kaggle", name="house", file="a.csv"), tmp_path, progress.append) == path
    assert path.with_name("a.csv.sha256").read_text() == sha256(b"mine")


def test_two_threads_that_need_the_same_archive_download_it_once(serve: Serve, tmp_path: Path) -> None:
    requested, waiting = threading.Event(), threading.Event()

    def answer(request) -> None:
        requested.set()
        assert waiting.wait(5)
        request.reply(200, b"good")

    server = serve(answer)
    source = url_source(server.url, sha256(b"good"))
    first = threading.Thread(target=fetch_archive, args=(source, tmp_path, print))
    first.start()
    assert requested.wait(5)
    progress: list[str] = []
    fetch_archive(source, tmp_path, lambda line: (progress.append(line), waiting.set()))
    first.join(5)
    assert progress == ["Waiting for another process that downloads b.csv"] and len(server.requests) == 1


@pytest.mark.parametrize("file", ["../b.csv", "/etc/b.csv"])
def test_an_archive_cannot_be_stored_outside_the_cache(tmp_path: Path, progress, file: str) -> None:
    with pytest.raises(UsageError, match="would leave the cache folder"):
        fetch_archive(Source(kind="kaggle", name="house", file=file), tmp_path, progress.append)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the only package index of pip."""
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
def test_pip_downloads_a_wheel_for_any_machine(index: Path, tmp_path: Path, progress, file: str) -> None:
    source = wheel(index, file)
    path = fetch_archive(source, tmp_path / "cache", progress.append)
    assert path == tmp_path / "cache" / "pypi" / "tiny" / "1.0" / file
    assert sorted(file.name for file in path.parent.iterdir()) == [file, f"{file}.lock"]


def test_pip_flags_for_a_wheel_of_another_machine() -> None:
    assert wheel_flags("a-1-py2.py3-none-any.whl") == []
    assert wheel_flags("a-1-7-cp38-abi3-win_amd64.whl") == (
        ["--implementation", "cp", "--python-version", "38", "--abi", "abi3", "--platform", "win_amd64"]
    )
    assert wheel_flags("a-1-py3-none-linux_x86_64.whl") == (
        ["--implementation", "py", "--abi", "none", "--platform", "linux_x86_64"]
    )


def test_a_source_archive_is_downloaded_without_running_its_code(
    index: Path, tmp_path: Path, progress
) -> None:
    file = index / "tiny-1.0.tar.gz"
    setup = f"open({str(tmp_path / 'ran')!r}, 'w')\n".encode()
    with tarfile.open(file, "w:gz") as archive:
        entry = tarfile.TarInfo("tiny-1.0/setup.py")
        entry.size = len(setup)
        archive.addfile(entry, io.BytesIO(setup))
    source = Source(kind="pypi", name="tiny", version="1.0", file=file.name, sha256=sha256(file.read_bytes()))
    assert fetch_archive(source, tmp_path / "cache", progress.append).read_bytes() == file.read_bytes()
    assert not (tmp_path / "ran").exists()


def test_a_version_that_pip_does_not_find_gives_a_one_line_error(
    index: Path, tmp_path: Path, progress
) -> None:
    source = wheel(index, "tiny-1.0-py3-none-any.whl").replace(version="2.0")
    with pytest.raises(UsageError, match=r"^pip finds no tiny==2.0. Check the version in task.toml.$"):
        fetch_archive(source, tmp_path / "cache", progress.append)


def test_an_unreachable_registry_gives_a_one_line_error(
    index: Path, tmp_path: Path, progress, monkeypatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    source = Source(kind="pypi", name="tiny", version="1.0", file="tiny-1.0-py3-none-any.whl")
    with pytest.raises(
        UsageError, match=r"^pip cannot reach its registry for tiny==1.0. Check the network connection.$"
    ):
        fetch_archive(source, tmp_path / "cache", progress.append)


def stub_npm(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    folder.mkdir()
    (folder / "npm").write_text(f"#!{shutil.which('sh')}\n{body}\n")
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def npm_source() -> Source:
    return Source(
        kind="npm", name="@o/tiny", version="1.0.0", file="o-tiny-1.0.0.tgz", sha256=sha256(b"archive")
    )


def test_npm_downloads_an_archive(tmp_path: Path, progress, monkeypatch) -> None:
    stub_npm(
        tmp_path / "bin",
        monkeypatch,
        '[ "$1 $2 $3" = "pack @o/tiny@1.0.0 --pack-destination" ] && printf archive > "$4/o-tiny-1.0.0.tgz"',
    )
    path = fetch_archive(npm_source(), tmp_path / "cache", progress.append)
    assert path == tmp_path / "cache" / "npm" / "@o" / "tiny" / "1.0.0" / "o-tiny-1.0.0.tgz"


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("echo npm error code ETARGET >&2; exit 1", r"npm finds no @o/tiny@1\.0\.0"),
        ("echo npm error code ENOTFOUND >&2; exit 1", r"npm cannot reach its registry"),
        ("echo hm; echo npm error bad day >&2; exit 1", r"npm could not download .*: npm error bad day$"),
        ('printf x > "$4/other.tgz"', r"Expected o-tiny-1\.0\.0\.tgz, but the registry sent other\.tgz\.$"),
    ],
)
def test_a_failure_of_npm_gives_a_one_line_error(
    tmp_path: Path, progress, monkeypatch, body: str, line: str
) -> None:
    stub_npm(tmp_path / "bin", monkeypatch, body)
    with pytest.raises(UsageError, match=line) as caught:
        fetch_archive(npm_source(), tmp_path / "cache", progress.append)
    assert "\n" not in str(caught.value)


def test_a_missing_npm_gives_a_one_line_error(tmp_path: Path, progress, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="Install Node"):
        fetch_archive(npm_source(), tmp_path / "cache", progress.append)
