import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlagentbench.environment.environment import Environment
from mlagentbench.errors import TaskFault
from mlagentbench.grading.grade import grade
from mlagentbench.grading.run_grader import Grade
from mlagentbench.records import Call, Result
from mlagentbench.runner.setup import prepare_setup
from mlagentbench.system.cache import cache_dir

Play = Callable[..., Result]
CONSTANT_GRADE = "def grade(submission, private): return 1.0\n"
GRADE_DEF = "from mlagentbench.errors import InvalidSubmission\ndef grade(submission, private):\n    "
CRASHES = {
    "raises": ("raise ValueError('no idea')", r"ValueError: no idea \(grade\.py, line 3\)$"),
    "exits": ("import sys; sys.exit(0)", "exit code 0"),
    "exits with a code": ("import sys; sys.exit(7)", "exit code 7"),
    "exits immediately": ("import os; os._exit(0)", "exit code 0"),
    "segfault": ("import ctypes; ctypes.string_at(0)", "killed by SIGSEGV"),
    "is killed": ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL"),
    "nan": ("return float('nan')", "the grader returned nan"),
    "inf": ("return float('-inf')", "the grader returned -inf"),
    "none": ("return None", "TypeError"),
    "text": ("return 'excellent'", "ValueError: could not convert"),
    "garbage": ("import sys; print('\\0' * 10**7); sys.stderr.write('x' * 10**7); 1 / 0", "ZeroDivision"),
    "damaged answer": (
        "import os, sys; open(sys.argv[5], 'w').write('{'); os._exit(0)",
        "wrote an invalid answer",
    ),
}


@pytest.fixture
def graded(variant: Callable[..., Path], open_env: Callable[..., Environment]) -> Callable[..., Grade]:
    def grade_with(text: str, toml: str = "") -> Grade:
        files: dict[str, str | None] = {"grade.py": text}
        folder = variant(files)
        (folder / "task.toml").write_text(toml + (folder / "task.toml").read_text())
        setup = prepare_setup(str(folder), "open", "bwrap", lambda line: None)
        env = open_env(setup=setup)
        env.step(Call(action="Write File", args={"file_name": "submission.csv", "content": "id,value\n"}))
        return grade(setup.task, setup.data, env.context.store, 1, setup.sandbox)

    return grade_with


@pytest.mark.parametrize(("body", "sentence"), CRASHES.values(), ids=CRASHES.keys())
def test_a_crash_of_the_grader_is_a_fault_and_never_a_zero(
    graded: Callable[..., Grade], body: str, sentence: str
) -> None:
    with pytest.raises(TaskFault, match=sentence) as caught:
        graded(GRADE_DEF + body + "\n")
    assert "toy/grade.py" in str(caught.value) and len(str(caught.value)) < 1000


def test_a_grader_that_cannot_be_loaded_is_a_fault(graded: Callable[..., Grade]) -> None:
    with pytest.raises(TaskFault, match=r"SyntaxError|invalid syntax"):
        graded("def grade(:\n")


def test_a_crash_of_the_grader_shows_its_own_frames_only(graded: Callable[..., Grade]) -> None:
    body = "import json\ndef read(path):\n    return json.loads('{')\n"
    with pytest.raises(TaskFault) as caught:
        graded(body + "def grade(submission, private):\n    return read(submission)\n")
    assert str(caught.value).endswith("(char 1) (grade.py, line 3)")
    frames = re.findall(r'File "(.+?)", line (\d+)', caught.value.details)
    assert [(Path(file).name, line) for file, line in frames] == [("grade.py", "5"), ("grade.py", "3")]
    assert "return json.loads('{')" in caught.value.details


def test_a_grader_that_takes_too_long_is_a_fault_and_is_killed(
    graded: Callable[..., Grade], tmp_path: Path
) -> None:
    body = f"import os; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n    while True: pass\n"
    with pytest.raises(TaskFault, match=r"toy/grade\.py took longer than 0\.01 minutes"):
        graded(GRADE_DEF + body, toml="grading_minutes = 0.01\n")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_an_invalid_submission_is_a_result_and_may_quote_anything(graded: Callable[..., Grade]) -> None:
    found = graded(GRADE_DEF + "raise InvalidSubmission('bad \\udcff\\x00 ' + 'x' * 10**6)\n")
    assert found.score is None and found.invalid.startswith("bad \\udcff")
    assert len(found.invalid) == 1000


def test_rule_violations_are_reported_with_the_score(graded: Callable[..., Grade]) -> None:
    found = graded("def violations(submission): return ['uses \\udcff', 7]\n" + CONSTANT_GRADE)
    assert (found.score, found.violations) == (1.0, ("uses \\udcff", "7"))


def test_very_many_violations_are_cut_off(graded: Callable[..., Grade]) -> None:
    found = graded("def violations(submission): return ['no'] * 10**6\n" + CONSTANT_GRADE).violations
    assert len(found) == 51 and found[-1] == "and 999,950 more violations"


def test_a_crash_of_the_rule_check_is_a_fault(graded: Callable[..., Grade]) -> None:
    with pytest.raises(TaskFault, match=r"ValueError: no idea \(grade\.py, line 1\)$"):
        graded("def violations(submission): raise ValueError('no idea')\n" + CONSTANT_GRADE)


BREAKS = {"slow": "while True: pass", "crash": "import ctypes; ctypes.string_at(0)"}


@pytest.mark.parametrize("body", BREAKS.values(), ids=BREAKS.keys())
def test_scripts_that_crash_the_rule_check_or_make_it_endless_are_reported(tmp_path: Path, body: str) -> None:
    for name in ("sources", "earlier/0", "earlier/1", "earlier/2"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "earlier/1/strange").touch()
    rules = f"def violations(sources):\n    if (sources / 'strange').exists():\n        {body}\n"
    rules += "    return [sources.name]\n"
    (tmp_path / "grade.py").write_text(rules + CONSTANT_GRADE)
    patch = "from pathlib import Path; from mlagentbench.grading import grader_process"
    patch += "; grader_process.RULE_CHECK_CPU_S, at = 0.3, Path.cwd()"
    call = "grader_process.main(at, at, at / 'sources', at, at / 'answer', at / 'earlier')"
    subprocess.run([sys.executable, "-c", f"{patch}; {call}"], cwd=tmp_path, check=True, timeout=60)
    unchecked = ["not all scripts could be checked"]
    assert json.loads((tmp_path / "answer").read_text()) == {
        "score": 1.0,
        "violations": ["sources"],
        "earlier": [["0"], unchecked, unchecked],
    }


def test_the_grader_sees_no_secrets_and_its_output_is_no_answer(
    graded: Callable[..., Grade], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "s3cret")
    body = "import os\n    print('{\"score\": 99}')\n    return float('s3cret' in str(os.environ))\n"
    assert graded(GRADE_DEF + body).score == 0.0


@pytest.mark.parametrize("variable", ["MLAGENTBENCH_HOME", "XDG_CACHE_HOME"])
def test_the_grader_uses_the_same_cache_folder_as_the_harness(
    graded: Callable[..., Grade], variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = cache_dir()
    (tmp_path / "mlagentbench").symlink_to(cache)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLAGENTBENCH_HOME", raising=False)
    monkeypatch.setenv(variable, "mlagentbench" if variable == "MLAGENTBENCH_HOME" else str(tmp_path))
    body = "from mlagentbench.system.cache import cache_dir\n"
    body += f"    return float(cache_dir().samefile({str(cache)!r}))\n"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert graded(GRADE_DEF + body).score == 1.0


def test_a_workspace_does_not_reach_the_grader_s_imports(graded: Callable[..., Grade]) -> None:
    assert (
        graded("import sys\ndef grade(submission, private):\n    return float('' in sys.path)\n").score == 0.0
    )


def test_the_grader_can_read_files_that_an_agent_locked(variant: Callable[..., Path], play: Play) -> None:
    body = "folder = submission / 'in'\n"
    body += "    return float(folder.stat().st_mode & (folder / 'x').stat().st_mode & 0o600)\n"
    folder = variant({"grade.py": GRADE_DEF + body})
    toml = (folder / "task.toml").read_text().replace("[limits]", 'submission = "."\n[limits]')
    (folder / "task.toml").write_text(toml)
    lock = "import os; os.mkdir('in'); open('in/x', 'w'); os.chmod('in/x', 0); os.chmod('in', 0)"
    lock += "; os.symlink('in', 'l')"

    def act(env: Environment) -> None:
        env.step(Call(action="Write File", args={"file_name": "lock.py", "content": lock}))
        env.step(Call(action="Execute Script", args={"script_name": "lock.py"}))
        env.step(Call(action="Final Answer", args={"final_answer": ""}))

    assert play(act, setup=prepare_setup(str(folder), "open", "bwrap", lambda line: None)).score == 0o600


def test_a_grader_fault_voids_the_run_and_a_resume_grades_again(
    variant: Callable[..., Path], play: Play, tmp_path: Path
) -> None:
    flag = tmp_path / "repaired"
    body = f"import os; assert os.path.exists({str(flag)!r}), 'the grader is broken'\n    return 2.5\n"
    setup = prepare_setup(str(variant({"grade.py": GRADE_DEF + body})), "open", "bwrap", lambda line: None)

    def act(env: Environment) -> None:
        env.step(Call(action="Execute Script", args={"script_name": "train.py"}))
        env.step(Call(action="Final Answer", args={"final_answer": ""}))

    result = play(act, setup=setup)
    assert (result.ending, result.score, result.success, result.valid) == ("fault", None, False, False)
    assert "TaskFault" in result.note and "the grader is broken" in result.note
    flag.touch()
    result = play(act, setup=setup)
    assert (result.ending, result.score, result.success, result.steps) == ("submitted", 2.5, True, 2)


def test_rules_are_checked_in_the_scripts_next_to_a_table(
    variant: Callable[..., Path], open_env: Callable[..., Environment]
) -> None:
    rules = (
        "from mlagentbench.grading.checks import numbers_above\n"
        "def violations(sources):\n    return numbers_above(sources, 'train.py', 'epoch', 10)\n"
    )
    setup = prepare_setup(
        str(variant({"grade.py": CONSTANT_GRADE + rules})), "open", "bwrap", lambda line: None
    )
    env = open_env(setup=setup)
    write = {"train.py": "import deep.net\n", "deep/net.py": "EPOCHS = 99\n", "submission.csv": "id,value\n"}
    for name, content in write.items():
        env.step(Call(action="Write File", args={"file_name": name, "content": content}))
    long = "/".join(["x" * 200] * 10)
    env.step(Call(action="Write File", args={"file_name": f"{long}/a.py", "content": "EPOCHS = 99\n"}))
    found = grade(setup.task, setup.data, env.context.store, 4, setup.sandbox)
    assert (found.score, found.violations) == (
        1.0,
        ("deep/net.py line 1 sets EPOCHS to 99; at most 10 is allowed",),
    )
