"""One plugin of each kind."""

from pathlib import Path

ADDITION = Path(__file__).parent / "addition"
