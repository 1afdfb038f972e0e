"""Prompts and replies in Inspect's form: what a program asks for and gets is not lost."""

import pytest
from inspect_ai.model import ChatMessageAssistant, ContentReasoning, ContentText, ModelOutput
from inspect_ai.tool import ToolFunction

from mlagentbench.adapters.inspect.models import output_to_reply, to_chat_message, to_config, to_tool_choice
from mlagentbench.errors import PromptRejected
from mlagentbench.records import Message, Prompt, ReplyFormat, Sampling, ToolChoice

HELLO = Prompt(messages=(Message(role="user", text="hello"),), max_tokens=None)
SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}}


def test_settings_are_passed_on() -> None:
    sampling = Sampling(temperature=0.5, top_k=7, effort="low", verbosity="high")
    choice = ToolChoice(mode="required", names=("look",), parallel=False)
    reply_format = ReplyFormat(json_schema=SCHEMA)
    prompt = HELLO.replace(sampling=sampling, tool_choice=choice, reply_format=reply_format, stop=("END",))
    config = to_config(prompt, max_tokens=9)
    assert (config.temperature, config.top_k, config.reasoning_effort, config.verbosity) == (
        0.5,
        7,
        "low",
        "high",
    )
    assert (config.max_tokens, config.stop_seqs, config.parallel_tool_calls) == (9, ["END"], False)
    assert config.response_schema and config.response_schema.json_schema.type == "object"
    assert to_tool_choice(prompt) == ToolFunction(name="look")
    assert to_config(HELLO, None).max_tokens is None


@pytest.mark.parametrize(
    "prompt",
    [
        HELLO.replace(reply_format=ReplyFormat()),
        HELLO.replace(tool_choice=ToolChoice(mode="auto", names=("look",))),
    ],
)
def test_what_inspect_cannot_express_is_rejected(prompt: Prompt) -> None:
    with pytest.raises(PromptRejected, match="Inspect cannot"):
        to_config(prompt, None)
        to_tool_choice(prompt)


def test_reasoning_comes_back_with_its_signature_and_a_cut_reply_says_so() -> None:
    reasoning = ContentReasoning(reasoning="hm", signature="signed")
    output = ModelOutput.from_content("m", "", stop_reason="max_tokens")
    output.choices[0].message.content = [reasoning, ContentText(text="so")]
    reply = output_to_reply(output)
    assert (reply.text, reply.reasoning, reply.finish) == ("so", "hm", "length")
    turn = Message(
        role="assistant", text=reply.text, reasoning=reply.reasoning, provider_state=reply.provider_state
    )
    message = to_chat_message(turn)
    assert isinstance(message, ChatMessageAssistant) and isinstance(message.content, list)
    returned, text = message.content
    assert isinstance(returned, ContentReasoning) and isinstance(text, ContentText)
    assert (returned.reasoning, returned.signature, text.text) == ("hm", "signed", "so")
    with pytest.raises(PromptRejected, match="was changed"):
        to_chat_message(turn.replace(provider_state='{"a": 1}'))
