"""Who takes part in a round: runs of a batch by several kinds of agents, and a few runs by themselves."""

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

AGENT = '''"""Does what a file says, step by step."""

import json
from pathlib import Path

from mlagentbench.agents.base import Agent
from mlagentbench.records import Call


class Reader(Agent):
    def __init__(self, seed: int = 0, script: str = "") -> None:
        super().__init__(seed)
        self.script = script

    def run(self, env):
        for call in json.loads(Path(self.script).read_text()):
            env.step(Call.model_validate(call))
'''
MEMORY = 0.25  # GB for a script
USUAL = {"baseline": STARTER_SCORE, "nothing": None}  # agents of ours that need no model, and their scores
ASKING = '''"""An outside program: asks for a script, and runs it."""

import json, os, subprocess, urllib.request

for question in ("which script?", "am I done?"):
    body = json.dumps({"model": "any", "messages": [{"role": "user", "content": question}]}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)
    request.add_header("Content-Type", "application/json")
    said = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
    if question == "which script?":
        open("train.py", "w").write(said)
        subprocess.run(["python", "train.py"], check=True)
'''
SCRIPTED, HOSTED, READ = "a scripted model", "a model on the loopback", "an agent from a file"
KINDS = (
    READ,
    *(SCRIPTED, HOSTED, SCRIPTED) * 5,
)  # in turn; to look at an agent from a file takes a process each time
REFERENCE = (TOY / "reference" / "train.py").read_text()
OUTSIDE = ScriptedRun("outside", "outside program", ((REFERENCE,), ("yes",)), (), BEST_SCORE)


class Scenario:
    """The runs of one round, drawn by the dice."""

    def __init__(self, folder: Path, dice: Random, size: int) -> None:
        self.folder, self.scripts = folder, folder / "scripts"
        self.kinds = {f"part{place:03d}": KINDS[place % len(KINDS)] for place in range(size)}
        drawn = [scripted_runs.draw_run(dice, name, bad=kind != READ) for name, kind in self.kinds.items()]
        self.singles = [
            OUTSIDE,
            *(scripted_runs.draw_run(dice, f"single{number}") for number in range(max(size // 16, 1))),
        ]
        self.ledger = dice.random() < 0.25 and _has_ledger()
        self.parts = {part.name: part for part in (*drawn, *self.singles)}
        hosted = [part for part in drawn if self.kinds[part.name] == HOSTED]
        self.model = FlakyProvider(hosted, f"{dice.random()}")
        self.count = len(self.parts) + len(USUAL)

    def write(self) -> None:
        """What the models and agents read."""
        self.scripts.mkdir(parents=True)
        (self.folder / "reader.py").write_text(AGENT)
        (self.folder / "program").mkdir()
        (self.folder / "program" / "main.py").write_text(ASKING)
        for part in self.parts.values():
            (self.scripts / part.name).write_text(scripted_runs.render_script(part))
            (self.scripts / f"{part.name}.json").write_text(
                json.dumps([call.model_dump() for call in part.calls])
            )

    def model_of(self, part: ScriptedRun) -> str:
        """The name of the model that says what the part wants."""
        hosted = part.name in self.model.parts
        return f"{self.model.url}/v1#{part.name}" if hosted else f"scripted:{self.scripts / part.name}"

    def command_of(self, part: ScriptedRun, place: Path) -> tuple[object, ...]:
        """How a part is run by itself."""
        agent: tuple[object, ...] = ("act",)
        if part is OUTSIDE:
            agent = ("command", "--set", f"program={self.folder / 'program'}")
            agent += ("--set", "command=python /opt/program/main.py")
        return (
            "run",
            TOY,
            "--out",
            place,
            "--memory",
            MEMORY,
            "--model",
            self.model_of(part),
            "--agent",
            *agent,
        )

    def plan(self, tries: int) -> Path:
        """The plan of the batch."""
        reader = self.folder / "reader.py"
        read = [name for name, kind in self.kinds.items() if kind == READ]
        agents = ["'act'", *(f"'{name}'" for name in USUAL)]
        agents += [
            f"{{ name = '{reader}', options = {{ script = '{self.scripts / name}.json' }} }}" for name in read
        ]
        models = [f"'{self.model_of(self.parts[name])}'" for name in self.kinds if name not in read]
        path = self.folder / "plan.toml"
        path.write_text(
            f"tasks = ['{TOY}']\nagents = [{', '.join(agents)}]\nmodels = [{', '.join(models)}]\n"
            f"pause = 0\ntries = {tries}\nledger = {str(self.ledger).lower()}\nlimits = {{ memory_gb = {MEMORY} }}\n"
        )
        return path

    def runs(self) -> Iterator[tuple[Path, ScriptedRun]]:
        """Every run that there is, with what it should have come to."""
        for path in self.folder.glob("*/*/**/run.json"):
            spec = RunSpec.model_validate_json(path.read_bytes())
            name = Path(spec.options.get("script", spec.model)).name.rpartition("#")[2].removesuffix(".json")
            usual = ScriptedRun(spec.agent, spec.agent, (), (), USUAL.get(spec.agent))
            yield path.parent, self.parts.get(name, usual)


def _has_ledger() -> bool:
    """Whether this machine can tell what scripts try."""
    try:
        require_access_log_support("bwrap")
    except UsageError:
        return False
    return True
