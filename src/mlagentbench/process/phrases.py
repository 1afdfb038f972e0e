"""Phrases shared by several rules."""

from collections.abc import Sequence


def format_count(count: int, singular: str, plural: str = "") -> str:
    """A count with its noun, such as "3 steps"."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def format_steps(steps: Sequence[int]) -> str:
    """Step numbers as a phrase; at most the first eight."""
    numbers = ", ".join(map(str, steps[:8])) + (", ..." if len(steps) > 8 else "")
    return f"step {numbers}" if len(steps) == 1 else f"steps {numbers}"
