"""Action: Outside Work. Internal: records what another framework's agent did. Never offered to agents."""

from mlagentbench.actions.base import action
from mlagentbench.environment.context import ActionContext


@action(is_internal=True)
def outside_work(context: ActionContext, framework: str, record: str) -> str:
    """Record the workspace as an agent of another framework left it, after commands in its sandbox.

    Args:
        framework: the framework that ran the agent
        record: the id under which the framework keeps its own record
    """
    return f"An agent ran commands in the sandbox. {framework} has the record: {record}"
