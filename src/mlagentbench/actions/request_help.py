"""Action: Request Help."""

from mlagentbench.actions.base import ActionContext
from mlagentbench.errors import ActionError

CHANGES = False
INTERACTIVE = True


def request_help(world: ActionContext, request: str) -> str:
    """Ask the person who watches this run.

    Args:
        request: a detailed description of what is needed
    """
    if world.ask_person is None:
        raise ActionError("nobody is there to ask")
    return world.ask_person(request)
