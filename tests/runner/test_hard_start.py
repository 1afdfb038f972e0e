"""Runs that start from the reference or the expert instead of the starter."""

import json
import shutil

import pytest

import mlagentbench
from mlagentbench.analysis.leaderboard import build_leaderboard
from mlagentbench.analysis.runs import read_runs
from mlagentbench.analysis.settings import label_runs
from mlagentbench.errors import UsageError
from mlagentbench.formatting import describe_verdict
from mlagentbench.grading.verdict import judge_score
from mlagentbench.levels import required_score
from mlagentbench.records import AgentSpec, Baseline, Call, Limits, Result
from mlagentbench.runner.batch.local_runner import prepare_setups
from mlagentbench.runner.batch.plan import read_plan
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import prepare_setup
from mlagentbench.runner.start import measure_baseline, start_run
from mlagentbench.runner.verify import verify_run

SOLUTION = """
ids = [line.strip() for line in open("questions.csv")][1:]
with open("submission.csv", "w") as file:
    file.write("id,value\\n" + "".join(f"{{i}},{{int(i) + {error}}}\\n" for i in ids))
"""
LEVELS = """
[editions.open.levels]
starter = { mean = 5.0, sd = 0.1, n = 8 }
reference = { mean = 2.0, sd = 0.01, n = 8 }
expert = { mean = 1.0, sd = 0.01, n = 8 }
ceiling = { score = 0.0, how = "every answer is known" }
"""


def ignore(line):
    pass


@pytest.fixture(scope="module")
def task(tmp_path_factory, request):
    """The toy task with a weaker reference, an expert and all levels."""
    folder = tmp_path_factory.mktemp("levels") / "toy"
    shutil.copytree(request.config.rootpath / "tests" / "toy", folder)
    for name, error in (("reference", 2), ("expert", 1)):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "train.py").write_text(SOLUTION.format(error=error))
    lines = (folder / "task.toml").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("baseline", "reference"))]
    (folder / "task.toml").write_text("\n".join(kept) + LEVELS)
    return folder


def set_up(task, start):
    return prepare_setup(str(task), "open", "bwrap", ignore, start=start)


@pytest.mark.parametrize(("start", "score", "progress"), [("reference", 2.0, 0.75), ("expert", 1.0, 1.0)])
def test_the_unchanged_start_is_no_success(task, tmp_path, start, score, progress):
    setup = set_up(task, start)
    nothing = start_run(setup, "nothing", tmp_path / "nothing")
    baseline = start_run(setup, "baseline", tmp_path / "baseline")
    assert nothing.score is None and not nothing.success
    assert (baseline.score, baseline.progress, baseline.gap_closed) == (score, progress, 0.0)
    assert (baseline.start, baseline.success) == (start, False)


def test_a_better_solution_succeeds_and_the_run_verifies(task, tmp_path):
    setup = set_up(task, "reference")
    result = start_run(setup, "expert", tmp_path / "run")
    assert (result.score, result.gap_closed, result.progress, result.success) == (1.0, 1.0, 1.0, True)
    checks = verify_run(RunFolder(tmp_path / "run"), setup)
    assert [check.what for check in checks if not check.holds] == []
    spec = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps({**spec, "start": "expert"}))
    failed = [check.what for check in verify_run(RunFolder(tmp_path / "run"), setup) if not check.holds]
    assert "the baseline is the known one" in failed and "result.json: start" in failed


def test_the_agent_is_told_that_it_starts_from_a_strong_solution(task, tmp_path):
    statements = {}
    for start in ("starter", "expert"):
        start_run(
            set_up(task, start),
            "nothing",
            tmp_path / start,
            on_open=lambda env, start=start: statements.update({start: env.problem_statement}),
        )
    assert "weak starter" in statements["starter"] and "the expert" not in statements["starter"]
    assert (
        "This code scores 5 (mean absolute error, lower is better): the mean of 8 runs"
        in statements["starter"]
    )
    assert "score is 4.5 or lower. It then is at least 10% better than this code" in statements["starter"]
    assert "strong solution of this task, the expert" in statements["expert"]
    assert "This code scores 1 (" in statements["expert"]
    assert "is 0.9 or lower. It then closes at least 10% of the gap to the ceiling" in statements["expert"]


def test_the_bar_that_agents_are_told_is_the_bar_of_the_verdict(task):
    for start in ("starter", "reference", "expert"):
        spec = set_up(task, start).create_run_spec(AgentSpec(agent="none"), 0, Limits())
        bar = required_score(spec.known_levels, start, spec.better, spec.scale)
        verdicts = [judge_score(score, spec) for score in (bar - 0.001, bar + 0.001)]
        assert [verdict.improved for verdict in verdicts] == [True, False]


def test_a_start_without_a_known_score_is_reported_and_not_judged(task, tmp_path):
    folder, lines, statements = tmp_path / "toy", [], []
    shutil.copytree(task, folder)
    text = (folder / "task.toml").read_text()
    (folder / "task.toml").write_text(
        "".join(line for line in text.splitlines(True) if "expert =" not in line)
    )
    (folder / "expert" / "train.py").write_text(SOLUTION.format(error=0.5))  # never measured
    setup = prepare_setup(str(folder), "open", "bwrap", lines.append, start="expert")
    assert lines[-1].startswith("Warning: The score of the expert is not known for this data")
    assert lines[-1].endswith(f"mlagentbench baseline {folder} --start expert")
    result = start_run(
        setup, "baseline", tmp_path / "run", on_open=lambda env: statements.append(env.problem_statement)
    )
    assert (result.score, result.valid, result.success) == (0.5, True, None)
    assert describe_verdict(result).startswith("not judged: No baseline is known.")
    assert "not judged as a success or failure" in statements[0]
    assert [check.what for check in verify_run(RunFolder(tmp_path / "run"), setup) if not check.holds] == []
    old = json.loads((tmp_path / "run" / "result.json").read_text())
    assert Result.model_validate({**old, "success": False}).success is None


@pytest.mark.usefixtures("unsaved_figures")
def test_hard_starts_are_never_mixed_with_ordinary_runs(task, tmp_path, cli):
    for start in ("starter", "reference"):
        start_run(set_up(task, start), "expert", tmp_path / "runs" / start)
    runs = read_runs([tmp_path / "runs"])
    assert sorted(label_runs(runs)) == ["toy (from reference)", "toy (from starter)"]
    assert label_runs([run for run in runs if run.spec.start == "reference"]) == ["toy (from reference)"]
    with pytest.raises(UsageError, match=r"Starts cannot be mixed.*--exclude reference"):
        build_leaderboard(runs)
    site = tmp_path / "site"
    refused = cli("report", tmp_path / "runs", "-o", site)
    assert refused.returncode == 2 and "Starts cannot be mixed" in refused.stderr and not site.exists()
    assert cli("report", tmp_path / "runs", "-o", site, "--exclude", "reference").returncode == 0
    assert "from reference" not in (site / "index.html").read_text()


def test_levels_of_other_data_are_measured_for_each_start(task):
    setup = set_up(task, "expert")
    measured, scores = measure_baseline(setup, 2, ignore)
    assert (measured.mean, measured.sd, scores) == (1.0, 0.0, [1.0, 1.0])
    assert prepare_setup(str(task), "open", "bwrap", ignore, start="expert").baseline == Baseline(
        mean=1.0, sd=0.01, n=8
    )


def test_a_wrong_start_is_a_usage_error(cli, toy, tmp_path):
    done = cli("run", toy, "--start", "exprt", "--out", tmp_path / "run")
    assert done.returncode == 2 and "Available: starter, reference, expert." in done.stderr
    done = cli("run", toy, "--start", "expert", "--out", tmp_path / "run")
    assert done.returncode == 2 and "has no folder expert" in done.stderr


def test_a_plan_takes_a_start(task, tmp_path):
    plan = {"tasks": [str(task)], "agents": ["expert"], "sandbox": "bwrap"}
    jobs = read_plan(None, {**plan, "start": "reference"}).expand_jobs()
    setups = prepare_setups(jobs, ignore)
    assert [setup.start for setup in setups.values()] == ["reference"]
    assert jobs[0].name != read_plan(None, plan).expand_jobs()[0].name
    with pytest.raises(UsageError, match="start"):
        read_plan(None, {**plan, "start": "exprt"})


def test_a_session_a_gym_environment_and_an_inspect_task_take_a_start(task, tmp_path):
    from mlagentbench.adapters.gym import ResearchEnv
    from mlagentbench.adapters.inspect.tasks import create_task

    with mlagentbench.session(str(task), out=tmp_path / "run", start="expert") as session:
        step = session.step(Call(action="Read File", args={"file_name": "train.py"}))
    assert step.observation == (task / "expert" / "train.py").read_text()
    assert session.result and session.result.start == "expert"
    assert ResearchEnv(str(task), start="reference").setup.start == "reference"
    sample = create_task(str(task), start="expert").dataset[0]
    assert sample.metadata and sample.metadata["start"] == "expert"
    assert "## Starting point" in sample.input[0].text
