"""Tuner: no model at all. Turns the numbers in train.py up and down and keeps what the validation figure likes.

The bar that a language agent should clear, and the default where no model is configured. It uses only the public
actions, and reads only what any agent may read.
"""

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mlagentbench.agents.base import Agent
from mlagentbench.environment.environment import Environment
from mlagentbench.records import Call

SCRIPT = "train.py"
VALIDATION_LINE = re.compile(r"^validation [^:\n]*: *(\S+)", re.IGNORECASE | re.MULTILINE)
FLOAT_FACTORS, INT_FACTORS = (
    (10.0, 0.1, 3.0, 1 / 3),
    (2.0, 0.5),
)  # by what numbers of either kind are multiplied
MIN_RELATIVE_GAIN = 0.001  # of the figure: a smaller gain is not followed
STEPS_PER_TRIAL, RESERVED_STEPS = 2, 3  # steps for a trial, and for making the best again and submitting it


@dataclass(frozen=True)
class Hyperparameter:
    """A number in the script that has a name."""

    name: str
    occurrence: int
    value: float
    is_int: bool


class Tuner(Agent):
    """Coordinate search over the named numbers of the script, on a logarithmic scale."""

    def run(self, env: Environment) -> None:
        """Measure the starter, then try each knob in turn, as long as a round of all of them still helps."""
        self.env = env
        self.best_source = self.latest = env.step(Call(action="Read File", args={"file_name": SCRIPT}))
        self.tried = {self.best_source}
        self.best, self.slowest = self._measure("measure the starter")
        while sum(self._tune(knob) for knob in find_hyperparameters(self.best_source)):
            pass
        if self.latest != self.best_source:
            self._write(self.best_source, "back to the best")
            self._measure("make its submission again")
        if not env.done:
            env.step(
                Call(action="Final Answer", args={"final_answer": f"best validation figure: {self.best:g}"})
            )

    def _tune(self, knob: Hyperparameter) -> bool:
        """Try one knob both ways, and go on in the way that helps."""
        for factor in INT_FACTORS if knob.is_int else FLOAT_FACTORS:
            value, helped = knob.value, False
            while self._has_budget_for_trial():
                changed = round(value * factor) if knob.is_int else value * factor
                if changed in (0, value) or not self._try_value(knob, value, changed):
                    break
                value, helped = changed, True
            if helped:
                return True
        return False

    def _try_value(self, knob: Hyperparameter, old: float, new: float) -> bool:
        source = set_hyperparameter(self.best_source, knob, new)
        if source in self.tried:
            return False
        self.tried.add(source)
        self._write(source, f"{knob.name}: {old:g} → {new:g}")
        found, seconds = self._measure(f"does {knob.name} = {new:g} help?")
        if not self._is_better(found):
            return False
        self.best, self.best_source = found, source
        self.slowest = max(self.slowest, seconds)
        return True

    def _measure(self, why: str) -> tuple[float, float]:
        """The validation figure that the script prints last, and the seconds that it took."""
        if self.env.done:
            return math.nan, 0.0
        observation = self.env.step(Call(action="Execute Script", args={"script_name": SCRIPT}, thought=why))
        return parse_validation_score(observation), self.env.steps[-1].seconds

    def _write(self, source: str, why: str) -> None:
        self.latest = source
        if not self.env.done:
            self.env.step(
                Call(action="Write File", args={"file_name": SCRIPT, "content": source}, thought=why)
            )

    def _is_better(self, found: float) -> bool:
        if not math.isfinite(found):
            return False
        if not math.isfinite(self.best):
            return True
        gain = found - self.best if self.env.task.config.better == "higher" else self.best - found
        return gain > MIN_RELATIVE_GAIN * abs(self.best)

    def _has_budget_for_trial(self) -> bool:
        """Whether a trial, which may take three times the longest so far, and the submission still fit."""
        limits, taken = self.env.spec.limits, self.env.steps
        left = (
            limits.hours * 3600 - taken[-1].clock
        )  # not the time of day: a resumed run must decide the same
        return limits.steps - len(taken) >= STEPS_PER_TRIAL + RESERVED_STEPS and left > 4 * self.slowest + 1


def parse_validation_score(observation: str) -> float:
    """The validation figure that a script printed last; not a number if it is none."""
    try:
        return float((VALIDATION_LINE.findall(observation) or ["nan"])[-1])
    except ValueError:
        return math.nan


def find_hyperparameters(source: str) -> list[Hyperparameter]:
    """The numbers to which the script gives a name: constants, and arguments by keyword."""
    found: list[Hyperparameter] = []
    for number in _numbers(source):
        before = [knob.name for knob in found].count(number.name)
        found.append(Hyperparameter(number.name, before, number.value, isinstance(number.value, int)))
    return [knob for knob in found if knob.value]


def set_hyperparameter(source: str, knob: Hyperparameter, value: float) -> str:
    """The script with one number changed, and all else as it was."""
    node = [number.node for number in _numbers(source) if number.name == knob.name][knob.occurrence]
    lines = source.encode().splitlines(keepends=True)
    line = lines[node.lineno - 1]
    text = repr(int(value)) if knob.is_int else repr(float(f"{value:.6g}"))
    lines[node.lineno - 1] = line[: node.col_offset] + text.encode() + line[node.end_col_offset :]
    return b"".join(lines).decode()


class _Number(NamedTuple):
    name: str
    value: float
    node: ast.Constant


def _numbers(source: str) -> Iterator[_Number]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            name, value = node.target.id, node.value
        elif isinstance(node, ast.keyword) and node.arg:
            name, value = node.arg, node.value
        else:
            continue
        if isinstance(value, ast.Constant) and not re.search("seed|state", name, re.IGNORECASE):
            number = value.value
            if isinstance(number, int | float) and not isinstance(number, bool):
                yield _Number(name, number, value)
