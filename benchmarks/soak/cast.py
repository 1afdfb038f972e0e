"""Who takes part in a round: runs of a batch by several kinds of agents, and a few runs by themselves."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

from benchmarks.soak import parts
from benchmarks.soak.model import Model
from benchmarks.soak.parts import STARTER, TOY, Part
from mlagentbench.records import RunSpec

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
USUAL = {"baseline": STARTER, "nothing": None}  # agents of ours that need no model, and their scores
SINGLES = 3
SCRIPTED, HOSTED, READ = "a scripted model", "a model on the loopback", "an agent from a file"
KINDS = (SCRIPTED, HOSTED, SCRIPTED, SCRIPTED, HOSTED, SCRIPTED, SCRIPTED, READ)  # in turn


class Cast:
    """The runs of one round, drawn by the dice."""

    def __init__(self, folder: Path, dice: Random, size: int) -> None:
        self.folder, self.scripts = folder, folder / "scripts"
        self.kinds = {f"part{place:03d}": KINDS[place % len(KINDS)] for place in range(size)}
        drawn = [parts.draw(dice, name, bad=kind != READ) for name, kind in self.kinds.items()]
        self.singles = [parts.draw(dice, f"single{number}") for number in range(SINGLES)]
        self.parts = {part.name: part for part in (*drawn, *self.singles)}
        hosted = [part for part in drawn if self.kinds[part.name] == HOSTED]
        self.model = Model(hosted, f"{dice.random()}")
        self.count = len(self.parts) + len(USUAL)

    def write(self) -> None:
        """What the models and agents read."""
        self.scripts.mkdir(parents=True)
        (self.folder / "reader.py").write_text(AGENT)
        for part in self.parts.values():
            (self.scripts / part.name).write_text(parts.script_of(part))
            (self.scripts / f"{part.name}.json").write_text(json.dumps([call.model_dump() for call in part.calls]))

    def model_of(self, part: Part) -> str:
        """The name of the model that says what the part wants."""
        hosted = part.name in self.model.parts
        return f"{self.model.url}/v1#{part.name}" if hosted else f"scripted:{self.scripts / part.name}"

    def plan(self, tries: int) -> Path:
        """The plan of the batch."""
        reader = self.folder / "reader.py"
        read = [name for name, kind in self.kinds.items() if kind == READ]
        agents = ["'act'", *(f"'{name}'" for name in USUAL)]
        agents += [f"{{ name = '{reader}', options = {{ script = '{self.scripts / name}.json' }} }}" for name in read]
        models = [f"'{self.model_of(self.parts[name])}'" for name in self.kinds if name not in read]
        path = self.folder / "plan.toml"
        path.write_text(
            f"tasks = ['{TOY}']\nagents = [{', '.join(agents)}]\nmodels = [{', '.join(models)}]\n"
            f"pause = 0\ntries = {tries}\nlimits = {{ memory_gb = 0.25 }}\n"
        )
        return path

    def runs(self) -> Iterator[tuple[Path, Part]]:
        """Every run that there is, with what it should have come to."""
        for path in self.folder.glob("*/*/**/run.json"):
            spec = RunSpec.model_validate_json(path.read_bytes())
            name = Path(spec.options.get("script", spec.model)).name.rpartition("#")[2].removesuffix(".json")
            usual = Part(spec.agent, spec.agent, (), (), USUAL.get(spec.agent))
            yield path.parent, self.parts.get(name, usual)
