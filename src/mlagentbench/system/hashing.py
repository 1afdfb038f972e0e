"""Content hashes of files and folders."""

from pathlib import Path

from blake3 import blake3

IGNORED_NAMES = {"__pycache__", "README.md"}


def hash_file(path: Path) -> str:
    """The blake3 hash of a file's bytes."""
    return blake3(max_threads=1).update_mmap(path).hexdigest()


def hash_tree(*roots: Path) -> str:
    """The hash of the names and bytes of all files below `roots`; READMEs do not count."""
    digest = blake3()
    for root in roots:
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            relative = path.relative_to(root)
            if path.is_file() and not IGNORED_NAMES & set(relative.parts):
                digest.update(f"{root.name}/{relative.as_posix()}\0{hash_file(path)}\n".encode())
    return digest.hexdigest()
