"""Compiles installed packages: what is mounted read-only later can store no bytecode."""

import os
import subprocess
from pathlib import Path

from mlagentbench.system.spawn import die_with_parent

SKIPPED_FOLDERS = {"tests"}  # half of the code of the usual packages, which nobody imports


def compile_packages(folder: Path, python: str) -> int:
    """Compile the packages in a folder, on all cores; return the number of files.

    A file that cannot be compiled is skipped: some packages have templates with the suffix of a module.
    """
    files = [
        str(path)
        for path in sorted(folder.rglob("*.py"))
        if SKIPPED_FOLDERS.isdisjoint(path.relative_to(folder).parts)
    ]
    count = len(os.sched_getaffinity(0))
    # Not compileall's own workers, which would outlive a harness that is killed.
    processes = [_start_compiler(python) for _ in range(count)]
    for number, process in enumerate(processes):
        assert process.stdin
        process.stdin.write("\n".join(files[number::count]))
        process.stdin.close()
    for process in processes:
        process.wait()
    return len(files)


def _start_compiler(python: str) -> "subprocess.Popen[str]":
    """Start a process that compiles the files whose paths it reads from standard input."""
    return subprocess.Popen(
        die_with_parent([python, "-I", "-m", "compileall", "-qq", "-i", "-"]),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        umask=0o022,
    )
