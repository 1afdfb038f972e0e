import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mlagentbench.actions import base as actions
from mlagentbench.actions.base import Action
from mlagentbench.environment.environment import Environment
from mlagentbench.errors import ModelFault, PromptTooLong, UsageError
from mlagentbench.language.grammar import build_reply_grammar
from mlagentbench.language.replies import parse_reply
from mlagentbench.models.base import Model, load_model
from mlagentbench.models.local import MODEL_WHEEL, Local
from mlagentbench.preparation.download_cache import cache_path
from mlagentbench.records import Call, Message, Prompt, Reply, Result, Tool
from mlagentbench.system.cache import cache_dir

PAPER = ["Reflection", "Research Plan and Status", "Fact Check", "Thought"]
# One process loads it; with --dist loadgroup, pytest-xdist sends all of these there.
pytestmark = pytest.mark.xdist_group("local")


@pytest.fixture(scope="module")
def local() -> Model:
    """The real model, if an earlier download left it here."""
    pytest.importorskip("xllamacpp")
    unpacked = cache_dir() / "models" / f"{MODEL_WHEEL.name}-{MODEL_WHEEL.version}"
    if not unpacked.exists() and not (cache_dir() / "downloads" / cache_path(MODEL_WHEEL)).is_file():
        pytest.skip(f"{MODEL_WHEEL.file} is not in the cache, and tests download nothing")
    return load_model("local")


def prompt(*texts: str, **options: Any) -> Prompt:
    roles = ("user", "assistant")
    said = tuple(Message(role=roles[place % 2], text=text) for place, text in enumerate(texts))
    return Prompt(messages=said, **options)


def asked(known: dict[str, Action], seen: str, entries: list[str]) -> Prompt:
    offered = "\n".join(f"- {name}: {action.description} {action.usage}" for name, action in known.items())
    text = (
        f"Improve the model in train.py.\nYou can do:\n{offered}\n\nYou saw: {seen}\n\nWhat do you do next?"
    )
    return prompt(
        text, grammar=build_reply_grammar(entries, {name: action.arguments for name, action in known.items()})
    )


def legal(reply: Reply, known: dict[str, Action], entries: list[str]) -> Call:
    """The action that a reply asks for, whose arguments are exactly right."""
    call, found = parse_reply(reply.text, known, entries)
    assert list(found) == [*entries, "Action", "Action Input"] and all(found.values())
    known[call.action].arguments.model_validate(call.args, strict=True)
    return call


def test_the_same_prompt_gets_the_same_reply_whatever_was_asked_before(local: Model) -> None:
    question, other = "Say what a validation set is for.", "Say what a validation set is."
    first = local.reply(prompt(question, max_tokens=24))
    assert local.reply(prompt(question, max_tokens=24)) == first
    grown = prompt(question, first.text, "Go on.", max_tokens=24)
    longer = local.reply(grown)
    local.reply(prompt(other, max_tokens=8))
    assert (local.reply(prompt(question, max_tokens=24)), local.reply(grown)) == (first, longer)


def test_a_reply_is_counted_costs_nothing_and_is_kept_short(local: Model) -> None:
    reply = local.reply(prompt("Count to one thousand.", max_tokens=7))
    assert (reply.output_tokens, reply.dollars, reply.model) == (7, 0.0, "SmolLM2-135M-Instruct.Q4_1")
    assert 10 < reply.input_tokens < 60 and reply.text
    assert local.price and local.price.input == local.price.output == 0
    endless = prompt("Go on.", grammar='root ::= "a" root', max_tokens=12)
    assert local.reply(endless).output_tokens == 12


def test_a_stop_sequence_ends_the_reply_and_is_not_in_it(local: Model) -> None:
    whole = local.reply(prompt("Name three colours.", max_tokens=20)).text
    word = whole.split()[4]
    assert (
        local.reply(prompt("Name three colours.", max_tokens=20, stop=(word,))).text
        == whole.partition(word)[0]
    )


def test_too_long_a_prompt_says_how_much_the_model_takes(local: Model) -> None:
    with pytest.raises(PromptTooLong, match=r"90\d\d tokens; the local model takes 8192"):
        local.reply(prompt("hello " * 9000))


def test_a_prompt_that_leaves_no_room_for_the_reply_is_too_long(local: Model) -> None:
    small = Local(context=256)
    with pytest.raises(PromptTooLong, match=r"2\d\d tokens, which leave no room .* takes 256"):
        small.reply(prompt("hello " * 190, grammar="root ::= [a-z ]{900}"))


def test_tools_are_a_fault_that_says_what_to_choose(local: Model) -> None:
    with pytest.raises(ModelFault, match="choose an agent that writes its actions as text"):
        local.reply(prompt("hello", tools=(Tool(name="look", description="", parameters={}),)))


def test_a_grammar_that_is_none_is_a_fault(local: Model) -> None:
    with pytest.raises(ModelFault, match="failed to parse grammar"):
        local.reply(prompt("hello", grammar="root ::= nowhere"))


def test_a_prompt_that_the_engine_cannot_take_is_told_and_the_next_is_answered(local: Model) -> None:
    with pytest.raises(ModelFault, match="surrogates not allowed"):
        local.reply(prompt("half a character: \ud83d"))
    assert local.reply(prompt("Say yes.", max_tokens=4)).text


def test_threads_share_one_model_and_do_not_disturb_each_other(local: Model) -> None:
    asked = [prompt(f"What is {number} and {number}?", max_tokens=8) for number in range(4)]
    alone = [local.reply(each) for each in asked]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda each: load_model("local").reply(each), asked))
    assert together == alone


def test_replies_bound_by_the_grammar_are_legal_actions(local: Model) -> None:
    known = {
        name: action
        for name, action in actions.load_actions().items()
        if name in ("Read File", "Inspect Script Lines")
    }
    for seen in ("nothing yet", "train.py scores 0.61"):
        legal(local.reply(asked(known, seen, ["Thought"])), known, ["Thought"])


@pytest.mark.slow
@pytest.mark.parametrize("epoch", range(20))
def test_replies_to_the_whole_prompt_are_legal_actions(local: Model, epoch: int) -> None:
    known = actions.load_actions(models=True)
    seen = f"epoch {epoch}, validation error {1 / (epoch + 1):.4f}"
    legal(local.reply(asked(known, seen, PAPER)), known, PAPER)


def test_a_run_with_the_local_model_is_recorded_and_graded(local: Model, play: Callable[..., Result]) -> None:
    said: list[Reply] = []

    def behaviour(env: Environment) -> None:
        known = {"List Files": env.actions["List Files"]}
        question = asked(known, "nothing yet", ["Thought"])
        said.append(env.ask(question.messages, grammar=question.grammar))
        env.step(legal(said[0], known, ["Thought"]))

    result = play(behaviour, models={"main": local}, steps=1)
    assert (result.ending, result.dollars) == ("steps", 0.0)
    assert result.tokens == said[0].input_tokens + said[0].output_tokens


ENDLESS = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # who started us may ignore it
from mlagentbench.models.base import load_model
from mlagentbench.models.local import _build_request
from mlagentbench.records import Message, Prompt
model = load_model('local')
endless = Prompt(messages=(Message(role='user', text='a'),), grammar='root ::= "a" root', max_tokens=8000)
"""


def test_ctrl_c_is_heard_in_the_middle_of_a_reply(local: Model) -> None:
    program = (
        f"{ENDLESS}\n"
        "try:\n"
        "    print('asking', flush=True)\n"
        "    model.reply(endless)\n"
        "except KeyboardInterrupt:\n"
        "    print('stopped after', len(model.reply(endless.replace(max_tokens=3)).text))\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "asking\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().startswith("stopped after")
    assert process.returncode == 0


def test_a_program_can_end_in_the_middle_of_a_reply(local: Model) -> None:
    program = f"{ENDLESS}\npieces = model._engine.stream_chunks(_build_request(endless, 8000))\nprint(bool(next(pieces)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)  # as if it were not there
    with pytest.raises(UsageError, match=r"pip install 'mlagentbench\[local\]'"):
        load_model("local")


def test_a_file_that_is_no_model_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    for content, problem in (
        (b"GIF89a", "is not a GGUF file"),
        (b"GGUF\3\0\0\0 and so on", "cannot be loaded"),
    ):
        (tmp_path / "model.gguf").write_bytes(content)
        with pytest.raises(UsageError, match=problem) as caught:
            load_model(f"local:{tmp_path / 'model.gguf'}")
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="No such file"):
        load_model("local:/nowhere.gguf")
