"""ReAct: thinks, then acts, then looks."""

from mlagentbench.agents.act import Act


class React(Act):
    """Says what it thinks before each action; the last few steps are in view."""

    prompt = "react"
    reply_fields = ("Thought",)
