"""Nothing: submits the starter as it was given. The floor."""

from mlagentbench.agents.base import Agent
from mlagentbench.environment.environment import Environment
from mlagentbench.records import Call


class Nothing(Agent):
    """Submits at once."""

    def run(self, env: Environment) -> None:
        """One step."""
        env.step(Call(action="Final Answer", args={"final_answer": "nothing was done"}))
