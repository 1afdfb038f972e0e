"""Tests with packages whose requirements conflict with ours: see `make test-bridges`."""

from importlib.util import find_spec

PACKAGES = {"test_harbor.py": "harbor", "test_verifiers.py": "verifiers"}
collect_ignore = [file for file, package in PACKAGES.items() if find_spec(package) is None]
