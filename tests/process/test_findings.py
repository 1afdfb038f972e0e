"""Findings: each rule on a real run that has the problem and on one that does not."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_model import FakeModel
from run_factory import make_run

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
from mlagentbench.records import Call, Reply, Result, Step, ToolCall
from mlagentbench.runner.setup import prepare_setup

Play = Callable[..., Result]
GUESSING_SCRIPT = """GUESS = {guess}
ids = [line.strip() for line in open("questions.csv")][1:]
open("submission.csv", "w").write("id,value\\n" + "".join(f"{{i}},{{GUESS}}\\n" for i in ids))
print("validation mean absolute error:", sum(abs(GUESS - int(i)) for i in ids) / len(ids))
"""


@pytest.fixture
def find_all(play: Play) -> Callable[..., tuple[Finding, ...]]:
    """The findings of a run with these steps; a step is a call, or an action name and its arguments."""

    def find_in_run(*steps: Any, agent: Any = None, **options: Any) -> tuple[Finding, ...]:
        def act(env: Environment) -> None:
            if agent:
                agent.run(env)
            for step in steps:
                env.step(step if isinstance(step, Call) else Call(action=step[0], args=step[1]))

        return collect_findings(read_runs([Path(play(act, **options).folder)])[0])

    return find_in_run


@pytest.fixture
def find(find_all: Callable[..., tuple[Finding, ...]]) -> Callable[..., dict[str, Finding]]:
    """The same by kind, for runs with at most one finding of each kind."""

    def find_in_run(*steps: Any, **options: Any) -> dict[str, Finding]:
        findings = find_all(*steps, **options)
        assert len({finding.kind for finding in findings}) == len(findings), findings
        return {finding.kind: finding for finding in findings}

    return find_in_run


def write(name: str, content: str) -> tuple[str, dict[str, str]]:
    return "Write File", {"file_name": name, "content": content}


def execute(name: str = "train.py") -> tuple[str, dict[str, str]]:
    return "Execute Script", {"script_name": name}


def answer(text: str = "done") -> tuple[str, dict[str, str]]:
    return "Final Answer", {"final_answer": text}


@pytest.mark.parametrize("agent", [Baseline, Reference, Tuner], ids=lambda kind: kind.__name__)
def test_an_agent_without_mistakes_has_no_findings(find, agent):
    assert find(agent=agent()) == {}


def test_an_agent_that_does_nothing_has_no_submission(find):
    findings = find(agent=Nothing())
    assert list(findings) == ["no-submission"]
    assert (
        findings["no-submission"].sentence == "There was no submission to grade: submission.csv is missing."
    )


def test_all_expected_rules_exist_and_have_titles():
    assert rule_titles().keys() >= {
        "parsing-error",
        "repeated-action",
        "unresolved-error",
        "unsupported-claim",
        "unexecuted-edit",
        "limit-reached",
        "no-submission",
        "worse-than-best",
        "rule-violation",
    }
    assert all(rule_titles().values())


def test_unparsable_replies_are_parsing_errors_of_their_step(find):
    good = 'Thought: run\nAction: Execute Script\nAction Input: {"script_name": "train.py"}'
    done = 'Thought: submit\nAction: Final Answer\nAction Input: {"final_answer": "done"}'
    findings = find(agent=React(), models={"main": FakeModel([good, "What?", "Action: Dance", done])})
    assert list(findings) == ["parsing-error"]
    assert findings["parsing-error"].steps == (2,)
    assert (
        findings["parsing-error"].sentence == "2 replies could not be parsed and had to be requested again."
    )


def test_a_step_lost_to_unparsable_replies_is_a_parsing_error(find):
    done = 'Action: Final Answer\nAction Input: {"final_answer": "done"}'
    findings = find(agent=Act(), models={"main": FakeModel([*["What?"] * 5, done])})
    assert findings["parsing-error"].steps == (1,)
    assert "1 step failed because the call was not a valid action" in findings["parsing-error"].sentence


def test_invalid_json_is_a_parsing_error_of_autogpt(find):
    text = json.dumps(
        {"thoughts": {"text": "x"}, "command": {"name": "Final Answer", "args": {"final_answer": "x"}}}
    )
    assert find(agent=Autogpt(), models={"main": FakeModel(["no JSON", text])})["parsing-error"].steps == (1,)


def test_a_reply_without_a_tool_call_and_an_unknown_tool_are_parsing_errors(find):
    dance = Reply(calls=(ToolCall(id="1", name="dance", arguments="{}"),))
    done = Reply(calls=(ToolCall(id="2", name="final_answer", arguments='{"final_answer": "x"}'),))
    finding = find(agent=Tools(), models={"main": FakeModel([dance, "I think.", done])})["parsing-error"]
    assert finding.steps == (1, 2)
    assert "1 step failed because the call was not a valid action" in finding.sentence
    assert "1 reply could not be parsed" in finding.sentence


def test_wrong_arguments_are_a_parsing_error_and_a_missing_file_is_not(find):
    findings = find(
        ("Read File", {"name": "train.py"}), ("Read File", {"file_name": "no.py"}), execute(), answer()
    )
    assert list(findings) == ["parsing-error"]
    assert findings["parsing-error"].steps == (1,)


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        ({"observation": "Error: there is no action 'Dance'.", "failed": True}, "parsing-error"),
        ({"observation": "Error: the call cannot be written as JSON: x", "failed": True}, "parsing-error"),
        ({"action": "(no action could be understood)", "failed": True}, "parsing-error"),
        ({"notes": ("[read-only files were changed, and put back: Q.csv]",)}, "rule-violation"),
    ],
    ids=["no such action", "no JSON", "no reply understood", "read-only file"],
)
def test_messages_in_runs_of_earlier_versions_are_recognized(tmp_path, step, kind):
    run = make_run(tmp_path / "run", 0.2, observations=("fine",))
    fields = {"observation": "x", **step}
    call = Call(action=fields.pop("action", "Dance"))
    run.folder.trace.append(Step(number=2, call=call, seconds=1, clock=2, **fields).model_dump_json())
    (finding,) = collect_findings(read_runs([run.folder.path])[0])
    assert (finding.kind, finding.steps) == (kind, (2,))


def test_the_same_action_with_the_same_observation_is_a_repetition(find_all):
    look = ("List Files", {"dir_path": "."})
    findings = find_all(execute(), look, ("Read File", {"file_name": "train.py"}), look, execute(), answer())
    assert [(finding.kind, finding.steps) for finding in findings] == [
        ("repeated-action", (1, 5)),
        ("repeated-action", (2, 4)),
    ]
    assert (
        findings[1].sentence
        == "'List Files .' ran 2 times with the same observation, although nothing had changed."
    )


def test_the_same_action_after_a_file_change_is_not_a_repetition(find):
    look = ("List Files", {"dir_path": "."})
    assert find(look, execute(), look, write("note.txt", "x"), look, answer()) == {}


def test_a_repl_command_may_be_repeated_after_another_command(find):
    show, more = ("Python REPL", {"command": "print(len('ab'))"}), ("Python REPL", {"command": "x = 1"})
    assert find(execute(), show, more, show, answer()) == {}


def test_the_same_repl_command_twice_in_a_row_is_a_repetition(find):
    show = ("Python REPL", {"command": "print(len('ab'))"})
    assert find(execute(), show, show, answer())["repeated-action"].steps == (2, 3)


def test_a_script_that_still_fails_at_the_end_is_an_unresolved_error(find):
    findings = find(execute(), write("more.py", "1/0"), execute("more.py"), execute("./more.py"), answer())
    error = findings["unresolved-error"]
    assert error.steps == (3, 4)
    assert error.sentence == (
        "more.py failed in steps 3, 4 (ZeroDivisionError: division by zero)"
        " and never ran successfully afterwards."
    )


@pytest.mark.parametrize("name", ["train.py", "better.py"])
def test_an_error_fixed_in_the_script_or_in_a_copy_is_resolved(find, name):
    copy = ("Copy File", {"source": "train.py", "destination": "better.py"})
    good = GUESSING_SCRIPT.format(guess=4)
    assert find(write("train.py", "1/0"), execute(), copy, write(name, good), execute(name), answer()) == {}


def test_a_run_that_ended_in_a_fault_has_no_findings_that_it_could_have_fixed(find):
    class CutOff(Agent):
        def run(self, env: Environment) -> None:
            env.step(Call(action="Write File", args={"file_name": "train.py", "content": "1/0"}))
            env.step(Call(action="Execute Script", args={"script_name": "train.py"}))
            env.step(Call(action="Write File", args={"file_name": "train.py", "content": "print(1)"}))
            raise ModelFault("the provider is gone")

    assert find(agent=CutOff()) == {}


def test_an_edit_after_the_last_execution_was_never_executed(find):
    findings = find(execute(), write("train.py", GUESSING_SCRIPT.format(guess=4)), answer())
    assert list(findings) == ["unexecuted-edit"]
    assert findings["unexecuted-edit"].steps == (2,)
    assert (
        findings["unexecuted-edit"].sentence
        == "train.py was changed in step 2, and the changed version was never run."
    )


def test_a_module_is_executed_by_the_script_that_imports_it(find):
    good = "from model import GUESS\n" + GUESSING_SCRIPT.format(guess=4).partition("\n")[2]
    assert find(write("model.py", "GUESS = 4"), write("train.py", good), execute(), answer()) == {}


def test_a_script_that_nothing_runs_or_names_was_never_executed(find):
    assert find(write("better.py", "print(1)"), execute(), answer())["unexecuted-edit"].steps == (1,)


def test_an_undone_edit_needs_no_execution(find):
    undo = ("Undo Edit Script", {"script_name": "train.py"})
    assert find(execute(), write("train.py", "1/0"), undo, answer()) == {}


def test_the_repl_can_execute_a_script(find):
    run = ("Python REPL", {"command": "exec(open('better.py').read())"})
    assert find(execute(), write("better.py", "print(1)"), run, answer()) == {}


def test_hitting_the_step_limit_is_a_finding_of_the_last_step(find):
    findings = find(execute(), ("List Files", {"dir_path": "."}), steps=2)
    assert list(findings) == ["limit-reached"]
    assert findings["limit-reached"].steps == (2,)
    assert findings["limit-reached"].sentence == "The run hit its limit of 2 steps before it submitted."


def test_a_rejected_submission_is_invalid_and_not_missing(find):
    findings = find(write("submission.csv", "id,value\n1,x\n"), answer())
    assert list(findings) == ["invalid-submission"]


def test_a_worse_submission_is_found_by_the_validation_scores_that_scripts_print(find):
    good, bad = (GUESSING_SCRIPT.format(guess=guess) for guess in (4, 100))
    findings = find(write("train.py", good), execute(), write("train.py", bad), execute(), answer())
    assert list(findings) == ["worse-than-best"]
    assert findings["worse-than-best"].steps == (2, 4)
    assert (
        findings["worse-than-best"].sentence
        == "Step 2 printed a validation score of 2.5, but the last one was 95.5."
    )


def test_restoring_the_best_submission_is_not_a_finding(find):
    good, bad = (GUESSING_SCRIPT.format(guess=guess) for guess in (4, 100))
    keep, back = (
        ("Copy File", {"source": one, "destination": other})
        for one, other in (("submission.csv", "best.csv"), ("best.csv", "submission.csv"))
    )
    assert (
        find(write("train.py", good), execute(), keep, write("train.py", bad), execute(), back, answer())
        == {}
    )


def test_step_grades_take_precedence_over_printed_scores(play):
    def act(env: Environment) -> None:
        for guess in (4, 6):  # prints no score, so only the grader knows
            content = GUESSING_SCRIPT.format(guess=guess).rpartition("print")[0]
            env.step(Call(action="Write File", args={"file_name": "train.py", "content": content}))
            env.step(Call(action="Execute Script", args={"script_name": "train.py"}))
        env.step(Call(action="Write File", args={"file_name": "submission.csv", "content": "id\n"}))
        env.step(Call(action="Final Answer", args={"final_answer": "done"}))

    run = read_runs([Path(play(act).folder)])[0]
    assert "worse-than-best" not in {finding.kind for finding in collect_findings(run)}
    grade_steps([run], lambda line: None)
    (finding,) = [finding for finding in collect_findings(run) if finding.kind == "worse-than-best"]
    assert finding.steps == (2, 6)
    assert finding.sentence == "Step 2 would have scored 2.5, but the submission is invalid."


def test_a_changed_read_only_file_is_a_rule_violation(find, toy):
    setup = prepare_setup(str(toy), "open", "none", lambda line: None)
    touch = "open('questions.csv', 'a').write('more')"
    findings = find(write("touch.py", touch), execute("touch.py"), execute(), answer(), setup=setup)
    assert list(findings) == ["rule-violation"]
    assert findings["rule-violation"].steps == (2,)
    assert (
        findings["rule-violation"].sentence
        == "Read-only files were changed and have been restored: questions.csv."
    )


def test_violations_found_by_the_grader_refer_to_the_step_that_wrote_them(variant, play):
    forbidding = '\n\ndef violations(folder):\n    return ["train.py line 1 imports os"]\n'
    folder = variant({})
    (folder / "grade.py").write_text((folder / "grade.py").read_text() + forbidding)
    setup = prepare_setup(str(folder), "open", "bwrap", lambda line: None)

    def act(env: Environment) -> None:
        env.step(Call(action="List Files", args={"dir_path": "."}))
        content = "import os\n" + GUESSING_SCRIPT.format(guess=4)
        env.step(Call(action="Write File", args={"file_name": "train.py", "content": content}))
        env.step(Call(action="Execute Script", args={"script_name": "train.py"}))
        env.step(Call(action="Final Answer", args={"final_answer": "done"}))

    (finding,) = collect_findings(read_runs([Path(play(act, setup=setup).folder)])[0])
    assert (finding.kind, finding.steps) == ("rule-violation", (2,))
    assert finding.sentence == "Violates a rule of the task: train.py line 1 imports os."


def test_a_claim_that_no_output_shows_is_a_finding_and_a_printed_one_is_not(find):
    printed = Call(action="Append Summary to Research Log", args={"content": "The error is 5.0 now."})
    invented = Call(action="List Files", args={"dir_path": "."}, thought="The validation error is 0.37 now.")
    findings = find(execute(), printed, invented, answer("reached an error of 0.37"))
    assert list(findings) == ["unsupported-claim"]
    assert findings["unsupported-claim"].steps == (3, 4)
    assert findings["unsupported-claim"].sentence == (
        "The agent claims “error is 0.37”, but no earlier output shows this number."
    )


def test_claims_in_a_plan_that_only_the_reply_contains_are_checked(find):
    plan = "Research Plan and Status: the baseline has an accuracy of 0.9131."
    entries = f"Reflection: x\n{plan}\nFact Check: x\nThought: x"
    text = f'{entries}\nAction: Final Answer\nAction Input: {{"final_answer": "x"}}'
    findings = find(agent=Research(), models={"main": FakeModel([text])})
    assert "accuracy of 0.9131" in findings["unsupported-claim"].sentence


def test_numbers_in_the_task_description_support_a_claim(variant, play):
    setup = prepare_setup(
        str(variant({"description.md": "The starter's error is 3.77."})), "open", "bwrap", lambda line: None
    )
    text = 'Thought: the error is 3.77.\nAction: Final Answer\nAction Input: {"final_answer": "x"}'
    result = play(lambda env: React().run(env), setup=setup, models={"main": FakeModel([text])})
    assert [finding.kind for finding in collect_findings(read_runs([Path(result.folder)])[0])] == [
        "no-submission"
    ]


@pytest.mark.parametrize(
    ("text", "observed"),
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
def test_a_claim_may_be_rounded_or_derived_from_observed_numbers(text, observed):
    (claim,) = find_claims(text)
    assert is_supported(claim, sorted(extract_numbers(observed)))
    assert not is_supported(claim, sorted(extract_numbers("0.3333 77 and 4711")))


@pytest.mark.parametrize(
    "text",
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
def test_wishes_settings_and_code_are_not_claims(text):
    assert list(find_claims(text)) == []


@pytest.mark.parametrize(
    "text", ["1," * 50_000, "accuracy of 1e" + "9" * 9_000, "accuracy is " * 5_000, "0." * 50_000]
)
def test_no_text_takes_long_to_check(text):
    started = time.process_time()
    assert not [
        claim for claim in find_claims(text) if is_supported(claim, sorted(extract_numbers(text + " 0.5")))
    ]
    assert time.process_time() - started < 2


def test_a_damaged_record_is_a_finding(play):
    folder = Path(play(lambda env: Baseline().run(env)).folder)
    (folder / "trace.jsonl").write_text("{}\n{}\n")
    (finding,) = collect_findings(read_runs([folder])[0])
    assert finding.kind == "damaged-record"
    assert "line 1 is damaged" in finding.sentence


def test_an_unfinished_run_can_be_checked(play, tmp_path):
    folder = Path(play(lambda env: Baseline().run(env)).folder)
    (folder / "result.json").unlink()
    assert collect_findings(read_runs([folder])[0]) == ()
