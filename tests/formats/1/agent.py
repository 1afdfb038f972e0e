"""The agent of the recorded runs: it lies in them, so that no later change of ours makes it ask otherwise."""

from mlagentbench.agents.base import Agent
from mlagentbench.environment import Environment
from mlagentbench.records import Call, Message


class Reader(Agent):
    """Does what its model reads out to it: a call, as JSON."""

    needs_model = True

    def run(self, env: Environment) -> None:
        """Ask and act in turn until it is over."""
        while not env.done:
            reply = env.ask([Message(role="user", text=f"step {len(env.steps) + 1}?")])
            env.step(Call.model_validate_json(reply.text))
