"""How a grader process is started."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from mlagentbench.sandbox.base import Sandbox
from mlagentbench.system.cache import cache_dir
from mlagentbench.system.spawn import die_with_parent
from mlagentbench.task import Task

SOURCE_ROOT = Path(__file__).parents[2]


def grader_command(module: str, *paths: Path) -> list[str]:
    """Build the command of a grader process, which the kernel kills when the harness dies."""
    return die_with_parent([sys.executable, "-P", "-m", f"mlagentbench.grading.{module}", *map(str, paths)])


def grader_environment(task: Task, sandbox: Sandbox) -> Iterator[tuple[str, str]]:
    """Yield the few environment variables that a grader may see; tokens are not among them."""
    names = ("PATH", "HOME", *sandbox.required_variables)
    yield from ((name, os.environ[name]) for name in names if name in os.environ)
    # Resolved here, because it may depend on other variables or on the working directory.
    yield "MLAGENTBENCH_HOME", str(cache_dir())
    yield "LANG", "C.UTF-8"
    yield "PYTHONPATH", str(SOURCE_ROOT)
    yield "PYTHONDONTWRITEBYTECODE", "1"
    settings = {"runtime": task.config.runtime, "sandbox": sandbox.name, "gpu": sandbox.gpu}
    yield "MLAGENTBENCH_GRADING", json.dumps(settings)
