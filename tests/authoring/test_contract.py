"""The contract of tasks: each kind of mistake of an author fails the check that is about it."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mlagentbench.authoring.contract import CheckOutcome, TaskUnderTest, run_contract
from mlagentbench.authoring.skeletons import TEMPLATES_DIR, create_task
from mlagentbench.authoring.task_checks import TASK_CHECKS
from mlagentbench.grading.verdict import find_unreachable_success
from mlagentbench.records import Baseline, Ceiling, Levels
from mlagentbench.system.progress import ignore_progress

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
CheckTask = Callable[..., dict[str, CheckOutcome]]
TEMPLATE = TEMPLATES_DIR / "task"


@pytest.fixture
def check_task(tmp_path: Path) -> CheckTask:
    """check_task(NAMES, file=(OLD, NEW)) changes the skeleton and runs some checks and those they need."""

    def run_some(*names: str, changes: dict[str, tuple[str, str]]) -> dict[str, CheckOutcome]:
        folder = create_task(tmp_path / "mistaken")
        for name, (old, new) in changes.items():
            text = (folder / name).read_text() if old else ""
            assert old in text
            (folder / name).write_text(text.replace(old, new))
        needed = {need for check in TASK_CHECKS if check.name in names for need in check.needs}
        checks = tuple(check for check in TASK_CHECKS if check.name in {*names, *needed})
        with TaskUnderTest(str(folder), "open", "bwrap", ignore_progress) as subject:
            return {outcome.name: outcome for outcome in run_contract(checks, subject)}

    return run_some


WRITE_ANSWERS = 'table[200:][["id", "y"]].to_csv(private / "answers.csv", index=False)'
COPY_ANSWERS = "table[200:][['id', 'y']].to_csv(public / 'old.csv', index=False)"
READ = "read_submission_arrays(submission, like=answers)"
LAX_READ = '__import__("pandas").read_csv(submission, dtype={"id": str}).set_index("id").reindex(answers.ids)'
# For each mistake: the check that finds it, the changed file, the old and the new text, and the message.
MISTAKES = {
    "unknown key": ("files", "task.toml", "runtime =", "runtme =", "runtme: no such key"),
    "unknown runtime": ("files", "task.toml", '= "tabular"  ', '= "tabula"  ', "no such runtime: 'tabula'"),
    "shadowed package": ("modules", "", "", "", "numpy.py has the name of a package."),
    "no validation line": (
        *("validation-line", "starter/train.py", "validation mean", "mean"),
        "there must be one",
    ),
    "silent description": (
        *("validation-line", "description.md", "absolute error: <number>", "error"),
        "does not say that train.py prints `validation mean absolute error: <number>` last",
    ),
    "few seeds": (
        *("levels", "task.toml", "n = 8 }\nref", "n = 3 }\nref"),
        "The starter is measured with n = 3, not 8 seeds. Run: mlagentbench baseline",
    ),
    "weak reference": ("levels", "task.toml", "0.0813203", "0.65", "does not beat the starter"),
    "wrong ceiling": ("ceiling", "task.toml", "= 0.0798", "= 0.1", "better than the ceiling (0.1)"),
    "starter too good": (
        *("reachable", "task.toml", "{ score = 0.0798", "{ score = 0.61"),
        "No score can be a success: the starter scores 0.6741",
    ),
    "failing prepare.py": (
        *("data", "prepare.py", '"x": x', '"x": z'),
        "NameError: name 'z' is not defined (prepare.py, line 14)",
    ),
    "public answers": (
        *("private", "prepare.py", WRITE_ANSWERS, f"{WRITE_ANSWERS}\n    {COPY_ANSWERS}"),
        "The private file answers.csv is also given to the agent, as old.csv.",
    ),
    "public column": (
        *("columns", "prepare.py", '.drop(columns="y")', '.rename(columns={"y": "target"})'),
        "test.csv contains the answers: its column target equals y in 100% of the rows.",
    ),
    "no answers.csv": ("answers", "prepare.py", "answers.csv", "labels.csv", "must write the answers to"),
    "other columns": (
        *("answers", "prepare.py", '[["id", "y"]].to', '[["id", "y", "x"]].to'),
        "private/answers.csv is not a valid submission: ",
    ),
    "wrong direction": ("answers", "task.toml", '"lower"', '"higher"', "No score can be a success"),
    "lax grader": (
        *("malformed", "grade.py", READ, f"{LAX_READ}.fillna(0)"),
        "Malformed submissions are not invalid: the submission 'empty' makes the grader fail: ",
    ),
}


@pytest.mark.parametrize(("name", "file", "old", "new", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_of_the_author_fails_its_check(
    check_task: CheckTask, name: str, file: str, old: str, new: str, message: str
) -> None:
    outcome = check_task(name, changes={file: (old, new)} if file else {"numpy.py": ("", "")})[name]
    assert outcome.status == "fail" and message in outcome.detail, outcome


def test_a_starter_weaker_than_a_constant_is_found(check_task: CheckTask) -> None:
    better_than_mean = ("mean = 0.674141", "mean = 0.9")
    outcome = check_task("constants", changes={"task.toml": better_than_mean})["constants"]
    assert outcome.status == "fail" and "everywhere scores 0." in outcome.detail


def test_checks_that_need_a_failed_one_are_skipped(check_task: CheckTask) -> None:
    outcomes = check_task("answers", changes={"prepare.py": ("import numpy", "import nmpy")})
    assert outcomes["data"].status == "fail" and "line 5" in outcomes["data"].detail
    assert (outcomes["answers"].status, outcomes["answers"].detail) == ("skip", "needs the check data")


@pytest.mark.parametrize(
    ("check", "file", "line"), [("starter", "starter/train.py", 9), ("reference", "reference/train.py", 6)]
)
def test_a_failing_script_is_shown_with_its_own_last_lines(
    check_task: CheckTask, check: str, file: str, line: int
) -> None:
    outcome = check_task(check, changes={file: ('pd.read_csv("test.csv")', 'pd.read_csv("tset.csv")')})[check]
    assert outcome.status == "fail"
    assert outcome.detail.startswith("The script failed: FileNotFoundError")
    assert outcome.detail.endswith(f"(train.py, line {line})") and "mlagentbench" not in outcome.output
    assert "tset.csv" in outcome.output


def test_check_prints_a_line_per_check_and_a_summary(cli: Cli, tmp_path: Path) -> None:
    folder = create_task(tmp_path / "mistaken")
    (folder / "prepare.py").write_text("def prepare(edition, raw, public, private, seed):\n    1 / 0\n")
    completed = cli("check", folder)
    assert completed.returncode == 1
    lines = completed.stdout.splitlines()
    labels = [line.split()[0] for line in lines[:-1] if not line.startswith(" ")]
    assert len(labels) == len(TASK_CHECKS) and set(labels) == {"PASS", "FAIL", "skip"}
    failure = lines.index(next(line for line in lines if line.startswith("FAIL  data: ")))
    shown = "\n".join(lines[failure + 1 : failure + 8])
    assert 'prepare.py", line 2, in prepare' in shown and "preparation" not in shown
    passed, skipped = labels.count("PASS"), labels.count("skip")
    assert lines[-1].startswith(f"{passed} passed, 1 failed, {skipped} skipped in ")


@pytest.mark.parametrize(
    ("levels", "metric", "better", "found"),
    [
        (Levels(starter=Baseline(mean=0.95, sd=0.001, n=8)), "accuracy", "higher", True),
        (Levels(starter=Baseline(mean=0.85, sd=0.001, n=8)), "accuracy", "higher", False),
        (Levels(starter=Baseline(mean=0.85, sd=0.1, n=8)), "accuracy", "higher", True),
        (Levels(starter=Baseline(mean=95.0, sd=0.1, n=8)), "accuracy in percent", "higher", False),
        (Levels(starter=Baseline(mean=0.95, sd=0.001, n=8)), "steps per second", "higher", False),
        (Levels(starter=Baseline(mean=0.05, sd=0.001, n=8)), "error rate", "lower", False),
        (
            Levels(starter=Baseline(mean=5.0, sd=0.1, n=8), ceiling=Ceiling(score=4.8, how="known")),
            "error",
            "lower",
            True,
        ),
    ],
)
def test_a_baseline_that_no_score_can_beat_is_pointed_out(
    levels: Levels, metric: str, better: str, found: bool
) -> None:
    problem = find_unreachable_success(levels, metric, better)
    assert bool(problem) == found
    assert not problem or "Use a weaker starter, or a metric with more room" in problem


def test_a_folder_that_is_no_task_fails_and_skips_the_rest(cli: Cli, tmp_path: Path) -> None:
    completed = cli("check", tmp_path, "--json")
    report = json.loads(completed.stdout)
    assert (completed.returncode, report["fail"], report["pass"]) == (1, 1, 0)
    assert "task.toml is missing" in report["checks"][0]["detail"]
