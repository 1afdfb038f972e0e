"""What docs/reliability.md rests on is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_is_named_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "reliability.md").read_text()))
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert len(named) > 20 and named <= there, named - there
