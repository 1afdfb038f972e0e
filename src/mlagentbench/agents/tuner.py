"""Tuner: uses no model. Changes the numbers in train.py and keeps what improves the validation score.

A baseline that a language agent should beat, and the default where no model is configured. It uses only the
public actions and reads only what any agent may read.
"""

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mlagentbench.agents.base import Agent
from mlagentbench.environment import Environment
from mlagentbench.records import Call

SCRIPT = "train.py"
VALIDATION_LINE = re.compile(r"^validation [^:\n]*: *(\S+)", re.IGNORECASE | re.MULTILINE)
FLOAT_FACTORS, INT_FACTORS = (10.0, 0.1, 3.0, 1 / 3), (2.0, 0.5)  # what numbers are multiplied by
MIN_RELATIVE_GAIN = 0.001  # a smaller gain is not followed
STEPS_PER_TRIAL = 2
RESERVED_STEPS = 3  # to run the best script again and submit it


@dataclass(frozen=True)
class Hyperparameter:
    """A named number in the script; `occurrence` counts equal names."""

    name: str
    occurrence: int
    value: float
    is_int: bool


class Tuner(Agent):
    """Changes one number of train.py at a time, and keeps what improves the validation score."""

    def run(self, env: Environment) -> None:
        """Measure the starter, then tune one hyperparameter after another while a round still helps."""
        self.env = env
        self.best_source = self.current_source = env.step(
            Call(action="Read File", args={"file_name": SCRIPT})
        )
        self.tried = {self.best_source}
        self.best_score, self.longest_trial_s = self._measure("measure the starter")
        while sum(self._tune(parameter) for parameter in find_hyperparameters(self.best_source)):
            pass
        if self.current_source != self.best_source:
            self._write(self.best_source, "back to the best script")
            self._measure("create its submission again")
        if not env.done:
            answer = f"best validation score: {self.best_score:g}"
            env.step(Call(action="Final Answer", args={"final_answer": answer}))

    def _tune(self, parameter: Hyperparameter) -> bool:
        """Increase and decrease one hyperparameter, and continue in the direction that helps."""
        for factor in INT_FACTORS if parameter.is_int else FLOAT_FACTORS:
            value, helped = parameter.value, False
            while self._has_budget_for_trial():
                new = round(value * factor) if parameter.is_int else value * factor
                if new in (0, value) or not self._try_value(parameter, value, new):
                    break
                value, helped = new, True
            if helped:
                return True
        return False

    def _try_value(self, parameter: Hyperparameter, old: float, new: float) -> bool:
        """Whether a new value improves the validation score."""
        source = set_hyperparameter(self.best_source, parameter, new)
        if source in self.tried:
            return False
        self.tried.add(source)
        self._write(source, f"{parameter.name}: {old:g} → {new:g}")
        score, seconds = self._measure(f"does {parameter.name} = {new:g} help?")
        if not self._is_better(score):
            return False
        self.best_score, self.best_source = score, source
        self.longest_trial_s = max(self.longest_trial_s, seconds)
        return True

    def _measure(self, reason: str) -> tuple[float, float]:
        """Run the script; returns its last validation score and the seconds it took."""
        if self.env.done:
            return math.nan, 0.0
        observation = self.env.step(
            Call(action="Execute Script", args={"script_name": SCRIPT}, thought=reason)
        )
        return parse_validation_score(observation), self.env.steps[-1].seconds

    def _write(self, source: str, reason: str) -> None:
        self.current_source = source
        if not self.env.done:
            args = {"file_name": SCRIPT, "content": source}
            self.env.step(Call(action="Write File", args=args, thought=reason))

    def _is_better(self, score: float) -> bool:
        if not math.isfinite(score):
            return False
        if not math.isfinite(self.best_score):
            return True
        higher_is_better = self.env.task.config.better == "higher"
        gain = score - self.best_score if higher_is_better else self.best_score - score
        return gain > MIN_RELATIVE_GAIN * abs(self.best_score)

    def _has_budget_for_trial(self) -> bool:
        """Whether a trial of three times the longest one so far, and the submission, still fit."""
        limits, steps = self.env.spec.limits, self.env.steps
        # The recorded clock, not the time of day: a resumed run must decide the same.
        seconds_left = limits.hours * 3600 - steps[-1].clock
        steps_left = limits.steps - len(steps)
        return steps_left >= STEPS_PER_TRIAL + RESERVED_STEPS and seconds_left > 4 * self.longest_trial_s + 1


def parse_validation_score(observation: str) -> float:
    """The last validation score in the output of a script, or NaN."""
    try:
        return float((VALIDATION_LINE.findall(observation) or ["nan"])[-1])
    except ValueError:
        return math.nan


def find_hyperparameters(source: str) -> list[Hyperparameter]:
    """The non-zero numbers that have a name in the script: constants and keyword arguments."""
    parameters: list[Hyperparameter] = []
    for number in _named_numbers(source):
        occurrence = [parameter.name for parameter in parameters].count(number.name)
        is_int = isinstance(number.value, int)
        parameters.append(Hyperparameter(number.name, occurrence, number.value, is_int))
    return [parameter for parameter in parameters if parameter.value]


def set_hyperparameter(source: str, parameter: Hyperparameter, value: float) -> str:
    """The script with one number changed and everything else as it was."""
    nodes = [number.node for number in _named_numbers(source) if number.name == parameter.name]
    node = nodes[parameter.occurrence]
    lines = source.encode().splitlines(keepends=True)
    line = lines[node.lineno - 1]
    text = repr(int(value)) if parameter.is_int else repr(float(f"{value:.6g}"))
    lines[node.lineno - 1] = line[: node.col_offset] + text.encode() + line[node.end_col_offset :]
    return b"".join(lines).decode()


class _NamedNumber(NamedTuple):
    name: str
    value: float
    node: ast.Constant


def _named_numbers(source: str) -> Iterator[_NamedNumber]:
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
                yield _NamedNumber(name, number, value)
