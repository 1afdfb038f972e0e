"""Solvers for a sample: Inspect's react agent with the actions as its tools, or an agent of the benchmark."""

from typing import Any

from inspect_ai.agent import AgentState, AgentSubmit, as_solver, react
from inspect_ai.event import ModelEvent
from inspect_ai.log import transcript
from inspect_ai.model import ModelOutput
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import ToolDef, ToolError

from mlagentbench.adapters.inspect.models import main_model, to_tool_params
from mlagentbench.adapters.inspect.sample_run import SampleRun, SampleSettings
from mlagentbench.agents import base as agents
from mlagentbench.agents.tools import build_tools as build_action_tools
from mlagentbench.errors import RunOver
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.records import Call

SUBMIT_TOOL = "final_answer"


@solver
def open_run(settings: SampleSettings) -> Solver:
    """Open a run for the sample, and offer its actions as tools to the solver that follows."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        run = SampleRun(state)
        await run.start(settings)
        state.tools.extend(tool.as_tool() for tool in build_inspect_tools(run))
        return state

    return solve


def build_inspect_tools(run: SampleRun) -> list[ToolDef]:
    """The actions of a run as Inspect tools."""
    env = run.session.env
    return [
        ToolDef(
            _build_tool_function(run, action),
            name=tool.name,
            description=tool.description,
            parameters=to_tool_params(tool),
            parallel=False,
            max_output=0,  # observations are truncated already
        )
        for action, tool in zip(env.actions, build_action_tools(env.actions), strict=True)
    ]


def _build_tool_function(run: SampleRun, action: str) -> Any:
    async def execute(**args: Any) -> str:
        try:
            step = await run.step(Call(action=action, args=args, thought=_last_completion()))
        except RunOver as error:
            raise ToolError(str(error)) from error
        if step.failed:
            raise ToolError(step.observation)
        return step.observation

    return execute


def _last_completion() -> str:
    """The text of the model's reply that called the tool."""
    last = transcript().history.events_since_last(ModelEvent)[:1]
    return last[0].output.completion if last and isinstance(last[0], ModelEvent) else ""


@solver
def inspect_react() -> Solver:
    """Run Inspect's react agent until it submits or the run is over."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        run = SampleRun.for_sample(state)
        tools = build_inspect_tools(run)
        submit = next(tool for tool in tools if tool.name == SUBMIT_TOOL)

        async def on_continue(agent: AgentState) -> bool | str:
            if run.session.done:
                return False
            return True if agent.output.message.tool_calls else fill_prompt("tools_nudge")

        agent = react(
            prompt=None,
            tools=[tool for tool in tools if tool is not submit],
            model=main_model(),
            submit=AgentSubmit(tool=submit, answer_only=True, keep_in_messages=True),
            on_continue=on_continue,
            truncation="auto",
        )
        return await as_solver(agent)(state, generate)

    return solve


@solver
def benchmark_agent(agent: str, options: dict[str, Any] | None = None) -> Solver:
    """Run an agent of the benchmark with Inspect's models."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        run = SampleRun.for_sample(state)
        await run.run_agent(
            agents.instantiate_agent(agents.load_agent_class(agent), state.epoch, options or {})
        )
        last_step = run.session.env.steps[-1:]
        observation = last_step[0].observation if last_step else ""
        state.output = ModelOutput.from_content(str(main_model()), observation)
        return state

    return solve
