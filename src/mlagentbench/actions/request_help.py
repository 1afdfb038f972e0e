"""Action: Request Help."""

from mlagentbench.actions.base import action
from mlagentbench.environment.context import ActionContext
from mlagentbench.errors import ActionError


@action(changes_workspace=False, needs_person=True)
def request_help(context: ActionContext, request: str) -> str:
    """Ask the person who watches this run.

    Args:
        request: a detailed description of what is needed
    """
    if context.ask_person is None:
        raise ActionError("No person takes part in this run, so help cannot be requested.")
    return context.ask_person(request)
