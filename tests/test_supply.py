"""What is installed is what was chosen; nothing asks the network before somebody wants something of it."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from mlagentbench.errors import SandboxFault
from mlagentbench.runtimes import base
from mlagentbench.runtimes.base import ensure_runtime, read_requirements, runtime_names

ROOT = Path(__file__).parents[1]
LOCKS = [
    *sorted((ROOT / "requirements").glob("*.txt")),
    *sorted((base.REQUIREMENTS_FOLDER / "locked").glob("*.txt")),
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LINE = re.compile(
    r"(?P<name>[a-z0-9-]+)==(?P<version>[\w.]+)( ; (?P<marker>.+))?(?P<hashes>( --hash=sha256:[0-9a-f]{64})+)"
)


def lines(path: Path) -> list[str]:
    """What a lock says, one package a line."""
    text = path.read_text().replace(" \\\n   ", "")
    return [line for line in text.splitlines() if not line.startswith("#")]


def versions(path: Path) -> dict[str, str]:
    """The packages that a lock holds for this machine."""
    found = {}
    for line in lines(path):
        wanted = Requirement(line.partition(" --hash")[0])
        if wanted.marker is None or wanted.marker.evaluate():
            found[wanted.name] = str(wanted.specifier).removeprefix("==")
    return found


def wheel(folder: Path, answer: int, name: str = "tiny", needs: str = "") -> str:
    """A package of one line in `folder`; its hash."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    needed = f"Requires-Dist: {needs}\n" if needs else ""
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {
            f"{name}.py": f"ANSWER = {answer}\n",
            f"{name}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needed}",
            f"{name}-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{name}-1.0.dist-info/RECORD": "",
        }.items():
            archive.writestr(
                zipfile.ZipInfo(file), text
            )  # of no date, so that the hash is the same each time
    return sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All the packages that there are."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return tmp_path


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_locked_package_has_one_version_and_hashes_and_no_address(path: Path) -> None:
    assert all(LINE.fullmatch(line) for line in lines(path))
    assert len(lines(path)) > (0 if path.stem == "uv" else 5)
    assert not re.search(r"://|--(extra-)?index|--find-links", path.read_text())


@pytest.mark.parametrize(("lock", "extra"), [("run", ""), ("dev", "dev")])
def test_the_locks_hold_what_the_project_asks_for(lock: str, extra: str) -> None:
    optional = PROJECT["project"]["optional-dependencies"]
    asked = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
    asked += [*PROJECT["dependency-groups"]["build"], *(optional[extra] if extra else [])]
    held = versions(ROOT / "requirements" / f"{lock}.txt")
    while asked:
        wanted = Requirement(asked.pop())
        if wanted.name == PROJECT["project"]["name"]:
            asked += [each for extra in wanted.extras for each in optional[extra]]
        else:
            assert wanted.specifier.contains(held[wanted.name], prereleases=True), wanted


def test_who_only_runs_and_who_tests_have_the_same_versions() -> None:
    assert set(lines(ROOT / "requirements" / "run.txt")) < set(lines(ROOT / "requirements" / "dev.txt"))


@pytest.mark.parametrize("name", runtime_names())
def test_every_package_of_a_runtime_is_locked_but_torch_which_has_many_builds(name: str) -> None:
    listed = {re.sub("_", "-", line) for line in read_requirements(name)}
    held = {
        f"{name}=={version}"
        for name, version in versions(base.REQUIREMENTS_FOLDER / "locked" / f"{name}.txt").items()
    }
    assert {line for line in listed - held if not line.startswith("torch==")} == set() == held - listed


@pytest.fixture
def lists(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A room of runtimes whose only one is of one package."""
    folder = shelf / "lists"
    (folder / "locked").mkdir(parents=True)
    (folder / "small.txt").write_text("tiny==1.0\n")
    monkeypatch.setattr(base, "REQUIREMENTS_FOLDER", folder)
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(shelf / "home"))
    return folder


def test_a_runtime_is_made_of_the_locked_files_and_of_no_others(lists: Path, shelf: Path) -> None:
    (lists / "locked" / "small.txt").write_text(f"tiny==1.0 --hash=sha256:{wheel(shelf, 41)}\n")
    wheel(shelf, 42)  # somebody put another file in its place
    with pytest.raises(SandboxFault, match=r"Cannot build the runtime small: ERROR: .*HASHES"):
        ensure_runtime("small", lambda line: None)
    wheel(shelf, 41)
    assert (ensure_runtime("small", lambda line: None).packages / "tiny.py").read_text() == "ANSWER = 41\n"


def test_of_a_package_with_many_builds_the_hash_is_noted_and_what_its_build_needs_comes_along(
    lists: Path, shelf: Path
) -> None:
    (lists / "small.txt").write_text("tiny==1.0\nbig==1.0\n")
    (lists / "locked" / "small.txt").write_text(f"tiny==1.0 --hash=sha256:{wheel(shelf, 41)}\n")
    needed, big = wheel(shelf, 1, "driver"), wheel(shelf, 2, "big", needs="driver")
    built = ensure_runtime("small", lambda line: None)
    assert {path.name for path in built.packages.glob("*.py")} == {"tiny.py", "big.py", "driver.py"}
    noted = (built.folder / "requirements.txt").read_text()
    assert f"big==1.0 --hash=sha256:{big}\n" in noted and f"driver==1.0 --hash=sha256:{needed}\n" in noted
    assert not (built.folder / "constraints.txt").exists()


def test_a_package_without_a_lock_that_is_nowhere_is_one_line(lists: Path, shelf: Path) -> None:
    (lists / "small.txt").write_text("tiny==1.0\nbig==1.0\n")
    (lists / "locked" / "small.txt").write_text(f"tiny==1.0 --hash=sha256:{wheel(shelf, 41)}\n")
    with pytest.raises(SandboxFault, match=r"Cannot build the runtime small: ERROR: .*big==1\.0"):
        ensure_runtime("small", lambda line: None)


def test_make_installs_no_file_with_another_hash(shelf: Path) -> None:
    project = shelf / "project"
    (project / "requirements").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", project)
    (project / "pyproject.toml").touch()
    (project / "requirements" / "run.txt").write_text(f"tiny==1.0 --hash=sha256:{wheel(shelf, 41)}\n")
    (project / "requirements" / "uv.txt").touch()  # without uv, make installs with pip
    wheel(shelf, 42)
    command = ["make", f"PYTHON={sys.executable}", ".venv/installed"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "DO NOT MATCH THE HASHES" in done.stdout
    assert not (project / ".venv" / "installed").exists()
    assert not list((project / ".venv").rglob("tiny.py"))


@pytest.fixture
def advisories() -> Iterator[tuple[str, list[str]]]:
    """A service that knows of one vulnerable package, and remembers what it was asked: its address, the packages."""
    asked: list[str] = []

    class Query(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(query["package"]["name"])
            found = {
                "vulns": [
                    {"id": "TEST-1", "summary": "a hole", "affected": [], "modified": "2026-01-01T00:00:00Z"}
                ]
            }
            body = json.dumps(found if query["package"]["name"] == "jinja2" else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Query) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()


def test_a_vulnerable_package_fails_the_audit_which_looks_up_all_that_are_locked(
    tmp_path: Path, advisories: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, asked = advisories
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    service = f"SERVICE=--vulnerability-service osv --osv-url {address}"
    done = subprocess.run(
        [
            "make",
            "-i",
            "-o",
            ".venv/installed-dev",
            f"BIN={Path(sys.executable).parent}",
            service,
            "audit-packages",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.search(r"jinja2\s+3\.1\.6\s+TEST-1", done.stdout), done
    assert done.stderr.count("ignored") == 2  # it fails for those that run here, and for those in runtimes
    held = versions(ROOT / "requirements" / "dev.txt") | {
        line.split("==")[0]: "" for line in read_requirements("text")
    }
    assert set(asked) == set(held)


def test_no_page_names_a_test() -> None:
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "AGENTS.md"]
    assert not [page for page in pages if re.search(r"`test_\w+`", page.read_text())]



HOOK = """
import sys
LOUD = {"socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname"}

def hear(event, args):
    if event in LOUD and not (event != "socket.getaddrinfo" and args[0].family.name == "AF_UNIX"):
        print("NETWORK", event, args[1:], file=sys.stderr, flush=True)

sys.addaudithook(hear)
"""
IMPORT_ALL = """
import importlib, pkgutil, warnings
warnings.simplefilter("ignore")
import mlagentbench
found = [m.name for m in pkgutil.walk_packages(mlagentbench.__path__, "mlagentbench.") if ".tasks" not in m.name]
for name in found:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(found))
"""
COMMAND = "from mlagentbench.cli.app import main\nmain()\n"
Offline = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def offline() -> Offline:
    """Python in a network namespace without any network, not even a loopback; it says whenever it tries."""
    alone = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-current-user", "--net"]

    def call(code: str, *args: object) -> "subprocess.CompletedProcess[str]":
        command = [*alone, sys.executable, "-c", HOOK + code, *map(str, args)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return call


def test_the_ear_hears_whoever_asks_the_network(offline: Offline) -> None:
    done = offline("import socket\nsocket.create_connection(('192.0.2.1', 80), 1)\n")
    assert "NETWORK socket.connect" in done.stderr and "Network is unreachable" in done.stderr


def test_no_module_asks_the_network_when_imported(offline: Offline) -> None:
    done = offline(IMPORT_ALL)
    assert done.returncode == 0 and "NETWORK" not in done.stderr, done.stderr
    assert int(done.stdout) > 150


@pytest.mark.parametrize("command", [["--help"], ["list"], ["list", "models"], ["doctor"]], ids=" ".join)
def test_no_command_asks_the_network_when_it_starts(offline: Offline, command: list[str]) -> None:
    done = offline(COMMAND, *command)
    assert done.stdout and "NETWORK" not in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 0 or command == ["doctor"]  # which may miss something else


def test_a_whole_run_needs_no_network(offline: Offline, toy: Path, tmp_path: Path) -> None:
    done = offline(
        COMMAND, "run", toy, "--agent", "tuner", "--steps", "8", "--out", tmp_path / "run", "--json"
    )
    assert done.returncode == 0 and "NETWORK" not in done.stderr, done.stderr
    assert json.loads(done.stdout)["valid"]
