"""The runs of one round: a batch with several kinds of agents, and a few single runs."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

from benchmarks.soak import scripted_runs
from benchmarks.soak.flaky_provider import FlakyProvider
from benchmarks.soak.scripted_runs import BEST_SCORE, STARTER_SCORE, TOY, ScriptedRun
from mlagentbench.errors import UsageError
from mlagentbench.records import RunSpec
from mlagentbench.sandbox.access_log.recording import require_access_log_support

FILE_AGENT_CODE = '''"""Takes the steps listed in a file."""

import json
from pathlib import Path

from mlagentbench.agents.base import Agent
from mlagentbench.records import Call


class FileAgent(Agent):
    def __init__(self, seed: int = 0, script: str = "") -> None:
        super().__init__(seed)
        self.script = script

    def run(self, env):
        for call in json.loads(Path(self.script).read_text()):
            env.step(Call.model_validate(call))
'''
MEMORY_LIMIT_GB = 0.25
BUILTIN_AGENTS = {"baseline": STARTER_SCORE, "nothing": None}  # agents without a model, and their scores
PROGRAM_CODE = '''"""An outside program: requests a script from the model and runs it."""

import json, os, subprocess, urllib.request

for question in ("which script?", "am I done?"):
    body = json.dumps({"model": "any", "messages": [{"role": "user", "content": question}]}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)
    request.add_header("Content-Type", "application/json")
    reply = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
    if question == "which script?":
        open("train.py", "w").write(reply)
        subprocess.run(["python", "train.py"], check=True)
'''
SCRIPTED_MODEL, HOSTED_MODEL, FILE_AGENT = "a scripted model", "a loopback model", "an agent from a file"
# Assigned in turn. Agents from files are rare, because each of them starts a process when it is loaded.
AGENT_KINDS = (FILE_AGENT, *(SCRIPTED_MODEL, HOSTED_MODEL, SCRIPTED_MODEL) * 5)
REFERENCE = (TOY / "reference" / "train.py").read_text()
OUTSIDE_PROGRAM = ScriptedRun("outside", "outside program", ((REFERENCE,), ("yes",)), (), BEST_SCORE)


class Scenario:
    """The runs of one round, drawn at random."""

    def __init__(self, folder: Path, random: Random, size: int) -> None:
        self.folder, self.scripts = folder, folder / "scripts"
        self.agent_kinds = {f"run{index:03d}": AGENT_KINDS[index % len(AGENT_KINDS)] for index in range(size)}
        batch_runs = [
            scripted_runs.draw_run(random, name, bad_replies=kind != FILE_AGENT)
            for name, kind in self.agent_kinds.items()
        ]
        singles = [scripted_runs.draw_run(random, f"single{index}") for index in range(max(size // 16, 1))]
        self.single_runs = [OUTSIDE_PROGRAM, *singles]
        self.record_access = random.random() < 0.25 and _can_record_access()
        self.runs = {run.name: run for run in (*batch_runs, *self.single_runs)}
        hosted = [run for run in batch_runs if self.agent_kinds[run.name] == HOSTED_MODEL]
        self.provider = FlakyProvider(hosted, f"{random.random()}")
        self.count = len(self.runs) + len(BUILTIN_AGENTS)

    def write_files(self) -> None:
        """Write the files that the models and agents read."""
        self.scripts.mkdir(parents=True)
        (self.folder / "file_agent.py").write_text(FILE_AGENT_CODE)
        (self.folder / "program").mkdir()
        (self.folder / "program" / "main.py").write_text(PROGRAM_CODE)
        for run in self.runs.values():
            calls = json.dumps([call.model_dump() for call in run.calls])
            (self.scripts / run.name).write_text(scripted_runs.render_script(run))
            (self.scripts / f"{run.name}.json").write_text(calls)

    def model_name(self, run: ScriptedRun) -> str:
        """The model that returns the replies of a run."""
        hosted = run.name in self.provider.runs
        return f"{self.provider.url}/v1#{run.name}" if hosted else f"scripted:{self.scripts / run.name}"

    def single_run_command(self, run: ScriptedRun, folder: Path) -> tuple[object, ...]:
        """The arguments of `mlagentbench` for a single run."""
        agent: tuple[object, ...] = ("act",)
        if run is OUTSIDE_PROGRAM:
            agent = ("command", "--set", f"program={self.folder / 'program'}")
            agent += ("--set", "command=python /opt/program/main.py")
        options = ("--out", folder, "--memory", MEMORY_LIMIT_GB, "--model", self.model_name(run))
        return ("run", TOY, *options, "--agent", *agent)

    def write_plan(self, tries: int) -> Path:
        """Write the plan of the batch."""
        agent = self.folder / "file_agent.py"
        from_file = [name for name, kind in self.agent_kinds.items() if kind == FILE_AGENT]
        agents = ["'act'", *(f"'{name}'" for name in BUILTIN_AGENTS)]
        agents += [
            f"{{ name = '{agent}', options = {{ script = '{self.scripts / name}.json' }} }}"
            for name in from_file
        ]
        with_model = [self.runs[name] for name in self.agent_kinds if name not in from_file]
        models = [f"'{self.model_name(run)}'" for run in with_model]
        path = self.folder / "plan.toml"
        path.write_text(
            f"tasks = ['{TOY}']\nagents = [{', '.join(agents)}]\nmodels = [{', '.join(models)}]\n"
            f"pause = 0\ntries = {tries}\nrecord_access = {str(self.record_access).lower()}\n"
            f"limits = {{ memory_gb = {MEMORY_LIMIT_GB} }}\n"
        )
        return path

    def find_runs(self) -> Iterator[tuple[Path, ScriptedRun]]:
        """Every run folder, with the run that was expected there."""
        for path in self.folder.glob("*/*/**/run.json"):
            spec = RunSpec.model_validate_json(path.read_bytes())
            name = Path(spec.options.get("script", spec.model)).name.rpartition("#")[2].removesuffix(".json")
            builtin = ScriptedRun(spec.agent, spec.agent, (), (), BUILTIN_AGENTS.get(spec.agent))
            yield path.parent, self.runs.get(name, builtin)


def _can_record_access() -> bool:
    """Whether this machine can record the files that scripts open."""
    try:
        require_access_log_support("bwrap")
    except UsageError:
        return False
    return True
