"""Only pinned packages are installed, and nothing accesses the network unless a feature needs it."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
import venv
import zipfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pip
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


def read_lines(path: Path) -> list[str]:
    """The packages of a lock file, one per line."""
    text = path.read_text().replace(" \\\n   ", "")
    return [line for line in text.splitlines() if not line.startswith("#")]


def read_versions(path: Path) -> dict[str, str]:
    """The versions in a lock file that apply to this machine."""
    found = {}
    for line in read_lines(path):
        requirement = Requirement(line.partition(" --hash")[0])
        if requirement.marker is None or requirement.marker.evaluate():
            found[requirement.name] = str(requirement.specifier).removeprefix("==")
    return found


def write_wheel(folder: Path, answer: int, name: str = "tiny", needs: str = "") -> str:
    """Write a package with one module to `folder`, and return its hash."""
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
            )  # without a date, so that the hash is always the same
    return sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def package_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the only source of packages."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return tmp_path


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_locked_package_has_one_version_and_hashes_and_no_address(path: Path) -> None:
    assert all(LINE.fullmatch(line) for line in read_lines(path))
    assert len(read_lines(path)) > (0 if path.stem in ("uv", "node") else 5)
    assert not re.search(r"://|--(extra-)?index|--find-links", path.read_text())


@pytest.mark.parametrize(("lock", "extra"), [("run", ""), ("dev", "dev")])
def test_the_locks_contain_what_the_project_requires(lock: str, extra: str) -> None:
    optional = PROJECT["project"]["optional-dependencies"]
    requested = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
    requested += [*PROJECT["dependency-groups"]["build"], *(optional[extra] if extra else [])]
    locked = read_versions(ROOT / "requirements" / f"{lock}.txt")
    while requested:
        requirement = Requirement(requested.pop())
        if requirement.name == PROJECT["project"]["name"]:
            requested += [each for extra in requirement.extras for each in optional[extra]]
        else:
            assert requirement.specifier.contains(locked[requirement.name], prereleases=True), requirement


def test_both_locks_have_the_same_versions() -> None:
    assert set(read_lines(ROOT / "requirements" / "run.txt")) < set(
        read_lines(ROOT / "requirements" / "dev.txt")
    )


@pytest.mark.parametrize("name", runtime_names())
def test_every_package_of_a_runtime_except_torch_is_locked(name: str) -> None:
    required = {re.sub("_", "-", line) for line in read_requirements(name)}
    locked = {
        f"{name}=={version}"
        for name, version in read_versions(base.REQUIREMENTS_FOLDER / "locked" / f"{name}.txt").items()
    }
    assert (
        {line for line in required - locked if not line.startswith("torch==")} == set() == locked - required
    )


@pytest.fixture
def requirements_folder(package_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one small runtime, which has one package."""
    folder = package_folder / "requirements"
    (folder / "locked").mkdir(parents=True)
    (folder / "small.txt").write_text("tiny==1.0\n")
    monkeypatch.setattr(base, "REQUIREMENTS_FOLDER", folder)
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(package_folder / "home"))
    return folder


def test_a_runtime_is_built_from_locked_files_only(requirements_folder: Path, package_folder: Path) -> None:
    (requirements_folder / "locked" / "small.txt").write_text(
        f"tiny==1.0 --hash=sha256:{write_wheel(package_folder, 41)}\n"
    )
    write_wheel(package_folder, 42)  # the file was replaced
    with pytest.raises(SandboxFault, match=r"Cannot build the runtime small: ERROR: .*HASHES"):
        ensure_runtime("small", lambda line: None)
    write_wheel(package_folder, 41)
    assert (ensure_runtime("small", lambda line: None).packages / "tiny.py").read_text() == "ANSWER = 41\n"


def test_the_hash_and_dependencies_of_an_unlocked_package_are_resolved_and_stored(
    requirements_folder: Path, package_folder: Path
) -> None:
    (requirements_folder / "small.txt").write_text("tiny==1.0\nbig==1.0\n")
    (requirements_folder / "locked" / "small.txt").write_text(
        f"tiny==1.0 --hash=sha256:{write_wheel(package_folder, 41)}\n"
    )
    needed, big = (
        write_wheel(package_folder, 1, "driver"),
        write_wheel(package_folder, 2, "big", needs="driver"),
    )
    built = ensure_runtime("small", lambda line: None)
    assert {path.name for path in built.packages.glob("*.py")} == {"tiny.py", "big.py", "driver.py"}
    resolved = (built.folder / "requirements.txt").read_text()
    assert (
        f"big==1.0 --hash=sha256:{big}\n" in resolved and f"driver==1.0 --hash=sha256:{needed}\n" in resolved
    )
    assert not (built.folder / "constraints.txt").exists()


def test_an_unlocked_package_that_does_not_exist_is_a_fault_of_one_line(
    requirements_folder: Path, package_folder: Path
) -> None:
    (requirements_folder / "small.txt").write_text("tiny==1.0\nbig==1.0\n")
    (requirements_folder / "locked" / "small.txt").write_text(
        f"tiny==1.0 --hash=sha256:{write_wheel(package_folder, 41)}\n"
    )
    with pytest.raises(SandboxFault, match=r"Cannot build the runtime small: ERROR: .*big==1\.0"):
        ensure_runtime("small", lambda line: None)


def create_venv(folder: Path) -> None:
    """Create a virtual environment with links to the files of this one's pip, which is fast."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    shutil.copytree(Path(pip.__file__).parent, packages / "pip", copy_function=os.symlink)


def test_make_installs_no_file_with_another_hash(package_folder: Path) -> None:
    project = package_folder / "project"
    (project / "requirements").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", project)
    (project / "pyproject.toml").touch()
    (project / "requirements" / "run.txt").write_text(
        f"tiny==1.0 --hash=sha256:{write_wheel(package_folder, 41)}\n"
    )
    (project / "requirements" / "uv.txt").touch()  # without uv, make installs with pip
    create_venv(project / ".venv")
    write_wheel(package_folder, 42)
    command = ["make", f"PYTHON={sys.executable}", ".venv/installed"]
    completed = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert completed.returncode != 0 and "DO NOT MATCH THE HASHES" in completed.stdout
    assert not (project / ".venv" / "installed").exists()
    assert not list((project / ".venv").rglob("tiny.py"))


@pytest.fixture
def vulnerability_service() -> Iterator[tuple[str, list[str]]]:
    """A service that knows one vulnerable package: its address, and the packages that were looked up."""
    requested: list[str] = []

    class Query(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requested.append(query["package"]["name"])
            found = {
                "vulns": [
                    {
                        "id": "TEST-1",
                        "summary": "a vulnerability",
                        "affected": [],
                        "modified": "2026-01-01T00:00:00Z",
                    }
                ]
            }
            body = json.dumps(found if query["package"]["name"] == "jinja2" else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Query) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", requested
        server.shutdown()


def test_the_package_audit_looks_up_all_locked_packages_and_fails_for_a_vulnerable_one(
    tmp_path: Path, vulnerability_service: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, requested = vulnerability_service
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    service = f"SERVICE=--vulnerability-service osv --osv-url {address}"
    completed = subprocess.run(
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
    assert re.search(r"jinja2\s+3\.1\.6\s+TEST-1", completed.stdout), completed
    assert completed.stderr.count("ignored") == 2  # it fails for the project and for the runtimes
    locked = read_versions(ROOT / "requirements" / "dev.txt") | {
        line.split("==")[0]: "" for line in read_requirements("text")
    }
    assert set(requested) == set(locked)


HOOK = """
import sys
CALLS = ("connect", "sendto", "sendmsg", "getaddrinfo", "gethostbyname")
NETWORK_EVENTS = {f"socket.{call}" for call in CALLS}

def report(event, args):
    if event in NETWORK_EVENTS and not (event != "socket.getaddrinfo" and args[0].family.name == "AF_UNIX"):
        print("NETWORK", event, args[1:], file=sys.stderr, flush=True)

sys.addaudithook(report)
"""
IMPORT_ALL = """
import importlib, pkgutil, warnings
warnings.simplefilter("ignore")
import mlagentbench
modules = pkgutil.walk_packages(mlagentbench.__path__, "mlagentbench.")
names = [module.name for module in modules if ".tasks" not in module.name]
for name in names:
    if name.endswith("__main__"):
        continue
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in ("harbor", "verifiers"):  # which need environments of their own
            raise
print(len(names))
"""
COMMAND = "from mlagentbench.cli.app import main\nmain()\n"
Offline = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def offline() -> Offline:
    """Runs Python in a network namespace without a loopback; it reports every attempt to use the network."""
    no_network = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-current-user", "--net"]

    def call(code: str, *args: object) -> "subprocess.CompletedProcess[str]":
        command = [*no_network, sys.executable, "-c", HOOK + code, *map(str, args)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return call


def test_network_access_is_detected(offline: Offline) -> None:
    completed = offline("import socket\nsocket.create_connection(('192.0.2.1', 80), 1)\n")
    assert "NETWORK socket.connect" in completed.stderr and "Network is unreachable" in completed.stderr


def test_no_module_accesses_the_network_when_imported(offline: Offline) -> None:
    completed = offline(IMPORT_ALL)
    assert completed.returncode == 0 and "NETWORK" not in completed.stderr, completed.stderr
    assert int(completed.stdout) > 150


@pytest.mark.parametrize("command", [["--help"], ["list"], ["list", "models"], ["doctor"]], ids=" ".join)
def test_no_command_accesses_the_network_at_its_start(offline: Offline, command: list[str]) -> None:
    completed = offline(COMMAND, *command)
    assert completed.stdout and "NETWORK" not in completed.stderr and "Traceback" not in completed.stderr, (
        completed.stderr
    )
    assert completed.returncode == 0 or command == ["doctor"]  # which may report other problems


def test_a_whole_run_needs_no_network(offline: Offline, toy: Path, tmp_path: Path) -> None:
    completed = offline(
        COMMAND, "run", toy, "--agent", "tuner", "--steps", "8", "--out", tmp_path / "run", "--json"
    )
    assert completed.returncode == 0 and "NETWORK" not in completed.stderr, completed.stderr
    assert json.loads(completed.stdout)["valid"]
