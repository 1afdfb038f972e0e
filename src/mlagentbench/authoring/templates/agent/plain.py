"""Runs the starter several times and submits: replace `run` by your own strategy."""

from mlagentbench import Agent, Call, Environment


class Skeleton(Agent):
    """Runs train.py `rounds` times. An option is a parameter after the seed: --set rounds=2."""

    def __init__(self, seed: int = 0, rounds: int = 1) -> None:
        super().__init__(seed)
        self.rounds = rounds

    def run(self, env: Environment) -> None:
        """Work on the task; `env.step` runs one action and returns what it printed."""
        print(env.problem_statement)
        print(env.step(Call(action="List Files", args={"dir_path": "."})))
        for number in range(self.rounds):
            thought = f"Round {number + 1}: run the script and read its output."
            print(env.step(Call(action="Execute Script", args={"script_name": "train.py"}, thought=thought)))
        env.step(Call(action="Final Answer", args={"final_answer": "the submission of train.py"}))
