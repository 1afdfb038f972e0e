"""Content hashes of files and folders."""

from pathlib import Path

from blake3 import blake3

IGNORED_NAMES = {"__pycache__", "README.md"}


def hash_file(path: Path) -> str:
    """The hash of one file's bytes."""
    return blake3(max_threads=1).update_mmap(path).hexdigest()


def hash_tree(*roots: Path) -> str:
    """The hash of names and bytes of all the files below some folders; documentation does not count."""
    digest = blake3()
    for root in roots:
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            below = path.relative_to(root)
            if path.is_file() and not IGNORED_NAMES & set(below.parts):
                digest.update(f"{root.name}/{below.as_posix()}\0{hash_file(path)}\n".encode())
    return digest.hexdigest()
