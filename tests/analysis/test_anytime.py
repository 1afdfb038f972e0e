import json
import os
import signal
from collections.abc import Callable, Iterator
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
from mlagentbench.grading.forking_grader import ForkingGrader, open_forking_grader
from mlagentbench.grading.grade import grade
from mlagentbench.records import Call, Result
from mlagentbench.runner.folder import GRADES_FILE, RunFolder
from mlagentbench.runner.setup import Setup, prepare_setup

Play = Callable[..., Result]
Variant = Callable[..., Path]
LIGHT = """
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
        return -1.0  # one submission heard of another
    if Path("left").exists():
        return -2.0
    Path("left").write_text("here")
    if "crash" in text:
        os.kill(os.getpid(), 9)
    if "for ever" in text:
        while True:
            pass
    rows = [line.split(",") for line in text.split()[1:]]
    if len(rows) != 10:
        raise InvalidSubmission("ten rows are needed")
    return sum(abs(float(value) - int(id)) for id, value in rows) / 10
"""


def rows(off: float) -> str:
    return "id,value\n" + "".join(f"{n},{n + off}\n" for n in range(10))


def writes(*contents: str) -> Callable[[Environment], None]:
    def act(env: Environment) -> None:
        for content in contents:
            env.step(Call(action="Write File", args={"file_name": "submission.csv", "content": content}))
            env.step(Call(action="List Files"))

    return act


@pytest.fixture
def counted(tmp_path: Path) -> Callable[[], dict[str, int]]:
    def count() -> dict[str, int]:
        lines = (tmp_path / "count").read_text().split()
        return {word: lines.count(word) for word in ("loaded", "graded")}

    return count


@pytest.fixture
def setup(variant: Variant, tmp_path: Path) -> Setup:
    """The toy with a grader that counts its deeds and starts at once."""
    light = LIGHT.format(count=str(tmp_path / "count"))
    folder = variant({"grade.py": light}, "light")
    (folder / "task.toml").write_text("grading_minutes = 0.05\n" + (folder / "task.toml").read_text())
    return prepare_setup(str(folder), "open", "bwrap", lambda line: None)


@pytest.fixture
def played(play: Play, setup: Setup, tmp_path: Path) -> Callable[..., list[Run]]:
    """Runs that leave these submissions, one after another, and have not been graded by step."""

    def play_all(*runs: tuple[str, ...]) -> list[Run]:
        for number, contents in enumerate(runs):
            play(writes(*contents), f"runs/{number}", setup=setup)
        (tmp_path / "count").write_text("")
        return read_runs([tmp_path / "runs"])

    return play_all


def scores(run: Run) -> list[float | str]:
    return [grade.invalid if grade.score is None else grade.score for grade in read_step_grades(run)]


def test_every_step_of_every_run_is_graded_and_each_submission_once(
    played: Callable[..., list[Run]], counted: Callable[[], dict[str, int]]
) -> None:
    one, other = played(("", rows(4), rows(1)), (rows(1), rows(2), rows(4)))
    assert read_step_grades(one) == () and build_curve(one) == ()
    assert grade_steps([one, other], lambda line: None) == []
    assert scores(one) == ["submission.csv is missing", *["ten rows are needed"] * 2, 4, 4, 1, 1]
    assert scores(other) == ["submission.csv is missing", 1, 1, 2, 2, 4, 4]
    workers = min(len(os.sched_getaffinity(0)), 5)
    assert counted()["graded"] == 4 and counted()["loaded"] <= workers


def test_what_is_graded_is_not_graded_again(
    played: Callable[..., list[Run]], counted: Callable[[], dict[str, int]]
) -> None:
    (run,) = played((rows(4), rows(1)))
    grade_steps([run], lambda line: None)
    before = (run.folder.path / GRADES_FILE).read_bytes(), counted()
    grade_steps([run], lambda line: None)
    assert ((run.folder.path / GRADES_FILE).read_bytes(), counted()) == before


def test_the_grades_are_those_of_one_process_each(played: Callable[..., list[Run]], setup: Setup) -> None:
    (run,) = played((rows(4), "", rows(1)))
    grade_steps([run], lambda line: None)
    store = run.folder.open_store(setup.data, writable=False)
    for found in read_step_grades(run):
        alone = grade(setup.task, setup.data, store, found.step, setup.sandbox)
        assert (found.score, found.invalid) == (alone.score, alone.invalid)


@pytest.mark.parametrize("trouble", ["crash", "for ever"])
def test_a_submission_on_which_the_grader_fails_is_a_fault_and_spoils_no_other(
    played: Callable[..., list[Run]], trouble: str, tmp_path: Path, until: Callable[..., None]
) -> None:
    (run,) = played((rows(4), trouble, rows(1)))
    said: list[str] = []
    (fault,) = grade_steps([run], said.append)
    assert said == [fault] and fault.startswith("0, step 3: toy/grade.py ")
    assert {grade.step: grade.score for grade in read_step_grades(run)} == {0: None, 1: 4, 2: 4, 5: 1, 6: 1}
    graders = [word for word in (tmp_path / "count").read_text().split() if word.isdigit()]
    assert len(graders) == 4  # the one with the trouble was asked again in a process of its own
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in graders))


@pytest.fixture
def grader(setup: Setup) -> Iterator[ForkingGrader]:
    with open_forking_grader(setup.task, setup.data, setup.sandbox) as found:
        yield found


def test_a_grader_that_was_killed_is_started_again(
    played: Callable[..., list[Run]],
    setup: Setup,
    grader: ForkingGrader,
    counted: Callable[[], dict[str, int]],
) -> None:
    (run,) = played((rows(4), rows(1)))
    store = run.folder.open_store(setup.data, writable=False)
    assert grader.grade(store, 1).score == 4
    assert grader._process
    os.kill(grader._process.pid, signal.SIGKILL)
    assert grader.grade(store, 3).score == 1  # by a process of its own
    assert grader.grade(store, 1).score == 4
    assert counted()["loaded"] == 3


def test_a_file_where_a_link_or_a_folder_lies_is_invalid_and_opened_by_nobody(
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
    kinds = [
        "submission.csv is missing",
        "submission.csv is a link, not a file",
        "submission.csv is a folder, not a file",
    ]
    assert scores(run) == kinds


def test_grades_go_when_the_run_goes_on_from_an_earlier_step(played: Callable[..., list[Run]]) -> None:
    (run,) = played((rows(4), rows(1)))
    grade_steps([run], lambda line: None)
    RunFolder(run.folder.path).rewind(2)
    assert read_step_grades(run) == ()


def test_what_was_graded_while_somebody_went_on_with_the_run_is_not_kept(
    played: Callable[..., list[Run]], setup: Setup, tmp_path: Path
) -> None:
    done, changed = played((rows(4), rows(1)), (rows(4), rows(1)))
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
    assert faults == ["1: somebody went on with it while it was graded; grade it again"]
    assert [grade.score for grade in read_step_grades(done, own_grader_only=False)] == [None, 4, 4, 1, 1]
    assert read_step_grades(changed, own_grader_only=False) == ()


def test_a_run_that_goes_on_just_now_is_graded_later(played: Callable[..., list[Run]]) -> None:
    one, other = played((rows(4),), (rows(4),))
    with one.folder.lock():
        assert grade_steps([one, other], lambda line: None) == [
            f"0: Another process is running {one.folder.path}; grade it when that has ended"
        ]
    assert read_step_grades(one) == () and scores(other)[1:] == [4, 4]
    with one.folder.lock_shared(), one.folder.lock_shared():
        assert grade_steps([one], lambda line: None) == []
    assert scores(one)[1:] == [4, 4]


def test_grades_by_another_grader_are_not_taken_for_the_run_s_own(
    played: Callable[..., list[Run]], setup: Setup
) -> None:
    (run,) = played((rows(4),))
    source = setup.task.folder / "grade.py"
    source.write_text(source.read_text() + "# other\n")
    said: list[str] = []
    grade_steps([run], said.append)
    assert said == [
        "note: the task and grader changed since 0 began; these are not the scores that it would have had"
    ]
    assert read_step_grades(run) == () and [
        grade.score for grade in read_step_grades(run, own_grader_only=False)
    ] == [
        None,
        4,
        4,
    ]


def test_grades_that_one_run_claims_are_not_believed_of_another(played: Callable[..., list[Run]]) -> None:
    one, other = played((rows(4),), (rows(4),))
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
    points = build_curve(run)
    assert [point.seconds for point in points] == [0, 1, 2, 3, 4]
    assert [point.improvement for point in points] == [
        None,
        pytest.approx(0.1),
        pytest.approx(0.4),
        None,
        pytest.approx(0.2),
    ]
    assert [point.best for point in points] == [None, *(pytest.approx(x) for x in (0.1, 0.4, 0.4, 0.4))]
    # By hand: nothing yet counts as no improvement, and whoever has ended keeps what there is.
    short = points[:2]
    assert average_curves([points, short], "step", [0, 1, 2, 5]) == pytest.approx([0, 0.1, 0.25, 0.25])
    assert average_curves([points, short], "seconds", [0.5, 2.5]) == pytest.approx([0, 0.25])


def test_the_command_grades_all_runs_of_a_folder_and_says_of_which_each_line_is(
    played: Callable[..., list[Run]], cli: Callable[..., object], tmp_path: Path
) -> None:
    played((rows(4),), (rows(1),))
    found = json.loads(cli("grade", tmp_path / "runs", "--every-step", "--json").stdout)
    assert [(row["run"], row["step"], row["score"]) for row in found if row["score"]] == [
        ("0", 1, 4),
        ("0", 2, 4),
        ("1", 1, 1),
        ("1", 2, 1),
    ]
    lines = cli("grade", tmp_path / "runs").stdout.splitlines()
    assert [line.split()[:4] for line in lines] == [["0", "step", "2", "4"], ["1", "step", "2", "1"]]
