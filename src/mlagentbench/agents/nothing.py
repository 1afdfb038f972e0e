"""Nothing: submits the workspace as it was given. The floor of every task."""

from mlagentbench.agents.base import Agent
from mlagentbench.environment import Environment
from mlagentbench.records import Call


class Nothing(Agent):
    """Submits without doing anything."""

    def run(self, env: Environment) -> None:
        """Submit."""
        env.step(Call(action="Final Answer", args={"final_answer": "nothing was done"}))
