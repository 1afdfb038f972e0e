"""The agent of the recorded runs. Each run holds a copy, so that later changes of agents do not matter."""

from mlagentbench.agents.base import Agent
from mlagentbench.environment import Environment
from mlagentbench.records import Call, Message


class Reader(Agent):
    """Takes the steps that its model replies, as JSON."""

    needs_model = True

    def run(self, env: Environment) -> None:
        """Ask and act in turn until the run is over."""
        while not env.done:
            reply = env.ask([Message(role="user", text=f"step {len(env.steps) + 1}?")])
            env.step(Call.model_validate_json(reply.text))
