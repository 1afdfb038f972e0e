"""Action: Request Help."""

from mlagentbench.actions.base import World
from mlagentbench.errors import ActionError

CHANGES = False
INTERACTIVE = True


def request_help(world: World, request: str) -> str:
    """Ask the person who watches this run.

    Args:
        request: a detailed description of what is needed
    """
    if world.person is None:
        raise ActionError("nobody is there to ask")
    return world.person(request)
