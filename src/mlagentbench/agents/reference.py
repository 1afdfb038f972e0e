"""Reference: submits the task's own solution. Shows that the task can be solved; not ranked."""

from mlagentbench.agents.base import Agent
from mlagentbench.environment import Environment
from mlagentbench.records import Call, Start


class Reference(Agent):
    """Copies reference/ over the starter, runs it and submits."""

    ranked = False
    solution: Start = "reference"

    def run(self, env: Environment) -> None:
        """Write the files of the solution, run it and submit."""
        folder = env.task.solution(self.solution)
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"):
            name = path.relative_to(folder).as_posix()
            env.step(Call(action="Write File", args={"file_name": name, "content": path.read_text()}))
        env.step(Call(action="Execute Script", args={"script_name": "train.py"}))
        env.step(Call(action="Final Answer", args={"final_answer": f"the task's {self.solution} solution"}))
