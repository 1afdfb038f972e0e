"""What an agent works in: actions, budget, recorded steps and model calls."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlagentbench.environment.environment import Environment as Environment


def __getattr__(name: str) -> object:
    """Import Environment on first use, because actions import this package too."""
    if name == "Environment":
        from mlagentbench.environment.environment import Environment

        return Environment
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
