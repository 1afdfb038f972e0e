"""Attacks select tasks by the traits in task.toml, so a new task folder is attacked without other edits."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mlagentbench.audit.attacks.base import attack_names, load_attack
from mlagentbench.audit.audit import run_audit
from mlagentbench.audit.finding import AttackFinding
from mlagentbench.errors import UsageError
from mlagentbench.task import Task, TaskTraits

ROOT = Path(__file__).parents[2]
TOML = (ROOT / "tests" / "toy" / "task.toml").read_text()
GRADER = (ROOT / "tests" / "toy" / "grade.py").read_text()
# Each trait with a value of its own: no name of a file or function is that of a task of the suite.
DECLARATIONS = {
    "timed_function": 'timed_function = { module = "solve", function = "answer" }',
    "byte_model": 'byte_model = { module = "language", function = "next_byte" }',
    "text_function": 'text_function = { module = "reader", function = "respond" }',
    "rule_violation": 'rule_violation = { script = "train.py", code = "EPOCHS = 99\\n" }',
    "run_length_masks": "run_length_masks = true",
}
RULES = '''

def violations(sources):
    """More than 10 epochs."""
    text = (sources / "train.py").read_text() if (sources / "train.py").is_file() else ""
    return ["too many epochs"] if "EPOCHS = 99" in text else []
'''
NO_RULES = "\n\ndef violations(sources):\n    return []\n"

Variant = Callable[..., Path]


def with_traits(*declarations: str) -> str:
    return f"{TOML}\n[traits]\n" + "\n".join(declarations) + "\n"


def ignore(line: object) -> None:
    """Discard a progress line or a finding."""


def run_one(task: Path, attack: str) -> AttackFinding:
    (finding,) = run_audit([str(task)], [attack], True, ignore, ignore)
    return finding


def test_every_trait_has_an_attack_and_every_attack_asks_for_a_trait_that_exists() -> None:
    asked = {load_attack(name).trait for name in attack_names()} - {""}
    assert asked == set(TaskTraits.model_fields) == set(DECLARATIONS)


@pytest.mark.parametrize("trait", DECLARATIONS)
def test_a_new_task_folder_with_a_trait_is_selected_by_the_attacks_that_ask_for_it(
    trait: str, toy: Path, variant: Variant
) -> None:
    without = Task.load(str(toy))
    task = Task.load(str(variant({"task.toml": with_traits(DECLARATIONS[trait])})))
    asking = {name for name in attack_names() if load_attack(name).trait == trait}
    selected = {name for name in attack_names() if load_attack(name).applies_to(task)}
    before = {name for name in attack_names() if load_attack(name).applies_to(without)}
    assert asking and selected - before == asking and before < selected


def test_a_copy_of_the_toy_with_a_trait_is_attacked_and_a_missing_check_is_found(variant: Variant) -> None:
    toml = with_traits(DECLARATIONS["rule_violation"])
    finding = run_one(variant({"task.toml": toml, "grade.py": GRADER + RULES}, "checked"), "broken_rules")
    assert finding.outcome == "refused" and "too many epochs" in finding.what
    finding = run_one(
        variant({"task.toml": toml, "grade.py": GRADER + NO_RULES}, "unchecked"), "broken_rules"
    )
    assert (finding.outcome, finding.what) == (
        "SUCCEEDED",
        "it broke a rule and no violation was reported",
    )


def test_an_attack_that_asks_for_a_trait_is_not_run_on_a_task_without_it(toy: Path) -> None:
    assert run_audit([str(toy)], ["broken_rules", "masks"], True, ignore, ignore) == []


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ("magic = true", "traits.magic: no such key"),
        ('timed_function = { module = "solve" }', "traits.timed_function.function: field required"),
        ('byte_model = "model"', "traits.byte_model: "),
        ("run_length_masks = 3", "traits.run_length_masks: "),
    ],
)
def test_an_unknown_or_incomplete_trait_is_one_clear_line(
    declaration: str, message: str, variant: Variant
) -> None:
    with pytest.raises(UsageError) as caught:
        Task.load(str(variant({"task.toml": with_traits(declaration)})))
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", Task.names())
def test_a_task_of_the_suite_declares_the_traits_that_its_grader_has(name: str) -> None:
    task = Task.load(name)
    grader = (task.folder / "grade.py").read_text()
    assert task.has_rules == bool(task.config.traits.rule_violation)
    assert ("SpeedComparison(" in grader) == bool(task.config.traits.timed_function)
    traits = task.config.traits
    for function in (traits.timed_function, traits.byte_model, traits.text_function):
        assert not function or f'"{function.module}", "{function.function}"' in grader


def test_no_attack_names_a_task() -> None:
    sources = [*(ROOT / "src" / "mlagentbench" / "audit").rglob("*.py")]
    assert len(sources) > 40
    named = {
        (path.name, name)
        for path in sources
        for name in Task.builtin_names()
        if f'"{name}"' in path.read_text()
    }
    assert not named
