import re
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
from mlagentbench.system.extras import install_command

RESEARCH_ENTRIES = ["Reflection", "Research Plan and Status", "Fact Check", "Thought"]
# With --dist loadgroup or worksteal, pytest-xdist runs these in one process, which loads the model once.
pytestmark = pytest.mark.xdist_group("local")


@pytest.fixture(scope="module")
def local() -> Model:
    """The real model, if it is in the cache."""
    pytest.importorskip("xllamacpp")
    extracted = cache_dir() / "models" / f"{MODEL_WHEEL.name}-{MODEL_WHEEL.version}"
    if not extracted.exists() and not (cache_dir() / "downloads" / cache_path(MODEL_WHEEL)).is_file():
        pytest.skip(f"{MODEL_WHEEL.file} is not in the cache, and tests do not download it")
    return load_model("local")


def prompt(*texts: str, **options: Any) -> Prompt:
    roles = ("user", "assistant")
    messages = tuple(Message(role=roles[index % 2], text=text) for index, text in enumerate(texts))
    return Prompt(messages=messages, **options)


def action_prompt(offered: dict[str, Action], observation: str, entries: list[str]) -> Prompt:
    usage = "\n".join(f"- {name}: {action.description} {action.usage}" for name, action in offered.items())
    text = (
        f"Improve the model in train.py.\nYou can do:\n{usage}\n\nYou saw: {observation}\n\n"
        "What do you do next?"
    )
    arguments = {name: action.arguments for name, action in offered.items()}
    return prompt(text, grammar=build_reply_grammar(entries, arguments))


def parse_valid_action(reply: Reply, offered: dict[str, Action], entries: list[str]) -> Call:
    """The action that a reply names; fails unless its entries and arguments are exactly right."""
    call, parsed_entries = parse_reply(reply.text, offered, entries)
    assert list(parsed_entries) == [*entries, "Action", "Action Input"] and all(parsed_entries.values())
    offered[call.action].arguments.model_validate(call.args, strict=True)
    return call


def test_the_same_prompt_gets_the_same_reply_whatever_came_before(local: Model) -> None:
    question, other = "Say what a validation set is for.", "Say what a validation set is."
    first = local.reply(prompt(question, max_tokens=12))
    assert local.reply(prompt(question, max_tokens=12)) == first
    grown = prompt(question, first.text, "Go on.", max_tokens=12)
    longer = local.reply(grown)
    local.reply(prompt(other, max_tokens=4))
    assert (local.reply(prompt(question, max_tokens=12)), local.reply(grown)) == (first, longer)


def test_a_reply_has_token_counts_no_cost_and_a_length_limit(local: Model) -> None:
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


def test_too_long_a_prompt_reports_the_context_window(local: Model) -> None:
    with pytest.raises(
        PromptTooLong, match=r"90\d\d tokens; the local model's context window is 8192 tokens"
    ):
        local.reply(prompt("hello " * 9000))


def test_a_prompt_that_leaves_no_room_for_the_reply_is_too_long(local: Model) -> None:
    small = Local(context=256)
    with pytest.raises(PromptTooLong, match=r"2\d\d tokens, which leaves no room .* is 256 tokens"):
        small.reply(prompt("hello " * 190, grammar="root ::= [a-z ]{900}"))


def test_tools_are_a_fault_that_says_what_to_do(local: Model) -> None:
    with pytest.raises(ModelFault, match="Choose an agent that writes its actions as text"):
        local.reply(prompt("hello", tools=(Tool(name="look", description="", parameters={}),)))


def test_an_invalid_grammar_is_a_fault(local: Model) -> None:
    with pytest.raises(ModelFault, match="failed to parse grammar"):
        local.reply(prompt("hello", grammar="root ::= nowhere"))


def test_an_error_in_the_engine_is_a_fault_and_the_next_prompt_is_answered(local: Model) -> None:
    with pytest.raises(ModelFault, match="surrogates not allowed"):
        local.reply(prompt("half a character: \ud83d"))
    assert local.reply(prompt("Say yes.", max_tokens=4)).text


def test_threads_share_one_model_without_affecting_each_other(local: Model) -> None:
    prompts = [prompt(f"What is {number} and {number}?", max_tokens=8) for number in range(4)]
    sequential = [local.reply(one) for one in prompts]
    with ThreadPoolExecutor(4) as threads:
        parallel = list(threads.map(lambda one: load_model("local").reply(one), prompts))
    assert parallel == sequential


def test_replies_under_the_grammar_are_valid_actions(local: Model) -> None:
    offered = {
        name: action
        for name, action in actions.load_actions().items()
        if name in ("Read File", "Inspect Script Lines")
    }
    reply = local.reply(action_prompt(offered, "train.py scores 0.61", ["Thought"]))
    parse_valid_action(reply, offered, ["Thought"])


@pytest.mark.slow
@pytest.mark.parametrize("epoch", range(20))
def test_replies_to_the_full_prompt_are_valid_actions(local: Model, epoch: int) -> None:
    offered = actions.load_actions(models=True)
    observation = f"epoch {epoch}, validation error {1 / (epoch + 1):.4f}"
    parse_valid_action(
        local.reply(action_prompt(offered, observation, RESEARCH_ENTRIES)), offered, RESEARCH_ENTRIES
    )


def test_a_run_with_the_local_model_is_recorded_and_graded(local: Model, play: Callable[..., Result]) -> None:
    replies: list[Reply] = []

    def behaviour(env: Environment) -> None:
        offered = {"List Files": env.actions["List Files"]}
        prompt = action_prompt(offered, "nothing yet", ["Thought"])
        replies.append(env.ask(prompt.messages, grammar=prompt.grammar))
        env.step(parse_valid_action(replies[0], offered, ["Thought"]))

    result = play(behaviour, models={"main": local}, steps=1)
    assert (result.ending, result.dollars) == ("steps", 0.0)
    assert result.tokens == replies[0].input_tokens + replies[0].output_tokens


ENDLESS = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent process may ignore it
from mlagentbench.models.base import load_model
from mlagentbench.models.local import _build_request
from mlagentbench.records import Message, Prompt
model = load_model('local')
endless = Prompt(messages=(Message(role='user', text='a'),), grammar='root ::= "a" root', max_tokens=8000)
"""


def test_ctrl_c_interrupts_a_reply(local: Model) -> None:
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


def test_a_program_can_exit_in_the_middle_of_a_reply(local: Model) -> None:
    program = (
        f"{ENDLESS}\n"
        "chunks = model._engine.stream_chunks(_build_request(endless, 8000))\n"
        "print(bool(next(chunks)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_without_the_extra_one_line_shows_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)  # as if it were not installed
    with pytest.raises(UsageError, match=re.escape(install_command("local"))):
        load_model("local")


def test_a_file_that_is_not_a_model_is_reported_in_one_line(tmp_path: Path) -> None:
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
