"""Compares this harness with others that do the same scripted work, as ratios to a plain loop.

    python benchmarks/peers.py [--rounds N] [--quick] [--json]

The work is a cycle of four tool calls: list the workspace, read a file, append a line to it, and execute a
script that counts the lines. One part is 200 steps. The other one is a script that writes 100 MB, and 50
steps in the workspace that has them. Each peer does each part in a process of its own, in rounds, so that all
of them meet the same machine. Every observation and the final files are checked; a wrong one ends the
benchmark with an error.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from measured_process import report_usage, run_measured

from mlagentbench.records import Call, Reply
from mlagentbench.runner.setup import Setup, prepare_setup

TOY = str(Path(__file__).parents[1] / "tests" / "toy")
LARGE_FILES = 100  # of 1 MB each
COUNT_SCRIPT = """
lines = open("note.txt").read().splitlines()
print(f"counted {len(lines)} lines")
open("executions.txt", "a").write("x")
"""
LARGE_SCRIPT = f"""
import os
os.makedirs("large")
for number in range({LARGE_FILES}):
    open(f"large/{{number}}.bin", "wb").write(os.urandom(2**20))
print("counted 1 lines")
open("executions.txt", "a").write("x")
"""
LIMITS = {"steps": 10_000, "disk_gb": 1.0, "files": 10_000}
OURS, FLOOR = "MLAgentBench, bwrap", "plain subprocess loop"
METRICS = {
    "wall_s": ("time", "s"),
    "cpu_s": ("processor time", "s"),
    "memory_mb": ("memory", "MB"),
    "written_mb": ("written to disk", "MB"),
    "start_s": ("start", "s"),
}


def write_call(name: str, content: str) -> Call:
    return Call(action="Write File", args={"file_name": name, "content": content})


class Work:
    """The calls of a part, and the observations and files that they must lead to."""

    def __init__(self, part: str) -> None:
        number, self.large = int(part.removesuffix("-large")), part.endswith("-large")
        self.lines = ["line 0"]
        self.executions = 0
        self.calls = [write_call("note.txt", "line 0\n"), write_call("count.py", COUNT_SCRIPT)]
        self.expected = ["", ""]  # text that each observation must contain
        if self.large:
            self.calls.append(write_call("large.py", LARGE_SCRIPT))
            self.expected.append("")
            self._add_execution("large.py")
        for step in range(number):
            (self._add_list, self._add_read, self._add_append, self._add_count)[step % 4]()

    def _add(self, action: str, expected: str, **args: str) -> None:
        self.calls.append(Call(action=action, args=args))
        self.expected.append(expected)

    def _add_list(self) -> None:
        self._add("List Files", "large" if self.large else "note.txt", dir_path=".")

    def _add_read(self) -> None:
        self._add("Read File", self.lines[-1], file_name="note.txt")

    def _add_append(self) -> None:
        self.lines.append(f"line {len(self.lines)}")
        self._add("Append File", "", file_name="note.txt", content=self.lines[-1] + "\n")

    def _add_execution(self, script: str) -> None:
        self.executions += 1
        self._add("Execute Script", f"counted {len(self.lines)} lines", script_name=script)

    def _add_count(self) -> None:
        self._add_execution("count.py")

    def check_observations(self, observations: list[str]) -> None:
        """Raise if an observation is missing or does not have the expected text."""
        if len(observations) != len(self.calls):
            raise SystemExit(f"{len(observations)} observations of {len(self.calls)} calls")
        for call, expected, text in zip(self.calls, self.expected, observations, strict=True):
            if expected not in text:
                raise SystemExit(f"{call.action} {call.args}: expected {expected!r}, got {text[:500]!r}")

    def check_files(self, note: str, executions: str, large_files: int) -> None:
        """Raise if the workspace is not what the calls must have made of it."""
        expected = ("".join(f"{line}\n" for line in self.lines), "x" * self.executions)
        if (note, executions, large_files) != (*expected, LARGE_FILES if self.large else 0):
            raise SystemExit(f"wrong files: {note[-200:]!r}, {executions!r}, {large_files} large files")

    def check_workspace(self, folder: Path) -> None:
        texts = [(folder / name).read_text() for name in ("note.txt", "executions.txt")]
        self.check_files(texts[0], texts[1], len(list(folder.glob("large/*.bin"))))


def prepare(sandbox: str) -> Setup:
    return prepare_setup(TOY, "open", sandbox, lambda line: print(line, file=sys.stderr))


def run_harness(work: Work, folder: Path, sandbox: str) -> None:
    """Our agent `act` with a model that replies at once: prompts, replies, steps, snapshots on disk."""
    from mlagentbench.agents.act import Act
    from mlagentbench.models.base import Model
    from mlagentbench.records import AgentSpec, Limits, Prompt
    from mlagentbench.runner.folder import RunFolder
    from mlagentbench.runner.run import open_environment, populate_workspace

    class CallsModel(Model):
        """Asks for the calls one after another."""

        supports_tools, replies_at_once = False, True

        def reply(self, prompt: Prompt) -> Reply:
            call = work.calls[len(env.steps)]
            text = f"Action: {call.action}\nAction Input: {json.dumps(call.args)}"
            return Reply(text=text, model="calls", input_tokens=100, output_tokens=10)

    setup = prepare(sandbox)
    limits = Limits.model_validate({**LIMITS, "steps": len(work.calls)})
    spec = setup.create_run_spec(AgentSpec(agent="act", model="calls"), 0, limits)
    with report_usage({}):
        env = open_environment(setup, RunFolder.create(folder / "run", spec), None, {"main": CallsModel()})
        try:
            populate_workspace(env, setup)
            Act().run(env)
        finally:
            env.close()
    work.check_observations([step.observation for step in env.steps])
    work.check_workspace(folder / "run" / "workspace")


def run_gym_adapter(work: Work, folder: Path) -> None:
    """Our Gymnasium environment: as the harness, without a model."""
    import gymnasium

    import mlagentbench.adapters.gym  # noqa: F401 - registers the tasks

    env = gymnasium.make(
        "mlagentbench/task-v0", task=TOY, sandbox="bwrap", out=folder, limits=LIMITS, disable_env_checker=True
    )
    observations = []
    with report_usage({}):
        _, info = env.reset(seed=0)
        for call in work.calls:
            _, _, terminated, truncated, info = env.step(
                json.dumps({"action": call.action, "args": call.args})
            )
            assert not terminated and not truncated
            observations.append(info["text"])
        env.close()
    work.check_observations(observations)
    work.check_workspace(Path(info["folder"]) / "workspace")


def act_directly(folder: Path, call: Call) -> str:
    """The floor: the effect of a call, without a sandbox or a record."""
    args = call.args
    match call.action:
        case "List Files":
            return "\n".join(sorted(path.name for path in folder.iterdir()))
        case "Read File":
            return (folder / str(args["file_name"])).read_text()
        case "Write File" | "Append File":
            with (folder / args["file_name"]).open("w" if call.action == "Write File" else "a") as file:
                file.write(args["content"])
            return "done"
        case "Execute Script":
            command = [python(), "-u", args["script_name"]]
            return subprocess.check_output(command, cwd=folder, text=True)
    raise ValueError(call.action)


def python() -> str:
    """A Python without packages, as the one of the sandbox: packages with start-up code would slow it."""
    return str(Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}"))


def run_floor(work: Work, folder: Path) -> None:
    with report_usage({}):
        observations = [act_directly(folder, call) for call in work.calls]
    work.check_observations(observations)
    work.check_workspace(folder)


def run_gym_style(work: Work, folder: Path) -> None:
    """A plain environment of Gymnasium around the floor, with its wrappers and spaces."""
    import gymnasium
    from gymnasium.spaces import Text

    class FolderEnv(gymnasium.Env[str, str]):
        def __init__(self) -> None:
            self.action_space = self.observation_space = Text(200_000, min_length=0)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
            super().reset(seed=seed)
            return "", {}

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            return act_directly(folder, Call.model_validate_json(action)), 0.0, False, False, {}

    gymnasium.register("peers/folder-v0", lambda **_: FolderEnv(), max_episode_steps=100_000)
    env = gymnasium.make("peers/folder-v0", disable_env_checker=True)
    with report_usage({}):
        env.reset(seed=0)
        observations = [env.step(call.model_dump_json())[0] for call in work.calls]
        env.close()
    work.check_observations(observations)
    work.check_workspace(folder)


def run_inspect(work: Work, folder: Path, sandbox: str) -> None:
    """An evaluation of Inspect with one sample, its mock model and its log."""
    from peers_inspect import evaluate

    command = "python" if sandbox == "bwrap" else python()
    if sandbox == "bwrap":
        prepare("bwrap")  # the runtime
    with report_usage({}):
        observations, files = evaluate(work.calls, sandbox, command, folder)
    work.check_observations(observations)
    work.check_files(*files)


PEERS: dict[str, Callable[[Work, Path], None]] = {
    FLOOR: run_floor,
    "Gymnasium loop, no sandbox": run_gym_style,
    "MLAgentBench, no sandbox": lambda work, folder: run_harness(work, folder, "none"),
    OURS: lambda work, folder: run_harness(work, folder, "bwrap"),
    "MLAgentBench in Gymnasium, bwrap": run_gym_adapter,
    "Inspect, local sandbox": lambda work, folder: run_inspect(work, folder, "local"),
    "Inspect, our bwrap sandbox": lambda work, folder: run_inspect(work, folder, "bwrap"),
}


def measure_rounds(part: str, rounds: int) -> dict[str, list[dict[str, float]]]:
    """The figures of each peer in each round; every round starts with another peer."""
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in PEERS}
    names = list(PEERS)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            figures[name].append(run_measured(__file__, "--child", name, "--part", part))
            print(f"{part}, round {number + 1}: {name}: {figures[name][-1]}", file=sys.stderr, flush=True)
    return figures


def compute_ratios(figures: dict[str, list[dict[str, float]]], name: str, metric: str) -> list[float]:
    """The ratios to the floor in the same round."""
    return [
        ours[metric] / floor[metric] if floor[metric] else float("nan")
        for ours, floor in zip(figures[name], figures[FLOOR], strict=True)
    ]


def format_table(figures: dict[str, list[dict[str, float]]]) -> Iterator[str]:
    """Markdown: the median ratio of each figure, and for the floor its median."""
    yield "| | " + " | ".join(title for title, _ in METRICS.values()) + " |"
    yield "|---" * (len(METRICS) + 1) + "|"
    for name in PEERS:
        cells = []
        for metric, (_, unit) in METRICS.items():
            if name == FLOOR:
                cells.append(f"{statistics.median(f[metric] for f in figures[name]):.3g} {unit}")
                continue
            ratios = compute_ratios(figures, name, metric)
            cells.append(f"{statistics.median(ratios):.2f} × ({min(ratios):.2f} to {max(ratios):.2f})")
        yield f"| {name} | {' | '.join(cells)} |"
    behind = [
        f"{title} ({name})"
        for name in PEERS
        if name.startswith("Inspect")
        for metric, (title, _) in METRICS.items()
        if statistics.median(compute_ratios(figures, OURS, metric))
        > statistics.median(compute_ratios(figures, name, metric))
    ]
    yield f"\n{OURS}, is behind Inspect in: {', '.join(behind) or 'nothing'}."


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a tenth of the steps")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--part", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        with tempfile.TemporaryDirectory(prefix="mlagentbench-peers-") as name:
            PEERS[args.child](Work(args.part), Path(name))
        return 0
    parts = ["20", "5-large"] if args.quick else ["200", "50-large"]
    figures = {part: measure_rounds(part, args.rounds) for part in parts}
    if args.json:
        print(json.dumps(figures, indent=2))
        return 0
    for part in parts:
        steps = part.removesuffix("-large")
        print(f"\n{steps} steps{' with 100 MB in the workspace' if '-' in part else ''}:\n")
        print("\n".join(format_table(figures[part])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
