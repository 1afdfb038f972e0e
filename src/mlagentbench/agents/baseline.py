"""Baseline: executes the starter's train.py and submits. What every improvement is measured from."""

from mlagentbench.agents.base import Agent
from mlagentbench.environment.environment import Environment
from mlagentbench.records import Call


class Baseline(Agent):
    """Runs the starter untouched."""

    def run(self, env: Environment) -> None:
        """Two steps."""
        env.step(Call(action="Execute Script", args={"script_name": "train.py"}))
        env.step(Call(action="Final Answer", args={"final_answer": "the starter, untouched"}))
