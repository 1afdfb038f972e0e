"""Step grades and anytime curves of real runs."""

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from run_factory import make_run

from mlagentbench.analysis.anytime import (
    StepGrade,
    average_curves,
    build_curve,
    grade_steps,
    read_step_grades,
)
from mlagentbench.analysis.runs import Run, read_runs
from mlagentbench.environment.environment import Environment
from mlagentbench.grading.grade import grade
from mlagentbench.records import Call, Result
from mlagentbench.runner.folder import GRADES_FILE, RunFolder
from mlagentbench.runner.setup import Setup, prepare_setup

Play = Callable[..., Result]
Variant = Callable[..., Path]
COUNTING_GRADER = """
import os
from pathlib import Path
from mlagentbench.errors import InvalidSubmission

COUNT = Path({count!r})
with COUNT.open("a") as file:
    file.write("loaded\\n")
seen = []


def grade(submission, private):
    text = submission.read_text()
    with COUNT.open("a") as file:
        file.write(f"graded {{os.getpid()}}\\n")
    seen.append(text)
    if len(seen) > 1:
        return -1.0  # state leaked from one submission to another
    if Path("left").exists():
        return -2.0
    Path("left").write_text("here")
    if "crash" in text:
        os.kill(os.getpid(), 9)
    if "endless loop" in text:
        while True:
            pass
    rows = [line.split(",") for line in text.split()[1:]]
    if len(rows) != 10:
        raise InvalidSubmission("ten rows are needed")
    return sum(abs(float(value) - int(id)) for id, value in rows) / 10
"""


def csv_rows(offset: float) -> str:
    return "id,value\n" + "".join(f"{n},{n + offset}\n" for n in range(10))


def write_submissions(*contents: str) -> Callable[[Environment], None]:
    def act(env: Environment) -> None:
        for content in contents:
            env.step(Call(action="Write File", args={"file_name": "submission.csv", "content": content}))
            env.step(Call(action="List Files"))

    return act


@pytest.fixture
def count_calls(tmp_path: Path) -> Callable[[], dict[str, int]]:
    def count() -> dict[str, int]:
        lines = (tmp_path / "count").read_text().split()
        return {word: lines.count(word) for word in ("loaded", "graded")}

    return count


@pytest.fixture
def setup(variant: Variant, tmp_path: Path) -> Setup:
    """The toy task with a fast grader that logs its calls."""
    source = COUNTING_GRADER.format(count=str(tmp_path / "count"))
    folder = variant({"grade.py": source}, "light")
    (folder / "task.toml").write_text("grading_minutes = 0.05\n" + (folder / "task.toml").read_text())
    return prepare_setup(str(folder), "open", "bwrap", lambda line: None)


@pytest.fixture
def play_runs(play: Play, setup: Setup, tmp_path: Path) -> Callable[..., list[Run]]:
    """Makes runs with these submissions, one after another, whose steps are not graded yet."""

    def play_all(*runs: tuple[str, ...]) -> list[Run]:
        for number, contents in enumerate(runs):
            play(write_submissions(*contents), f"runs/{number}", setup=setup)
        (tmp_path / "count").write_text("")
        return read_runs([tmp_path / "runs"])

    return play_all


def scores(run: Run) -> list[float | str]:
    return [grade.invalid if grade.score is None else grade.score for grade in read_step_grades(run)]


def test_every_step_of_every_run_is_graded_and_each_submission_once(
    play_runs: Callable[..., list[Run]], count_calls: Callable[[], dict[str, int]]
) -> None:
    one, other = play_runs(("", csv_rows(4), csv_rows(1)), (csv_rows(1), csv_rows(2), csv_rows(4)))
    assert read_step_grades(one) == () and build_curve(one, read_step_grades(one)) == ()
    assert grade_steps([one, other], lambda line: None) == []
    assert scores(one) == ["submission.csv is missing", *["ten rows are needed"] * 2, 4, 4, 1, 1]
    assert scores(other) == ["submission.csv is missing", 1, 1, 2, 2, 4, 4]
    workers = min(len(os.sched_getaffinity(0)), 5)
    assert count_calls()["graded"] == 4 and count_calls()["loaded"] <= workers


def test_graded_steps_are_not_graded_again(
    play_runs: Callable[..., list[Run]], count_calls: Callable[[], dict[str, int]]
) -> None:
    (run,) = play_runs((csv_rows(4), csv_rows(1)))
    grade_steps([run], lambda line: None)
    before = (run.folder.path / GRADES_FILE).read_bytes(), count_calls()
    grade_steps([run], lambda line: None)
    assert ((run.folder.path / GRADES_FILE).read_bytes(), count_calls()) == before


def test_step_grades_equal_those_of_a_separate_grader_process(
    play_runs: Callable[..., list[Run]], setup: Setup
) -> None:
    (run,) = play_runs((csv_rows(4), "", csv_rows(1)))
    grade_steps([run], lambda line: None)
    store = run.folder.open_store(setup.data, writable=False)
    for step_grade in read_step_grades(run):
        alone = grade(setup.task, setup.data, store, step_grade.step, setup.sandbox)
        assert (step_grade.score, step_grade.invalid) == (alone.score, alone.invalid)


@pytest.mark.parametrize("problem", ["crash", "endless loop"])
def test_a_submission_that_crashes_the_grader_is_a_fault_and_affects_no_other(
    play_runs: Callable[..., list[Run]], problem: str, tmp_path: Path, until: Callable[..., None]
) -> None:
    (run,) = play_runs((csv_rows(4), problem, csv_rows(1)))
    lines: list[str] = []
    (fault,) = grade_steps([run], lines.append)
    assert lines == [fault] and fault.startswith("0, step 3: toy/grade.py ")
    assert {grade.step: grade.score for grade in read_step_grades(run)} == {0: None, 1: 4, 2: 4, 5: 1, 6: 1}
    graders = [word for word in (tmp_path / "count").read_text().split() if word.isdigit()]
    assert len(graders) == 4  # the crashing submission was graded again in a separate process
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in graders))


def test_a_link_or_a_folder_in_place_of_the_submission_is_invalid_and_never_opened(
    play: Play, setup: Setup, tmp_path: Path
) -> None:
    def act(env: Environment) -> None:
        script = "import os; os.symlink('/etc/passwd', 'submission.csv')"
        env.step(Call(action="Python REPL", args={"command": script}))
        env.step(
            Call(
                action="Python REPL",
                args={"command": "os.remove('submission.csv'); os.mkdir('submission.csv')"},
            )
        )

    play(act, "runs/0", setup=setup)
    (run,) = read_runs([tmp_path / "runs"])
    grade_steps([run], lambda line: None)
    expected = [
        "submission.csv is missing",
        "submission.csv is a link, not a file",
        "submission.csv is a folder, not a file",
    ]
    assert scores(run) == expected


def test_rewinding_a_run_removes_its_step_grades(play_runs: Callable[..., list[Run]]) -> None:
    (run,) = play_runs((csv_rows(4), csv_rows(1)))
    grade_steps([run], lambda line: None)
    RunFolder(run.folder.path).rewind(2)
    assert read_step_grades(run) == ()


def test_grades_of_a_run_that_was_resumed_meanwhile_are_not_stored(
    play_runs: Callable[..., list[Run]], setup: Setup, tmp_path: Path
) -> None:
    done, changed = play_runs((csv_rows(4), csv_rows(1)), (csv_rows(4), csv_rows(1)))
    source = setup.task.folder / "grade.py"
    wait = f"while not Path({str(tmp_path / 'go')!r}).exists(): pass\n"
    source.write_text(source.read_text().replace("rows = [", f"{wait}    rows = ["))
    settings = setup.task.folder / "task.toml"
    settings.write_text(settings.read_text().replace("grading_minutes = 0.05", "grading_minutes = 1"))
    with ThreadPoolExecutor() as pool:
        grading = pool.submit(grade_steps, [done, changed], lambda line: None)
        try:
            while "graded" not in (tmp_path / "count").read_text():
                assert not grading.done()
            with changed.folder.lock():
                changed.folder.rewind(2)
        finally:
            (tmp_path / "go").touch()
        faults = grading.result()
    assert faults == ["1: the run was resumed while its steps were graded. Grade it again."]
    assert [grade.score for grade in read_step_grades(done, own_grader_only=False)] == [None, 4, 4, 1, 1]
    assert read_step_grades(changed, own_grader_only=False) == ()


def test_a_run_in_progress_is_not_graded(play_runs: Callable[..., list[Run]]) -> None:
    one, other = play_runs((csv_rows(4),), (csv_rows(4),))
    with one.folder.lock():
        assert grade_steps([one, other], lambda line: None) == [
            f"0: Another process is running {one.folder.path}. Grade it again when that run has finished."
        ]
    assert read_step_grades(one) == () and scores(other)[1:] == [4, 4]
    with one.folder.lock_shared(), one.folder.lock_shared():
        assert grade_steps([one], lambda line: None) == []
    assert scores(one)[1:] == [4, 4]


def test_grades_by_another_version_of_the_grader_are_not_the_grades_of_the_run(
    play_runs: Callable[..., list[Run]], setup: Setup
) -> None:
    (run,) = play_runs((csv_rows(4),))
    source = setup.task.folder / "grade.py"
    source.write_text(source.read_text() + "# other\n")
    lines: list[str] = []
    grade_steps([run], lines.append)
    assert lines == [
        "note: the task and grader changed since 0 started; the step grades are not comparable with its score"
    ]
    assert read_step_grades(run) == () and [
        grade.score for grade in read_step_grades(run, own_grader_only=False)
    ] == [
        None,
        4,
        4,
    ]


def test_grades_stored_in_one_run_are_not_trusted_for_another(play_runs: Callable[..., list[Run]]) -> None:
    one, other = play_runs((csv_rows(4),), (csv_rows(4),))
    grade_steps([one], lambda line: None)
    path = one.folder.path / GRADES_FILE
    path.write_text(path.read_text().replace('"score":4.0', '"score":0.0'))
    grade_steps([one, other], lambda line: None)
    assert scores(other)[1:] == [4, 4]


def test_the_curve_has_the_improvement_of_each_state_and_the_best_so_far(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 0.2, observations=("a", "b", "c", "d"))
    key = f"{run.spec.hashes.grader}:{run.spec.hashes.data}:x"
    found = [(0, None, "none"), (1, 9.0, ""), (2, 6.0, ""), (3, None, "broken"), (4, 8.0, "")]
    lines = [
        StepGrade(step=step, score=score, invalid=why, key=key).model_dump_json()
        for step, score, why in found
    ]
    (run.folder.path / GRADES_FILE).write_text("\n".join(lines) + "\n")
    points = build_curve(run, read_step_grades(run))
    assert [point.seconds for point in points] == [0, 1, 2, 3, 4]
    assert [point.improvement for point in points] == [
        None,
        pytest.approx(0.1),
        pytest.approx(0.4),
        None,
        pytest.approx(0.2),
    ]
    assert [point.best for point in points] == [None, *(pytest.approx(x) for x in (0.1, 0.4, 0.4, 0.4))]
    # By hand: a curve counts as 0 before its first valid submission, and keeps its last value after its end.
    short = points[:2]
    assert average_curves([points, short], "step", [0, 1, 2, 5]) == pytest.approx([0, 0.1, 0.25, 0.25])
    assert average_curves([points, short], "seconds", [0.5, 2.5]) == pytest.approx([0, 0.25])


def test_the_command_grades_all_runs_of_a_folder_and_names_the_run_of_each_line(
    play_runs: Callable[..., list[Run]], cli: Callable[..., object], tmp_path: Path
) -> None:
    play_runs((csv_rows(4),), (csv_rows(1),))
    found = json.loads(cli("grade", tmp_path / "runs", "--every-step", "--json").stdout)
    assert [(row["run"], row["step"], row["score"]) for row in found if row["score"]] == [
        ("0", 1, 4),
        ("0", 2, 4),
        ("1", 1, 1),
        ("1", 2, 1),
    ]
    lines = cli("grade", tmp_path / "runs").stdout.splitlines()
    assert [line.split()[:4] for line in lines] == [["0", "step", "2", "4"], ["1", "step", "2", "1"]]
