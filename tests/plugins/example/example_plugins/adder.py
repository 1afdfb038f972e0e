"""Agent: asks its model, counts the questions, and solves the task `addition`."""

from mlagentbench.agents.base import Agent
from mlagentbench.environment import Environment
from mlagentbench.records import Call, Message

SOLUTION = """
import csv

with open("questions.csv") as file, open("submission.csv", "w") as submission:
    submission.write("id,sum\\n")
    for row in csv.DictReader(file):
        submission.write(f"{row['id']},{int(row['a']) + int(row['b'])}\\n")
"""


class Adder(Agent):
    """Adds the two numbers of each question."""

    needs_model = True

    def run(self, env: Environment) -> None:
        """Run the starter, then the solution."""
        thought = env.ask([Message(role="user", text="What should I do?")]).text
        env.step(Call(action="Count Lines", args={"file_name": "questions.csv"}, thought=thought))
        env.step(Call(action="Execute Script", args={"script_name": "train.py"}))
        env.step(Call(action="Write File", args={"file_name": "train.py", "content": SOLUTION}))
        env.step(Call(action="Execute Script", args={"script_name": "train.py"}))
        env.step(Call(action="Final Answer", args={"final_answer": "a + b"}))
