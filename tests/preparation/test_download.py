import base64
import io
import json
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from loopback import Request, Serve, Server, sha256

from mlagentbench.errors import UsageError
from mlagentbench.preparation import download
from mlagentbench.preparation.download_cache import fetch_archive
from mlagentbench.task import Source

DATA = b"Id,SalePrice\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(20_000))
TAG = '"version-1"'


def kaggle_source(file: str = "train.csv", sha: str = sha256(DATA)) -> Source:
    return Source(kind="kaggle", name="house", file=file, sha256=sha)


@pytest.fixture
def kaggle(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Starts a server that stands in for Kaggle, and sets a token."""

    def start(answer: Callable[[Request], None]) -> Server:
        server = serve(answer)
        monkeypatch.setenv("MLAGENTBENCH_KAGGLE_URL", f"{server.url}/api/v1")
        monkeypatch.setenv("KAGGLE_USERNAME", "ada")
        monkeypatch.setenv("KAGGLE_KEY", "secret")
        return server

    return start


def make_zip(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_csv", ".csv"), content)
    return buffer.getvalue()


def fetch_error(source: Source, tmp_path: Path, progress: list[str]) -> str:
    """Return the one-line error of a failed download, which must leave no archive."""
    with pytest.raises(UsageError) as caught:
        fetch_archive(source, tmp_path, progress.append)
    assert "\n" not in str(caught.value)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name == source.file]
    return str(caught.value)


def test_a_file_of_a_competition_is_fetched_once_with_the_users_token(kaggle, tmp_path, progress) -> None:
    server = kaggle(lambda request: request.reply(200, DATA))
    path = fetch_archive(kaggle_source(), tmp_path, progress.append)
    assert path == tmp_path / "kaggle" / "house" / "latest" / "train.csv"
    assert fetch_archive(kaggle_source(), tmp_path, progress.append).read_bytes() == DATA
    (request,) = server.requests
    assert request.path == "/api/v1/competitions/data/download/house/train.csv"
    assert request.headers["Authorization"] == "Basic " + base64.b64encode(b"ada:secret").decode()
    assert sorted(file.name for file in path.parent.iterdir()) == ["train.csv", "train.csv.lock"]


def test_all_the_files_of_a_competition_come_as_its_zip(kaggle, tmp_path, progress) -> None:
    archive = make_zip(train_csv=DATA)
    server = kaggle(lambda request: request.reply(200, archive))
    assert fetch_archive(kaggle_source("house.zip", ""), tmp_path, progress.append).read_bytes() == archive
    assert server.requests[0].path == "/api/v1/competitions/data/download-all/house"


def test_a_file_in_a_folder_of_a_competition_keeps_its_folder(kaggle, tmp_path, progress) -> None:
    server = kaggle(lambda request: request.reply(200, DATA))
    assert fetch_archive(kaggle_source("a b/train.csv"), tmp_path, progress.append).parent.name == "a b"
    assert server.requests[0].path.endswith("/house/a%20b%2Ftrain.csv")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "did not accept the token"),
        (403, "Accept the rules of the competition at https://www.kaggle.com/competitions/house/rules, then"),
        (404, "no file 'train.csv' in the competition 'house'"),
        (418, "HTTP 418"),
    ],
)
def test_an_error_of_kaggle_says_what_to_do(kaggle, tmp_path, progress, status: int, message: str) -> None:
    server = kaggle(lambda request: request.reply(status))
    assert message in fetch_error(kaggle_source(), tmp_path, progress)
    assert len(server.requests) == 1


def test_without_a_token_no_request_is_sent_and_the_user_learns_how_to_get_one(tmp_path, progress) -> None:
    assert "needs a token" in fetch_error(kaggle_source(), tmp_path, progress)


def test_a_bearer_token_is_sent_as_such(kaggle, tmp_path, progress, monkeypatch) -> None:
    server = kaggle(lambda request: request.reply(200, DATA))
    monkeypatch.delenv("KAGGLE_KEY")
    monkeypatch.setenv("KAGGLE_API_TOKEN", "KGAT_1")
    fetch_archive(kaggle_source(), tmp_path, progress.append)
    assert server.requests[0].headers["Authorization"] == "Bearer KGAT_1"


@pytest.mark.parametrize("folder", ["chosen", "user/.config/kaggle", "user/.kaggle"])
def test_a_token_file_is_found_in_the_usual_folders(
    kaggle, tmp_path, progress, monkeypatch, folder: str
) -> None:
    server = kaggle(lambda request: request.reply(200, DATA))
    monkeypatch.delenv("KAGGLE_KEY")
    monkeypatch.setenv("KAGGLE_CONFIG_DIR", str(tmp_path / "chosen"))
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "kaggle.json").write_text(json.dumps({"username": "eve", "key": "k"}))
    fetch_archive(kaggle_source(), tmp_path, progress.append)
    assert server.requests[0].headers["Authorization"] == "Basic " + base64.b64encode(b"eve:k").decode()


def test_a_broken_token_file_gives_a_one_line_error(kaggle, tmp_path, progress, monkeypatch) -> None:
    kaggle(lambda request: request.reply(200, DATA))
    monkeypatch.delenv("KAGGLE_KEY")
    (tmp_path / "user" / ".kaggle").mkdir(parents=True)
    (tmp_path / "user" / ".kaggle" / "kaggle.json").write_text("[]")
    assert "is not a Kaggle token" in fetch_error(kaggle_source(), tmp_path, progress)


def test_a_busy_server_is_retried(kaggle, tmp_path, progress) -> None:
    statuses = iter([429, 503, 200])
    server = kaggle(lambda request: request.reply(next(statuses), DATA))
    assert fetch_archive(kaggle_source(), tmp_path, progress.append).read_bytes() == DATA
    assert len(server.requests) == 3
    assert "HTTP 429" in progress[0] and "HTTP 503" in progress[1]


def test_a_server_that_stays_busy_is_an_error(kaggle, tmp_path, progress) -> None:
    server = kaggle(lambda request: request.reply(429))
    assert "busy (HTTP 429)" in fetch_error(kaggle_source(), tmp_path, progress)
    assert len(server.requests) == download.MAX_ATTEMPTS


def test_the_target_of_a_redirect_never_gets_the_token(kaggle, serve, tmp_path, progress) -> None:
    storage = serve(lambda request: request.reply(200, DATA))
    front = kaggle(lambda request: request.reply(302, Location=f"{storage.url}/signed?key=1"))
    fetch_archive(kaggle_source(), tmp_path, progress.append)
    assert "Authorization" in front.requests[0].headers
    assert "Authorization" not in storage.requests[0].headers


def test_a_redirect_on_the_same_host_keeps_the_token(kaggle, tmp_path, progress) -> None:
    def answer(request: Request) -> None:
        if request.path == "/moved":
            request.reply(200, DATA)
        else:
            request.reply(307, Location="/moved")

    server = kaggle(answer)
    fetch_archive(kaggle_source(), tmp_path, progress.append)
    assert "Authorization" in server.requests[1].headers


def test_a_redirect_to_another_protocol_is_rejected(kaggle, tmp_path, progress) -> None:
    kaggle(lambda request: request.reply(302, Location="ftp://elsewhere/file"))
    assert "not safe" in fetch_error(kaggle_source(), tmp_path, progress)


def test_a_csv_file_in_a_zip_is_extracted(kaggle, tmp_path, progress) -> None:
    kaggle(lambda request: request.reply(200, make_zip(train_csv=DATA)))
    assert fetch_archive(kaggle_source(), tmp_path, progress.append).read_bytes() == DATA


def test_a_file_that_is_itself_a_zip_is_not_extracted(kaggle, tmp_path, progress) -> None:
    arrays = make_zip(x_npy=b"123")
    kaggle(lambda request: request.reply(200, arrays))
    assert fetch_archive(kaggle_source("x.npz", ""), tmp_path, progress.append).read_bytes() == arrays


def ranged(request: Request) -> None:
    """Answer like a server that supports ranges; the first response breaks off."""
    asked = request.headers.get("Range")
    if asked is None:
        request.reply(200, DATA[: len(DATA) // 2], announced=len(DATA), ETag=TAG)
    elif request.headers["If-Range"] == TAG:
        start = int(asked.removeprefix("bytes=").removesuffix("-"))
        piece = f"bytes {start}-{len(DATA) - 1}/{len(DATA)}"
        request.reply(206, DATA[start:], Content_Range=piece, ETag=TAG)
    else:
        request.reply(200, DATA, ETag='"version-2"')


def test_a_dropped_download_is_resumed(kaggle, tmp_path, progress) -> None:
    server = kaggle(ranged)
    assert fetch_archive(kaggle_source(), tmp_path, progress.append).read_bytes() == DATA
    assert server.requests[1].headers["Range"] == f"bytes={len(DATA) // 2}-"
    assert len(server.requests) == 2
    assert "the connection broke" in progress[0]


def test_a_later_process_resumes_the_download_of_a_killed_one(kaggle, tmp_path, progress) -> None:
    server = kaggle(ranged)
    folder = tmp_path / "kaggle" / "house" / "latest"
    folder.mkdir(parents=True)
    (folder / "train.csv.part").write_bytes(DATA[:1000])
    (folder / "train.csv.part.tag").write_text(TAG)
    assert fetch_archive(kaggle_source(), tmp_path, progress.append).read_bytes() == DATA
    assert [request.headers["Range"] for request in server.requests] == ["bytes=1000-"]


def test_a_file_that_changed_meanwhile_is_downloaded_from_the_start(kaggle, tmp_path, progress) -> None:
    kaggle(ranged)
    folder = tmp_path / "kaggle" / "house" / "latest"
    folder.mkdir(parents=True)
    (folder / "train.csv.part").write_bytes(b"x" * 1000)
    (folder / "train.csv.part.tag").write_text('"version-0"')
    assert fetch_archive(kaggle_source(), tmp_path, progress.append).read_bytes() == DATA


@pytest.mark.parametrize("have", [DATA, DATA + b"more"])
def test_a_partial_file_that_is_complete_or_too_long_is_handled(
    kaggle, tmp_path, progress, have: bytes
) -> None:
    def answer(request: Request) -> None:
        if "Range" in request.headers:
            request.reply(416, Content_Range=f"bytes */{len(DATA)}")
        else:
            request.reply(200, DATA)

    server = kaggle(answer)
    folder = tmp_path / "kaggle" / "house" / "latest"
    folder.mkdir(parents=True)
    (folder / "train.csv.part").write_bytes(have)
    (folder / "train.csv.part.tag").write_text(TAG)
    assert fetch_archive(kaggle_source(), tmp_path, progress.append).read_bytes() == DATA
    assert len(server.requests) == (1 if have == DATA else 2)


def test_a_server_without_ranges_sends_the_file_from_the_start(kaggle, tmp_path, progress) -> None:
    lengths = iter([1000, len(DATA)])
    server = kaggle(lambda request: request.reply(200, DATA[: next(lengths)], announced=len(DATA)))
    assert fetch_archive(kaggle_source(), tmp_path, progress.append).read_bytes() == DATA
    assert "Range" not in server.requests[1].headers


def test_a_refused_connection_gives_a_one_line_error(tmp_path, progress, monkeypatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MLAGENTBENCH_KAGGLE_URL", f"http://127.0.0.1:{unused.getsockname()[1]}")
        assert "Check the network connection." in fetch_error(kaggle_source(), tmp_path, progress)


def test_a_server_that_does_not_answer_is_an_error(kaggle, tmp_path, progress, monkeypatch) -> None:
    monkeypatch.setattr(download, "TIMEOUT_S", 0.05)
    monkeypatch.setattr(download, "MAX_ATTEMPTS", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("MLAGENTBENCH_KAGGLE_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert "TimeoutError" in fetch_error(kaggle_source(), tmp_path, progress)


def test_progress_shows_the_size(kaggle, tmp_path, progress, monkeypatch) -> None:
    clock = iter(range(0, 1_000_000, 2))
    monkeypatch.setattr(download.time, "monotonic", lambda: float(next(clock)))
    kaggle(lambda request: request.reply(200, DATA))
    fetch_archive(kaggle_source(), tmp_path, progress.append)
    assert progress[-1] == f"train.csv: {len(DATA) / 1e6:.1f} of {len(DATA) / 1e6:.1f} MB"


def hub_source(**changes: str) -> Source:
    return Source(
        kind="hub", name="datasets/o/d", version="abc", file="x/y.csv", sha256=sha256(DATA)
    ).replace(**changes)


def test_a_file_of_the_hub_needs_no_token(serve, tmp_path, progress, monkeypatch) -> None:
    server = serve(lambda request: request.reply(200, DATA))
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    assert fetch_archive(hub_source(), tmp_path, progress.append).read_bytes() == DATA
    fetch_archive(hub_source(name="o/model", version=""), tmp_path, progress.append)
    assert [request.path for request in server.requests] == [
        "/datasets/o/d/resolve/abc/x/y.csv",
        "/o/model/resolve/main/x/y.csv",
    ]
    assert "Authorization" not in server.requests[0].headers


@pytest.mark.parametrize(
    ("status", "message"), [(401, "HF_TOKEN"), (403, "Accept its terms"), (404, "no file")]
)
def test_an_error_of_the_hub_says_what_to_do(serve, tmp_path, progress, monkeypatch, status, message) -> None:
    server = serve(lambda request: request.reply(status))
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_TOKEN", "hf_1")
    assert message in fetch_error(hub_source(), tmp_path, progress)
    assert server.requests[0].headers["Authorization"] == "Bearer hf_1"


def test_a_web_address_is_downloaded(serve, tmp_path, progress) -> None:
    server = serve(lambda request: request.reply(200, DATA))
    source = Source(kind="url", name=f"{server.url}/a/b.csv", file="b.csv", sha256=sha256(DATA))
    assert fetch_archive(source, tmp_path, progress.append).read_bytes() == DATA


@pytest.mark.parametrize("name", ["file:///etc/hostname", "http://127.0.0.1/unpinned", "b.csv"])
def test_only_safe_web_addresses_are_downloaded(tmp_path, progress, name: str) -> None:
    assert "only https://" in fetch_error(Source(kind="url", name=name, file="b.csv"), tmp_path, progress)
