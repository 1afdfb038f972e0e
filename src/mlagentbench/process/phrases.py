"""Small phrases that rules share."""

from collections.abc import Sequence


def format_count(count: int, one: str, many: str = "") -> str:
    """So many of something."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def format_steps(steps: Sequence[int]) -> str:
    """Steps by their numbers; of very many the first."""
    shown = ", ".join(map(str, steps[:8])) + (", ..." if len(steps) > 8 else "")
    return f"step {shown}" if len(steps) == 1 else f"steps {shown}"
