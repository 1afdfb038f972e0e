"""Baseline: runs the starter's train.py unchanged and submits. Improvements are measured against it."""

from mlagentbench.agents.base import Agent
from mlagentbench.environment import Environment
from mlagentbench.records import Call


class Baseline(Agent):
    """Runs the unchanged starter."""

    def run(self, env: Environment) -> None:
        """Run the script and submit."""
        env.step(Call(action="Execute Script", args={"script_name": "train.py"}))
        env.step(Call(action="Final Answer", args={"final_answer": "the unchanged starter"}))
