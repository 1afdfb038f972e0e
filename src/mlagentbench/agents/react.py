"""ReAct: reason, act, observe."""

from mlagentbench.agents.act import Act


class React(Act):
    """States a thought before each action; sees the last few steps."""

    prompt = "react"
    reply_fields = ("Thought",)
