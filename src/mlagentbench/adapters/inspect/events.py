"""Converts a run's record to the events of an Inspect transcript, with their times."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from inspect_ai.event import Event, InfoEvent, ModelEvent, ToolEvent
from inspect_ai.model import ChatCompletionChoice, GenerateConfig, ModelOutput, ModelUsage
from inspect_ai.tool import ToolCallError
from pydantic import JsonValue

from mlagentbench.adapters.inspect.models import to_chat_message, to_tool_info
from mlagentbench.adapters.inspect.step_messages import split_results, step_to_tool_calls
from mlagentbench.records import Message, ModelCall, Reply, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.workspace.store import Store

EVENT_SOURCE = "mlagentbench"  # of info events


def build_events(folder: RunFolder) -> Iterator[Event]:
    """The model calls, the actions, and the snapshot after each step."""
    started = datetime.fromisoformat(folder.spec.started)
    store, calls, clock = folder.open_store(writable=False), list(folder.calls()), 0.0
    for step in folder.steps():
        step_calls = [call for call in calls if call.step == step.number]
        yield from _build_model_events([call for call in step_calls if not call.inside], started, clock)
        yield from _build_tool_events(step, started)
        yield from _build_model_events(
            [call for call in step_calls if call.inside], started, step.clock - step.seconds
        )
        yield _build_info_event(step, started, store)
        clock = step.clock
    later_calls = [call for call in calls if call.step > len(folder.steps())]
    yield from _build_model_events(later_calls, started, clock)


def _build_model_events(calls: Sequence[ModelCall], started: datetime, clock: float) -> Iterator[ModelEvent]:
    for call in calls:
        yield _build_model_event(call, started, clock)
        clock += call.seconds


def _build_model_event(call: ModelCall, started: datetime, clock: float) -> ModelEvent:
    prompt = call.prompt
    return ModelEvent(
        timestamp=started + timedelta(seconds=clock),
        working_start=clock,
        model=call.model or "unknown",
        role=call.role,
        input=[to_chat_message(message, prompt.messages) for message in prompt.messages],
        tools=[to_tool_info(tool) for tool in prompt.tools],
        tool_choice="auto",
        config=GenerateConfig(max_tokens=prompt.max_tokens, stop_seqs=list(prompt.stop) or None),
        output=_build_model_output(call),
        error=call.too_long or None,
        retries=call.reply.retries if call.reply else None,
        completed=started + timedelta(seconds=clock + call.seconds),
        working_time=call.seconds,
    )


def _build_model_output(call: ModelCall) -> ModelOutput:
    if call.reply is None:
        return ModelOutput(model=call.model, error=call.too_long)
    message = to_chat_message(Message(role="assistant", text=call.reply.text, calls=call.reply.calls))
    choice = ChatCompletionChoice.model_validate({"message": message, "stop_reason": "stop"})
    return ModelOutput(
        model=call.model, choices=[choice], usage=to_model_usage(call.reply), time=call.seconds
    )


def to_model_usage(reply: Reply) -> ModelUsage:
    """The tokens and dollars of a reply."""
    return ModelUsage(
        input_tokens=reply.input_tokens,
        output_tokens=reply.output_tokens,
        total_tokens=reply.input_tokens + reply.output_tokens,
        total_cost=reply.dollars,
    )


def _build_tool_events(step: Step, started: datetime) -> Iterator[ToolEvent]:
    start = step.clock - step.seconds
    for call, result in zip(step_to_tool_calls(step), split_results(step), strict=True):
        yield ToolEvent(
            timestamp=started + timedelta(seconds=start),
            working_start=start,
            id=call.id,
            function=call.function,
            arguments=call.arguments,
            result=result,
            error=ToolCallError("unknown", step.observation) if step.failed else None,
            completed=started + timedelta(seconds=step.clock),
            working_time=step.seconds,
        )


def _build_info_event(step: Step, started: datetime, store: Store) -> InfoEvent:
    timestamp = started + timedelta(seconds=step.clock)
    return InfoEvent(
        timestamp=timestamp, working_start=step.clock, source=EVENT_SOURCE, data=describe_step(step, store)
    )


def describe_step(step: Step, store: Store) -> dict[str, JsonValue]:
    """A step's number, action and outcome, and the hash of its snapshot."""
    return {
        "step": step.number,
        "action": step.call.action,
        "failed": step.failed,
        "seconds": step.seconds,
        "snapshot": store.tree_hash(step.number),
    }
