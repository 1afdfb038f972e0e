"""What the page of a long run costs: its size, the time to write it, and until a browser answers a key.

    python benchmarks/viewer.py [--json] [--steps 500] [--keep FOLDER]

Exits with 1 if a figure is over its limit. The run is written as a research agent's would be: a model asked before each
step with what went before, scripts written and run, outputs of several thousand characters. --keep leaves run and page.
"""

import os
import shutil
import sys
import time
from pathlib import Path

from overhead import Figure, report_of
from playwright.sync_api import sync_playwright

from mlagentbench.analysis.runs import Run, read_runs
from mlagentbench.pages.viewer.run_page import write_run_page
from mlagentbench.process.findings import collect_findings
from mlagentbench.records import AgentSpec, Call, Execution, Limits, Message, ModelCall, Prompt, Reply, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import prepare_setup

TOY = str(Path(__file__).parents[1] / "tests" / "toy")
TIMES = 5


def script(number: int) -> str:
    """A script of two hundred lines, another at every step."""
    lines = [
        f"feature_{line} = table['column_{(line * number) % 97}'].rank(pct=True) < {number}"
        for line in range(200)
    ]
    return "\n".join(["import pandas as pd", "table = pd.read_csv('train.csv')", *lines, ""])


def output(number: int) -> str:
    """What it prints."""
    epochs = [
        f"epoch {epoch:3d}: loss {1 / (epoch + number):.6f}, validation {epoch / 150:.4f}"
        for epoch in range(150)
    ]
    return "\n".join(["[exit code 0, 31.2 s, peak memory 812 MB]", *epochs])


def done(number: int) -> tuple[Call, str, Execution | None]:
    """A step: every second one runs what the one before wrote."""
    thought = (
        f"Round {number}: the ranks of more columns may help, since the last change lowered the error. " * 4
    )
    if number % 2:
        args = {"file_name": "train.py", "content": script(number)}
        return Call(action="Write File", args=args, thought=thought), "File train.py written.", None
    ran = Execution(
        exit_code=0, seconds=31.2, peak_mb=812.0, output_bytes=9000, output_file=f"step-{number:04d}.txt"
    )
    return (
        Call(action="Execute Script", args={"script_name": "train.py"}, thought=thought),
        output(number),
        ran,
    )


def make(place: Path, steps: int) -> Run:
    """A run of so many steps."""
    setup = prepare_setup(TOY, "open", "none", lambda line: print(line, file=sys.stderr))
    who = AgentSpec(agent="benchmark", model="provider:model")
    folder = RunFolder.create(place, setup.create_run_spec(who, 0, Limits(steps=steps)))
    workspace = place / "workspace"
    workspace.mkdir()
    store = folder.open_store()
    store.snapshot(0)
    history = [Message(role="user", text="You are a researcher. " * 200)]
    for number in range(1, steps + 1):
        call, observation, ran = done(number)
        reply = Reply(
            text=f"{call.thought}\n{call.args}", model="model", input_tokens=9000, output_tokens=700
        )
        asked = ModelCall(
            number=number,
            step=number,
            inside=False,
            role="main",
            model="provider:model",
            prompt=Prompt(messages=tuple(history[-20:])),
            reply=reply,
            seconds=6.0,
        )
        folder.model_calls.append(asked.model_dump_json())
        history += [Message(role="assistant", text=reply.text), Message(role="user", text=observation)]
        if not ran:
            (workspace / "train.py").write_text(call.args["content"])
        store.snapshot(number)
        tokens, clock = 9700 * number, 20.0 * number
        step = Step(
            number=number, call=call, observation=observation, seconds=13.0, clock=clock, tokens=tokens
        )
        folder.trace.append(step.replace(execution=ran).model_dump_json())
    return read_runs([place])[0]


def answered(target: Path) -> tuple[list[float], list[float]]:
    """Seconds from asking for the page until a key moved to the last step, and those that the page's thread worked."""
    found, worked = [], []
    with sync_playwright() as tools:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = tools.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        for _ in range(TIMES):
            page = browser.new_page()
            inside = page.context.new_cdp_session(page)
            inside.send("Performance.enable", {"timeDomain": "threadTicks"})
            started = time.perf_counter()
            page.goto(target.as_uri())
            page.keyboard.press("G")
            page.evaluate(
                "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
            )
            found.append(time.perf_counter() - started)
            assert page.evaluate(
                "document.querySelector('.step.current') === document.querySelector('.step:last-child')"
            )
            told = {each["name"]: each["value"] for each in inside.send("Performance.getMetrics")["metrics"]}
            worked.append(told["TaskDuration"])
            page.close()
        browser.close()
    return sorted(found), sorted(worked)


def measure(place: Path, steps: int) -> list[Figure]:
    """All figures."""
    run, target = make(place / "run", steps), place / "run.html"
    noted = collect_findings(run)
    started = time.perf_counter()
    write_run_page(run, target, "", noted)
    written = time.perf_counter() - started
    times, worked = answered(target)
    return [
        Figure(f"page of {steps} steps", target.stat().st_size / 2**20, "MB", 3),
        Figure("writing it", written, "s", 5),
        Figure("until it answers a key (median)", times[TIMES // 2], "s", 1),
        Figure("of that, work of the page's thread (median)", worked[TIMES // 2], "s", 1),
        Figure("until it answers a key (worst)", times[-1], "s", 2),
    ]


if __name__ == "__main__":
    sys.exit(report_of(measure, __doc__, "steps", 500))
