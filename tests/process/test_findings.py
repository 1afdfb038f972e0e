"""Error modes, each in a real run that has it and in one that has not."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_model import FakeModel

from mlagentbench.agents.act import Act
from mlagentbench.agents.autogpt import Autogpt
from mlagentbench.agents.base import Agent
from mlagentbench.agents.baseline import Baseline
from mlagentbench.agents.nothing import Nothing
from mlagentbench.agents.react import React
from mlagentbench.agents.reference import Reference
from mlagentbench.agents.research import Research
from mlagentbench.agents.tools import Tools
from mlagentbench.agents.tuner import Tuner
from mlagentbench.analysis.anytime import grade_steps
from mlagentbench.analysis.runs import read_runs
from mlagentbench.environment.environment import Environment
from mlagentbench.errors import ModelFault
from mlagentbench.process.claims import extract_numbers, find_claims, is_supported
from mlagentbench.process.findings import Finding, collect_findings, rule_titles
from mlagentbench.records import Call, Reply, Result, ToolCall
from mlagentbench.runner.setup import prepare_setup

Play = Callable[..., Result]
GUESSING = """GUESS = {guess}
ids = [line.strip() for line in open("questions.csv")][1:]
open("submission.csv", "w").write("id,value\\n" + "".join(f"{{i}},{{GUESS}}\\n" for i in ids))
print("validation mean absolute error:", sum(abs(GUESS - int(i)) for i in ids) / len(ids))
"""


@pytest.fixture
def all_found(play: Play) -> Callable[..., tuple[Finding, ...]]:
    """What the rules see in a run of some steps; a step is a call, or a name and its arguments."""

    def play_out(*steps: Any, agent: Any = None, **told: Any) -> tuple[Finding, ...]:
        def behave(env: Environment) -> None:
            if agent:
                agent.run(env)
            for step in steps:
                env.step(step if isinstance(step, Call) else Call(action=step[0], args=step[1]))

        return collect_findings(read_runs([Path(play(behave, **told).folder)])[0])

    return play_out


@pytest.fixture
def found(all_found: Callable[..., tuple[Finding, ...]]) -> Callable[..., dict[str, Finding]]:
    """The same by kind, where no kind is seen twice."""

    def play_out(*steps: Any, **told: Any) -> dict[str, Finding]:
        seen = all_found(*steps, **told)
        assert len({finding.kind for finding in seen}) == len(seen), seen
        return {finding.kind: finding for finding in seen}

    return play_out


def write(name: str, content: str) -> tuple[str, dict[str, str]]:
    return "Write File", {"file_name": name, "content": content}


def execute(name: str = "train.py") -> tuple[str, dict[str, str]]:
    return "Execute Script", {"script_name": name}


def answer(text: str = "done") -> tuple[str, dict[str, str]]:
    return "Final Answer", {"final_answer": text}


@pytest.mark.parametrize("agent", [Baseline, Reference, Tuner], ids=lambda kind: kind.__name__)
def test_an_agent_that_makes_no_mistake_has_no_finding(found, agent):
    assert found(agent=agent()) == {}


def test_the_agent_that_does_nothing_submits_nothing(found):
    seen = found(agent=Nothing())
    assert list(seen) == ["no-submission"]
    assert (
        seen["no-submission"].sentence == "Nothing was left that could be graded: submission.csv is missing."
    )


def test_every_rule_has_a_title_and_there_are_those_that_were_asked_for():
    assert rule_titles().keys() >= {
        "parsing-error",
        "repeated-action",
        "unrepaired-error",
        "unshown-figure",
        "unexecuted-edit",
        "limit-reached",
        "no-submission",
        "worse-than-best",
        "broken-rule",
    }
    assert all(rule_titles().values())


def test_replies_that_cannot_be_read_are_parsing_errors_of_their_step(found):
    good = 'Thought: run\nAction: Execute Script\nAction Input: {"script_name": "train.py"}'
    done = 'Thought: submit\nAction: Final Answer\nAction Input: {"final_answer": "done"}'
    seen = found(agent=React(), models={"main": FakeModel([good, "What?", "Action: Dance", done])})
    assert list(seen) == ["parsing-error"]
    assert seen["parsing-error"].steps == (2,)
    assert seen["parsing-error"].sentence == "2 replies could not be used and had to be asked for again."


def test_a_step_that_is_lost_to_bad_replies_is_a_parsing_error(found):
    done = 'Action: Final Answer\nAction Input: {"final_answer": "done"}'
    seen = found(agent=Act(), models={"main": FakeModel([*["What?"] * 5, done])})
    assert seen["parsing-error"].steps == (1,)
    assert "1 step could not be done" in seen["parsing-error"].sentence


def test_json_that_is_none_is_a_parsing_error_of_autogpt(found):
    said = json.dumps(
        {"thoughts": {"text": "x"}, "command": {"name": "Final Answer", "args": {"final_answer": "x"}}}
    )
    assert found(agent=Autogpt(), models={"main": FakeModel(["no JSON", said])})["parsing-error"].steps == (
        1,
    )


def test_a_reply_without_a_tool_and_an_unknown_tool_are_parsing_errors(found):
    dance = Reply(calls=(ToolCall(id="1", name="dance", arguments="{}"),))
    done = Reply(calls=(ToolCall(id="2", name="final_answer", arguments='{"final_answer": "x"}'),))
    seen = found(agent=Tools(), models={"main": FakeModel([dance, "I think.", done])})["parsing-error"]
    assert seen.steps == (1, 2)
    assert "1 step could not be done" in seen.sentence
    assert "1 reply could not be used" in seen.sentence


def test_wrong_arguments_are_a_parsing_error_and_a_missing_file_is_none(found):
    seen = found(
        ("Read File", {"name": "train.py"}), ("Read File", {"file_name": "no.py"}), execute(), answer()
    )
    assert list(seen) == ["parsing-error"]
    assert seen["parsing-error"].steps == (1,)


def test_the_same_action_with_the_same_answer_is_a_repetition(all_found):
    look = ("List Files", {"dir_path": "."})
    seen = all_found(execute(), look, ("Read File", {"file_name": "train.py"}), look, execute(), answer())
    assert [(finding.kind, finding.steps) for finding in seen] == [
        ("repeated-action", (1, 5)),
        ("repeated-action", (2, 4)),
    ]
    assert (
        seen[1].sentence
        == "'List Files .' was done 2 times with the same answer, although nothing had changed."
    )


def test_what_is_looked_at_again_after_a_change_is_no_repetition(found):
    look = ("List Files", {"dir_path": "."})
    assert found(look, execute(), look, write("note.txt", "x"), look, answer()) == {}


def test_an_interpreter_may_be_told_the_same_twice_if_it_did_something_in_between(found):
    show, more = ("Python REPL", {"command": "print(len('ab'))"}), ("Python REPL", {"command": "x = 1"})
    assert found(execute(), show, more, show, answer()) == {}


def test_an_interpreter_that_is_told_the_same_twice_in_a_row_is_a_repetition(found):
    show = ("Python REPL", {"command": "print(len('ab'))"})
    assert found(execute(), show, show, answer())["repeated-action"].steps == (2, 3)


def test_a_script_that_fails_to_the_end_is_not_repaired(found):
    seen = found(execute(), write("more.py", "1/0"), execute("more.py"), execute("./more.py"), answer())
    error = seen["unrepaired-error"]
    assert error.steps == (3, 4)
    assert error.sentence == (
        "more.py failed in steps 3, 4 (ZeroDivisionError: division by zero), and never ran well after that."
    )


@pytest.mark.parametrize("name", ["train.py", "better.py"])
def test_a_script_that_is_mended_under_its_own_name_or_in_a_copy_is_repaired(found, name):
    copy = ("Copy File", {"source": "train.py", "destination": "better.py"})
    good = GUESSING.format(guess=4)
    assert found(write("train.py", "1/0"), execute(), copy, write(name, good), execute(name), answer()) == {}


def test_a_run_that_was_cut_off_by_us_is_not_blamed_for_what_it_might_have_mended(found):
    class CutOff(Agent):
        def run(self, env: Environment) -> None:
            env.step(Call(action="Write File", args={"file_name": "train.py", "content": "1/0"}))
            env.step(Call(action="Execute Script", args={"script_name": "train.py"}))
            env.step(Call(action="Write File", args={"file_name": "train.py", "content": "print(1)"}))
            raise ModelFault("the provider is gone")

    assert found(agent=CutOff()) == {}


def test_an_edit_after_the_last_run_was_never_executed(found):
    seen = found(execute(), write("train.py", GUESSING.format(guess=4)), answer())
    assert list(seen) == ["unexecuted-edit"]
    assert seen["unexecuted-edit"].steps == (2,)
    assert (
        seen["unexecuted-edit"].sentence
        == "train.py was changed in step 2, and what it became was never run."
    )


def test_a_module_is_executed_by_the_script_that_imports_it(found):
    good = "from model import GUESS\n" + GUESSING.format(guess=4).partition("\n")[2]
    assert found(write("model.py", "GUESS = 4"), write("train.py", good), execute(), answer()) == {}


def test_a_script_that_nothing_runs_or_names_was_never_executed_though_others_were(found):
    assert found(write("better.py", "print(1)"), execute(), answer())["unexecuted-edit"].steps == (1,)


def test_an_edit_that_is_undone_needs_no_run(found):
    undo = ("Undo Edit Script", {"script_name": "train.py"})
    assert found(execute(), write("train.py", "1/0"), undo, answer()) == {}


def test_an_interpreter_can_run_a_script(found):
    run = ("Python REPL", {"command": "exec(open('better.py').read())"})
    assert found(execute(), write("better.py", "print(1)"), run, answer()) == {}


def test_running_out_of_steps_is_a_finding_of_the_last_step(found):
    seen = found(execute(), ("List Files", {"dir_path": "."}), steps=2)
    assert list(seen) == ["limit-reached"]
    assert seen["limit-reached"].steps == (2,)
    assert seen["limit-reached"].sentence == "The run used up its 2 steps before it submitted."


def test_a_submission_that_is_refused_is_invalid_and_not_missing(found):
    seen = found(write("submission.csv", "id,value\n1,x\n"), answer())
    assert list(seen) == ["invalid-submission"]


def test_going_from_good_to_worse_is_told_by_the_figures_that_scripts_print(found):
    good, bad = (GUESSING.format(guess=guess) for guess in (4, 100))
    seen = found(write("train.py", good), execute(), write("train.py", bad), execute(), answer())
    assert list(seen) == ["worse-than-best"]
    assert seen["worse-than-best"].steps == (2, 4)
    assert (
        seen["worse-than-best"].sentence
        == "Step 2 printed a validation figure of 2.5, but the last one was 95.5."
    )


def test_who_brings_the_best_submission_back_is_not_blamed(found):
    good, bad = (GUESSING.format(guess=guess) for guess in (4, 100))
    keep, back = (
        ("Copy File", {"source": one, "destination": other})
        for one, other in (("submission.csv", "best.csv"), ("best.csv", "submission.csv"))
    )
    assert (
        found(write("train.py", good), execute(), keep, write("train.py", bad), execute(), back, answer())
        == {}
    )


def test_grades_of_steps_count_more_than_figures(play):
    def behave(env: Environment) -> None:
        for guess in (4, 6):  # prints nothing: only the grader knows
            content = GUESSING.format(guess=guess).rpartition("print")[0]
            env.step(Call(action="Write File", args={"file_name": "train.py", "content": content}))
            env.step(Call(action="Execute Script", args={"script_name": "train.py"}))
        env.step(Call(action="Write File", args={"file_name": "submission.csv", "content": "id\n"}))
        env.step(Call(action="Final Answer", args={"final_answer": "done"}))

    run = read_runs([Path(play(behave).folder)])[0]
    assert "worse-than-best" not in {finding.kind for finding in collect_findings(run)}
    grade_steps([run], lambda line: None)
    seen = {finding.kind: finding for finding in collect_findings(run)}["worse-than-best"]
    assert seen.steps == (2, 6)
    assert seen.sentence == "Step 2 would have scored 2.5, but what was submitted is not valid."


def test_a_read_only_file_that_was_touched_is_a_broken_rule(found, toy):
    setup = prepare_setup(str(toy), "open", "none", lambda line: None)
    touch = "open('questions.csv', 'a').write('more')"
    seen = found(write("touch.py", touch), execute("touch.py"), execute(), answer(), setup=setup)
    assert list(seen) == ["broken-rule"]
    assert seen["broken-rule"].steps == (2,)
    assert seen["broken-rule"].sentence == "Read-only files were changed, and put back: questions.csv."


def test_violations_that_the_grader_saw_point_to_the_step_that_wrote_them(variant, play):
    forbidding = '\n\ndef violations(folder):\n    return ["train.py line 1 imports os"]\n'
    folder = variant({})
    (folder / "grade.py").write_text((folder / "grade.py").read_text() + forbidding)
    setup = prepare_setup(str(folder), "open", "bwrap", lambda line: None)

    def behave(env: Environment) -> None:
        env.step(Call(action="List Files", args={"dir_path": "."}))
        content = "import os\n" + GUESSING.format(guess=4)
        env.step(Call(action="Write File", args={"file_name": "train.py", "content": content}))
        env.step(Call(action="Execute Script", args={"script_name": "train.py"}))
        env.step(Call(action="Final Answer", args={"final_answer": "done"}))

    (seen,) = collect_findings(read_runs([Path(play(behave, setup=setup).folder)])[0])
    assert (seen.kind, seen.steps) == ("broken-rule", (2,))
    assert seen.sentence == "Against the rules of the task: train.py line 1 imports os."


def test_a_figure_that_nothing_showed_is_told_from_one_that_was_printed(found):
    printed = Call(action="Append Summary to Research Log", args={"content": "The error is 5.0 now."})
    made_up = Call(action="List Files", args={"dir_path": "."}, thought="The validation error is 0.37 now.")
    seen = found(execute(), printed, made_up, answer("reached an error of 0.37"))
    assert list(seen) == ["unshown-figure"]
    assert seen["unshown-figure"].steps == (3, 4)
    assert seen["unshown-figure"].sentence == (
        "“error is 0.37” is claimed, and nothing that was seen until then shows such a figure."
    )


def test_a_plan_that_only_the_reply_holds_is_read_too(found):
    entries = "Reflection: x\nResearch Plan and Status: the baseline has an accuracy of 0.9131.\nFact Check: x\nThought: x"
    said = f'{entries}\nAction: Final Answer\nAction Input: {{"final_answer": "x"}}'
    seen = found(agent=Research(), models={"main": FakeModel([said])})
    assert "accuracy of 0.9131" in seen["unshown-figure"].sentence


def test_what_the_task_says_is_shown(variant, play):
    setup = prepare_setup(
        str(variant({"description.md": "The starter's error is 3.77."})), "open", "bwrap", lambda line: None
    )
    said = 'Thought: the error is 3.77.\nAction: Final Answer\nAction Input: {"final_answer": "x"}'
    result = play(lambda env: React().run(env), setup=setup, models={"main": FakeModel([said])})
    assert [finding.kind for finding in collect_findings(read_runs([Path(result.folder)])[0])] == [
        "no-submission"
    ]


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ("the accuracy is 0.87", "accuracy 0.8712"),
        ("an accuracy of 87%", "accuracy 0.8712"),
        ("an accuracy of 87.1 %", "accuracy 0.8719"),
        ("the error is 0.129", "accuracy 0.8712"),
        ("the rmse is 0.50", "mse 0.2500"),
        ("the mae is 18,234", "18233.7"),
        ("the score improved by 0.05", "score 0.80 then score 0.85"),
        ("the error dropped by 20 %", "error 0.5 then error 0.4"),
        ("a speedup of 4.0", "took 8.0 s, then 2.0 s"),
        ("the loss is 1.2e-3", "loss 0.00123"),
    ],
)
def test_a_figure_may_be_rounded_or_derived_in_a_simple_way(said, seen):
    (claim,) = find_claims(said)
    assert is_supported(claim, sorted(extract_numbers(seen)))
    assert not is_supported(claim, sorted(extract_numbers("0.3333 77 and 4711")))


@pytest.mark.parametrize(
    "said",
    [
        "if the accuracy is 0.9 we stop",
        "I expect an accuracy of 0.9",
        "the accuracy should be above 0.9",
        "a typical accuracy is 0.9",
        "learning rate of 0.01",
        "the loss weight of 0.5",
        "average accuracy of 0.91 over the folds",
        "an error in line 12.",
        "score: 7 of 10",
        "```\naccuracy = 0.99\n```",
        "is the accuracy 0.9? I do not know.",
    ],
)
def test_wishes_settings_and_code_are_no_claims(said):
    assert list(find_claims(said)) == []


@pytest.mark.parametrize(
    "said", ["1," * 50_000, "accuracy of 1e" + "9" * 9_000, "accuracy is " * 5_000, "0." * 50_000]
)
def test_no_text_takes_long_to_read(said):
    started = time.process_time()
    assert not [
        claim for claim in find_claims(said) if is_supported(claim, sorted(extract_numbers(said + " 0.5")))
    ]
    assert time.process_time() - started < 2


def test_a_record_that_cannot_be_read_is_a_finding_and_stops_no_report(play):
    folder = Path(play(lambda env: Baseline().run(env)).folder)
    (folder / "trace.jsonl").write_text("{}\n{}\n")
    (seen,) = collect_findings(read_runs([folder])[0])
    assert seen.kind == "damaged-record"
    assert "line 1 is damaged" in seen.sentence


def test_a_run_that_is_still_going_is_looked_at_too(play, tmp_path):
    folder = Path(play(lambda env: Baseline().run(env)).folder)
    (folder / "result.json").unlink()
    assert collect_findings(read_runs([folder])[0]) == ()
