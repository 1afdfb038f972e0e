"""Measures the page of a long run: its size, the time to write it, and until a browser reacts to a key.

    python benchmarks/viewer.py [--json] [--steps 500] [--keep FOLDER]

Exits with 1 if a figure is over its limit. The run looks like one of the research agent: a model call with
the history before each step, scripts written and run, outputs of several thousand characters. --keep leaves
the run and the page.
"""

import os
import shutil
import sys
import time
from pathlib import Path

from overhead import Figure, main_with_folder
from playwright.sync_api import sync_playwright

from mlagentbench.analysis.runs import Run, read_runs
from mlagentbench.pages.viewer.run_page import write_run_page
from mlagentbench.process.findings import collect_findings
from mlagentbench.records import AgentSpec, Call, Execution, Limits, Message, ModelCall, Prompt, Reply, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import prepare_setup

TOY = str(Path(__file__).parents[1] / "tests" / "toy")
REPETITIONS = 5


def make_script(number: int) -> str:
    """A script of two hundred lines, different at every step."""
    lines = [
        f"feature_{line} = table['column_{(line * number) % 97}'].rank(pct=True) < {number}"
        for line in range(200)
    ]
    return "\n".join(["import pandas as pd", "table = pd.read_csv('train.csv')", *lines, ""])


def make_output(number: int) -> str:
    """The output of the script."""
    epochs = [
        f"epoch {epoch:3d}: loss {1 / (epoch + number):.6f}, validation {epoch / 150:.4f}"
        for epoch in range(150)
    ]
    return "\n".join(["[exit code 0, 31.2 s, peak memory 812 MB]", *epochs])


def make_step(number: int) -> tuple[Call, str, Execution | None]:
    """The call, observation and execution of a step; every second step runs the script written before."""
    thought = (
        f"Round {number}: the ranks of more columns may help, since the last change lowered the error. " * 4
    )
    if number % 2:
        args = {"file_name": "train.py", "content": make_script(number)}
        return Call(action="Write File", args=args, thought=thought), "File train.py written.", None
    execution = Execution(
        exit_code=0, seconds=31.2, peak_mb=812.0, output_bytes=9000, output_file=f"step-{number:04d}.txt"
    )
    return (
        Call(action="Execute Script", args={"script_name": "train.py"}, thought=thought),
        make_output(number),
        execution,
    )


def create_run(folder_path: Path, steps: int) -> Run:
    """Create a run with this number of steps."""
    setup = prepare_setup(TOY, "open", "none", lambda line: print(line, file=sys.stderr))
    agent_spec = AgentSpec(agent="benchmark", model="provider:model")
    folder = RunFolder.create(folder_path, setup.create_run_spec(agent_spec, 0, Limits(steps=steps)))
    workspace = folder_path / "workspace"
    workspace.mkdir()
    store = folder.open_store()
    store.snapshot(0)
    history = [Message(role="user", text="You are a researcher. " * 200)]
    for number in range(1, steps + 1):
        call, observation, execution = make_step(number)
        reply = Reply(
            text=f"{call.thought}\n{call.args}", model="model", input_tokens=9000, output_tokens=700
        )
        model_call = ModelCall(
            number=number,
            step=number,
            inside=False,
            role="main",
            model="provider:model",
            prompt=Prompt(messages=tuple(history[-20:])),
            reply=reply,
            seconds=6.0,
        )
        folder.model_calls.append(model_call.model_dump_json())
        history += [Message(role="assistant", text=reply.text), Message(role="user", text=observation)]
        if not execution:
            (workspace / "train.py").write_text(call.args["content"])
        store.snapshot(number)
        tokens, clock = 9700 * number, 20.0 * number
        step = Step(
            number=number, call=call, observation=observation, seconds=13.0, clock=clock, tokens=tokens
        )
        folder.trace.append(step.replace(execution=execution).model_dump_json())
    return read_runs([folder_path])[0]


def measure_response(target: Path) -> tuple[list[float], list[float]]:
    """Seconds from opening the page until a key moved to the last step, and CPU seconds of its thread."""
    seconds, thread_seconds = [], []
    with sync_playwright() as tools:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = tools.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        for _ in range(REPETITIONS):
            page = browser.new_page()
            devtools = page.context.new_cdp_session(page)
            devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
            started = time.perf_counter()
            page.goto(target.as_uri())
            page.keyboard.press("G")
            page.evaluate(
                "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
            )
            seconds.append(time.perf_counter() - started)
            assert page.evaluate(
                "document.querySelector('.step.current') === document.querySelector('.step:last-child')"
            )
            reported = devtools.send("Performance.getMetrics")["metrics"]
            metrics = {metric["name"]: metric["value"] for metric in reported}
            thread_seconds.append(metrics["TaskDuration"])
            page.close()
        browser.close()
    return sorted(seconds), sorted(thread_seconds)


def measure(folder_path: Path, steps: int) -> list[Figure]:
    """Measure everything."""
    run, target = create_run(folder_path / "run", steps), folder_path / "run.html"
    findings = collect_findings(run)
    started = time.perf_counter()
    write_run_page(run, target, "", findings)
    write_seconds = time.perf_counter() - started
    times, thread_seconds = measure_response(target)
    return [
        Figure(f"page of {steps} steps", target.stat().st_size / 2**20, "MB", 3),
        Figure("time to write it", write_seconds, "s", 5),
        Figure("until it reacts to a key (median)", times[REPETITIONS // 2], "s", 1),
        Figure("of that, CPU time of the page's thread (median)", thread_seconds[REPETITIONS // 2], "s", 1),
        Figure("until it reacts to a key (worst)", times[-1], "s", 2),
    ]


if __name__ == "__main__":
    sys.exit(main_with_folder(measure, __doc__, "steps", 500))
