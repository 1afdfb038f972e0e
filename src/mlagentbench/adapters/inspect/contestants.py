"""Who works on a sample: Inspect's react agent with our actions as its tools, or an agent of ours."""

from typing import Any

from inspect_ai.agent import AgentState, AgentSubmit, as_solver, react
from inspect_ai.event import ModelEvent
from inspect_ai.log import transcript
from inspect_ai.model import ModelOutput
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import ToolDef, ToolError

from mlagentbench.adapters.inspect.attempt import Attempt, Terms
from mlagentbench.adapters.inspect.models import main_model, tool_params
from mlagentbench.agents import base as agents
from mlagentbench.agents.tools import offered
from mlagentbench.errors import RunOver
from mlagentbench.language.prompts import fill
from mlagentbench.records import Call

SUBMIT = "final_answer"


@solver
def opened(terms: Terms) -> Solver:
    """Opens a run for the sample, and offers its actions as tools to whatever solver follows."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        attempt = Attempt(state)
        await attempt.begin(terms)
        state.tools.extend(tool.as_tool() for tool in tools_of(attempt))
        return state

    return solve


def tools_of(attempt: Attempt) -> list[ToolDef]:
    """The actions of a run as Inspect's tools."""
    env = attempt.session.env
    return [
        ToolDef(
            _doing(attempt, action),
            name=tool.name,
            description=tool.description,
            parameters=tool_params(tool),
            parallel=False,
            max_output=0,  # observations are cut to size already, in the middle
        )
        for action, tool in zip(env.actions, offered(env), strict=True)
    ]


def _doing(attempt: Attempt, action: str) -> Any:
    async def execute(**args: Any) -> str:
        try:
            step = await attempt.step(Call(action=action, args=args, thought=_thought()))
        except RunOver as over:
            raise ToolError(str(over)) from over
        if step.failed:
            raise ToolError(step.observation)
        return step.observation

    return execute


def _thought() -> str:
    """What the model said when it called for the tool."""
    last = transcript().history.events_since_last(ModelEvent)[:1]
    return last[0].output.completion if last and isinstance(last[0], ModelEvent) else ""


@solver
def inspect_react() -> Solver:
    """Inspect's react agent, until it submits or the run is over."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        attempt = Attempt.of(state)
        tools = tools_of(attempt)
        submit = next(tool for tool in tools if tool.name == SUBMIT)

        async def goes_on(agent: AgentState) -> bool | str:
            if attempt.session.done:
                return False
            return True if agent.output.message.tool_calls else fill("tools_nudge")

        agent = react(
            prompt=None,
            tools=[tool for tool in tools if tool is not submit],
            model=main_model(),
            submit=AgentSubmit(tool=submit, answer_only=True, keep_in_messages=True),
            on_continue=goes_on,
            truncation="auto",
        )
        return await as_solver(agent)(state, generate)

    return solve


@solver
def ours(agent: str, options: dict[str, Any] | None = None) -> Solver:
    """An agent of ours, whose models are Inspect's."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        attempt = Attempt.of(state)
        await attempt.play(agents.make(agents.load(agent), state.epoch, options or {}))
        last = attempt.session.env.steps[-1:]
        state.output = ModelOutput.from_content(str(main_model()), last[0].observation if last else "")
        return state

    return solve
