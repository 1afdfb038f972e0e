"""Writes the locks of the agents that are programs of others: python benchmarks/lock_agents.py [AGENT...]"""

import subprocess
import sys
from collections.abc import Sequence

from mlagentbench import discovery
from mlagentbench.agents.base import load_agent_class
from mlagentbench.agents.programs.preset import LOCKS_FOLDER, NpmPreset, PythonPreset

COMPILE = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes"]
COMPILE += ["--no-annotate", "--no-emit-index-url", "--no-emit-find-links", "--only-binary", ":all:"]
COMPILE += ["--custom-compile-command", "make lock", "-"]


def write_lock(name: str) -> None:
    """Write the lock of an agent, if it is a preset."""
    agent_class = load_agent_class(name)
    if issubclass(agent_class, NpmPreset):
        agent_class.lock_file().write_text(agent_class().resolve_lock())
    elif issubclass(agent_class, PythonPreset):
        lock = compile_lock(agent_class, agent_class.python_packages)
        if agent_class.packages_alone:
            lock += compile_lock(agent_class, agent_class.packages_alone, "--no-deps", "--no-header")
        agent_class.lock_file().write_text(lock)


def compile_lock(preset: type[PythonPreset], packages: Sequence[str], *options: str) -> str:
    """Requirements with the hashes of all their files."""
    pinned = "\n".join(packages).replace("{version}", preset.default_version)
    version = preset.python_version.rstrip("+") or "3.11"
    command = [*COMPILE, "--python-version", version, *options]
    return subprocess.run(command, input=pinned, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    LOCKS_FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or discovery.builtin_names("agents"):
        write_lock(name)
