"""Writes working skeletons of a task and of an agent, for their authors to change."""

import re
import shutil
from pathlib import Path

from mlagentbench.discovery import plugin_names
from mlagentbench.errors import UsageError
from mlagentbench.task import Task

TEMPLATES_DIR = Path(__file__).parent / "templates"
TEMPLATE_CLASS = "Skeleton"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def create_task(folder: Path) -> Path:
    """Write a complete task into a new folder, whose name is the name of the task.

    Raises:
        UsageError: The name does not fit or is taken, or the folder exists or cannot be written.
    """
    _require_free_name(folder.name, Task.names(), "task")
    _require_absent(folder)
    try:
        shutil.copytree(TEMPLATES_DIR / "task", folder, ignore=shutil.ignore_patterns("__pycache__"))
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        # Of several files, the error has a source, a target and a reason each.
        reason = error.strerror or error.args[0][0][2]
        raise UsageError(f"Cannot write {folder}: {reason}") from error
    return folder


def create_agent_file(path: Path, with_model: bool = False) -> Path:
    """Write an agent into a new file NAME.py; the suffix may be left out.

    Raises:
        UsageError: The name does not fit or is taken, or the file exists or cannot be written.
    """
    path = path.with_name(f"{path.name.removesuffix('.py')}.py")
    _require_free_name(path.stem, plugin_names("agents"), "agent")
    _require_absent(path)
    template = TEMPLATES_DIR / "agent" / ("with_model.py" if with_model else "plain.py")
    class_name = "".join(part.capitalize() for part in re.split("[-_]+", path.stem))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(template.read_text().replace(f"class {TEMPLATE_CLASS}(", f"class {class_name}("))
    except OSError as error:
        raise UsageError(f"Cannot write {path}: {error.strerror}") from error
    return path


def _require_free_name(name: str, taken: list[str], what: str) -> None:
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be the name of a {what}: use letters, digits, '-' and '_'.")
    if name.lower() in {other.lower() for other in taken}:
        raise UsageError(f"The {what} {name} exists already. Choose another name.")


def _require_absent(path: Path) -> None:
    if path.exists():
        raise UsageError(f"{path} exists already. Choose another name.")
