"""Your own agent in ten lines: run it, and see whether it beats the starter."""

from mlagentbench import Call, Environment, load_task, run


def raise_learning_rate(env: Environment) -> None:
    """Raise the starter's learning rate, run it, and submit."""
    script = env.step(Call(action="Read File", args={"file_name": "train.py"}))
    better = script.replace("LEARNING_RATE = 1e-7", "LEARNING_RATE = 1e-3")
    env.step(Call(action="Write File", args={"file_name": "train.py", "content": better}))
    print(env.step(Call(action="Execute Script", args={"script_name": "train.py"})))
    env.step(Call(action="Final Answer", args={"final_answer": "a higher learning rate"}))


if __name__ == "__main__":
    print(load_task("house-price").config.title)
    result = run("house-price", raise_learning_rate, limits={"steps": 10})
    print(result.score, result.improvement, result.success, result.folder)
