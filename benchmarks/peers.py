"""Compares this harness with others that do the same scripted work, as ratios to a plain loop.

    python benchmarks/peers.py [--rounds N] [--quick] [--json]

The work is a cycle of four tool calls: list the workspace, read a file, append a line to it, and execute a
script that counts the lines. One part is 200 steps. The other one is a script that writes 100 MB, and 50
steps in the workspace that has them. Each peer does each part in a process of its own, in rounds, so that all
of them meet the same machine. Before it is measured, each does four steps, so that what it loads at its first
use counts as its start. Every observation and the final files are checked; a wrong one ends the benchmark
with an error.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measured_process import report_usage, run_measured
from peers_work import ToolCall, Work, act_directly

if TYPE_CHECKING:
    from mlagentbench.runner.setup import Setup

TOY = str(Path(__file__).parents[1] / "tests" / "toy")
WARM_UP = "4"
LIMITS = {"steps": 10_000, "disk_gb": 1.0, "files": 10_000}
OURS, OURS_BARE = "MLAgentBench, bwrap", "MLAgentBench, no sandbox"
FLOOR, GYM_LOOP = "plain subprocess loop", "Gymnasium loop, no sandbox"
INSPECT, INSPECT_LOCAL = "Inspect, our bwrap sandbox", "Inspect, local sandbox"
# Ours and the peer with the same isolation.
PAIRS = [(OURS, INSPECT), (OURS_BARE, INSPECT_LOCAL), (OURS_BARE, GYM_LOOP)]
METRICS = {
    "wall_s": ("time", "s"),
    "cpu_s": ("processor time", "s"),
    "memory_mb": ("memory", "MB"),
    "written_mb": ("written to disk", "MB"),
    "start_s": ("start", "s"),
}
Rounds = dict[str, list[dict[str, float]]]


def prepare(sandbox: str) -> "Setup":
    """The task and its runtime. Imported here, so that the other peers do not pay for our imports."""
    from mlagentbench.runner.setup import prepare_setup

    return prepare_setup(TOY, "open", sandbox, lambda line: print(line, file=sys.stderr))


def run_harness(work: Work, folder: Path, sandbox: str) -> None:
    """Our agent `act` with a model that replies at once: prompts, replies, steps, snapshots on disk.

    Every prompt has the whole history, as in Inspect.
    """
    from mlagentbench.agents.act import Act
    from mlagentbench.models.base import Model
    from mlagentbench.records import AgentSpec, Limits, Prompt, Reply
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
    if sandbox == "none":  # it takes its Python from there
        sys.base_prefix = str(Path(work.python).parents[1])
    limits = Limits.model_validate({**LIMITS, "steps": len(work.calls)})
    spec = setup.create_run_spec(AgentSpec(agent="act", model="calls"), 0, limits)
    with report_usage({}):
        env = open_environment(setup, RunFolder.create(folder / "run", spec), None, {"main": CallsModel()})
        try:
            populate_workspace(env, setup)
            Act(window=len(work.calls)).run(env)
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


def run_floor(work: Work, folder: Path) -> None:
    with report_usage({}):
        observations = [act_directly(folder, work.python, call) for call in work.calls]
    work.check_observations(observations)
    work.check_workspace(folder)


def run_gym_style(work: Work, folder: Path) -> None:
    """A plain environment of Gymnasium around the floor, with its wrappers and spaces."""
    import gymnasium
    from gymnasium.envs.registration import EnvSpec
    from gymnasium.spaces import Text

    class FolderEnv(gymnasium.Env[str, str]):
        def __init__(self) -> None:
            self.action_space = self.observation_space = Text(200_000, min_length=0)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
            super().reset(seed=seed)
            return "", {}

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            return act_directly(folder, work.python, ToolCall(*json.loads(action))), 0.0, False, False, {}

    spec = EnvSpec("folder-v0", entry_point=lambda **_: FolderEnv(), max_episode_steps=100_000)
    env = gymnasium.make(spec, disable_env_checker=True)
    with report_usage({}):
        env.reset(seed=0)
        observations = [env.step(json.dumps(call))[0] for call in work.calls]
        env.close()
    work.check_observations(observations)
    work.check_workspace(folder)


def run_inspect(work: Work, folder: Path, sandbox: str) -> None:
    """An evaluation of Inspect with one sample, its mock model and its log."""
    from peers_inspect import evaluate

    command = "python" if sandbox == "bwrap" else work.python
    if sandbox == "bwrap":
        prepare("bwrap")  # the runtime
    with report_usage({}):
        observations, files = evaluate(work.calls, sandbox, command, folder)
    work.check_observations(observations)
    work.check_files(*files)


PEERS: dict[str, Callable[[Work, Path], None]] = {
    FLOOR: run_floor,
    GYM_LOOP: run_gym_style,
    OURS_BARE: lambda work, folder: run_harness(work, folder, "none"),
    OURS: lambda work, folder: run_harness(work, folder, "bwrap"),
    "MLAgentBench in Gymnasium, bwrap": run_gym_adapter,
    INSPECT_LOCAL: lambda work, folder: run_inspect(work, folder, "local"),
    INSPECT: lambda work, folder: run_inspect(work, folder, "bwrap"),
}


def measure_rounds(part: str, rounds: int, python: str) -> Rounds:
    """The figures of each peer in each round; every round starts with another peer."""
    figures: Rounds = {name: [] for name in PEERS}
    names = list(PEERS)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            figures[name].append(run_measured(__file__, "--child", name, "--part", part, "--python", python))
            print(f"{part}, round {number + 1}: {name}: {figures[name][-1]}", file=sys.stderr, flush=True)
    return figures


def compute_ratios(figures: Rounds, name: str, other: str, metric: str) -> list[float]:
    """The ratios of one peer to another in the same round."""
    return [
        one[metric] / two[metric] if two[metric] else float("nan")
        for one, two in zip(figures[name], figures[other], strict=True)
    ]


def format_ratios(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} × ({min(ratios):.2f} to {max(ratios):.2f})"


def format_table(figures: Rounds) -> Iterator[str]:
    """Markdown: the median figures of the floor, the ratios of the peers to it, then those of each pair."""
    header = "| " + " | ".join(title for title, _ in METRICS.values()) + " |"
    yield "| " + header
    yield "|---" * (len(METRICS) + 1) + "|"
    floor = [
        f"{statistics.median(f[metric] for f in figures[FLOOR]):.3g} {unit}"
        for metric, (_, unit) in METRICS.items()
    ]
    yield f"| {FLOOR} | {' | '.join(floor)} |"
    for name in PEERS:
        if name != FLOOR:
            yield format_row(name, [compute_ratios(figures, name, FLOOR, metric) for metric in METRICS])
    yield f"\n| ours / peer {header}"
    yield "|---" * (len(METRICS) + 1) + "|"
    for ours, peer in PAIRS:
        ratios = [compute_ratios(figures, ours, peer, metric) for metric in METRICS]
        yield format_row(f"{ours} / {peer}", ratios)
    yield ""
    yield from list_metrics_behind(figures)


def format_row(name: str, ratios: list[list[float]]) -> str:
    return f"| {name} | {' | '.join(map(format_ratios, ratios))} |"


def list_metrics_behind(figures: Rounds) -> Iterator[str]:
    """For each pair, the metrics in which the median says that we need more than the peer."""
    for ours, peer in PAIRS:
        behind = [
            title
            for metric, (title, _) in METRICS.items()
            if statistics.median(compute_ratios(figures, ours, peer, metric)) > 1
        ]
        yield f"{ours} needs more than {peer} of: {', '.join(behind) or 'nothing'}."


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a tenth of the steps")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--part", default="", help=argparse.SUPPRESS)
    parser.add_argument("--python", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        with tempfile.TemporaryDirectory(prefix="mlagentbench-peers-") as name:
            for part in (WARM_UP, args.part):  # the last report is the one that counts
                folder = Path(name, part)
                folder.mkdir()
                PEERS[args.child](Work(part, args.python), folder)
        return 0
    parts = ["20", "5-large"] if args.quick else ["200", "50-large"]
    with tempfile.TemporaryDirectory(prefix="mlagentbench-peers-") as name:
        venv.create(name)  # as in the sandbox, without packages: their start-up code would slow every script
        python = str(Path(name, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}"))
        figures = {part: measure_rounds(part, args.rounds, python) for part in parts}
    if args.json:
        print(json.dumps(figures, indent=2))
        return 0
    versions = [f"{name} {version(name)}" for name in ("mlagentbench", "inspect-ai", "gymnasium")]
    print(
        f"{', '.join(versions)}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {args.rounds} rounds"
    )
    for part in parts:
        steps = part.removesuffix("-large")
        print(f"\n{steps} steps{' with 100 MB in the workspace' if '-' in part else ''}:\n")
        print("\n".join(format_table(figures[part])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
