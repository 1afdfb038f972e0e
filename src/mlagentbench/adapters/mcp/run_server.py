"""A run as an MCP server: actions as tools, the description and the files as resources, and one prompt."""

import time
from threading import Event
from typing import Any
from urllib.parse import quote, unquote

import anyio
from mcp import MCPError, types
from mcp.server import Server, ServerRequestContext

import mlagentbench
from mlagentbench.adapters.mcp.served_run import ServedRun
from mlagentbench.agents.tools import build_tools, tool_name
from mlagentbench.errors import BenchError, Stopped
from mlagentbench.formatting import format_duration, last_line, strip_control_chars
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.records import Call, Step
from mlagentbench.runner.session import Session
from mlagentbench.system.journal import escape_invalid_utf8

DESCRIPTION_URI, FILE_URI_PREFIX = "task://description", "workspace:///"
PROGRESS_INTERVAL_S = 1.0  # between two looks at the output
UNCHANGED_INTERVAL_S = 10.0  # between two notifications that differ only in the elapsed time
READY_POLL_INTERVAL_S = 0.1
# A call waits so long for the preparation. Many clients give up after a minute.
MAX_PREPARATION_WAIT_S = 40.0
NOT_READY = "Error: The task is being prepared ({}). Call again in a minute. This call was not a step."
PROMPT_NAME = "work"
MAX_CLIENT_CHARS = 100

Context = ServerRequestContext[Any]
PageParams = types.PaginatedRequestParams | None


class RunServer:
    """One run as an MCP server. It never reveals the score.

    It serves before the run is ready: calls wait for `attach`.

    Attributes:
        session: The run, once it is ready.
        preparation: What is being prepared until then.
    """

    def __init__(self, run: ServedRun) -> None:
        self.run = run
        self.session: Session | None = None
        self.preparation = "starting"
        instructions = fill_prompt("tools", task=run.problem_statement.strip(), steps=str(run.limits.steps))
        self.instructions = f"{instructions}\n{fill_prompt('mcp_clock')}"
        self.actions = {tool_name(name): action for name, action in run.actions.items()}
        self._step_limiter = anyio.CapacityLimiter(1)
        self._cancelled_steps: list[
            Step
        ] = []  # that the client has not seen: cancelled calls get no response
        self.server: Server[Any] = Server(
            "mlagentbench",
            version=mlagentbench.__version__,
            title=f"MLAgentBench: {run.task_name}",
            instructions=self.instructions,
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_resources=self.list_resources,
            on_list_resource_templates=self.list_resource_templates,
            on_read_resource=self.read_resource,
            on_list_prompts=self.list_prompts,
            on_get_prompt=self.render_prompt,
        )

    def attach(self, session: Session) -> None:
        """Serve the run from now on; its clock starts with the first step."""
        session.env.start_clock_at_next_step()
        self.session = session

    async def list_tools(self, context: Context, params: PageParams) -> types.ListToolsResult:
        """List the actions as tools."""
        tools = [
            types.Tool(
                name=tool.name,
                title=action.name,
                description=self._use_tool_names(tool.description),
                input_schema=tool.parameters,
                annotations=types.ToolAnnotations(
                    read_only_hint=not action.changes_workspace, open_world_hint=False
                ),
            )
            for tool, action in zip(build_tools(self.run.actions), self.actions.values(), strict=True)
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Take one step; unknown tools and invalid arguments count as steps too, as in any run."""
        action = self.actions.get(params.name)
        call = Call(action=action.name if action else params.name, args=params.arguments or {})
        texts, failed = await self._run_step(context, call)
        return types.CallToolResult(content=[types.TextContent(text=text) for text in texts], is_error=failed)

    async def list_resources(self, context: Context, params: PageParams) -> types.ListResourcesResult:
        """List the description and, once they exist, the initial files; the template reaches later files."""
        state = self.session.env.context.store.state(0) if self.session else {}
        files = [
            types.Resource(
                uri=FILE_URI_PREFIX + quote(path), name=path, description="Reading it costs a step."
            )
            for path in sorted(path for path, entry in state.items() if entry.kind == "file")
        ]
        description = types.Resource(uri=DESCRIPTION_URI, name="description", mime_type="text/markdown")
        return types.ListResourcesResult(resources=[description, *files])

    async def list_resource_templates(
        self, context: Context, params: PageParams
    ) -> types.ListResourceTemplatesResult:
        """List the template for any file in the workspace."""
        template = types.ResourceTemplate(
            uri_template=f"{FILE_URI_PREFIX}{{+path}}",
            name="file",
            description="The current content of a file. Reading it costs a step.",
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """Read the description for free, or a file by a step, so that the record has all that was seen."""
        if params.uri == DESCRIPTION_URI:
            text = self.run.problem_statement
        elif params.uri.startswith(FILE_URI_PREFIX):
            path = unquote(params.uri.removeprefix(FILE_URI_PREFIX))
            texts, failed = await self._run_step(context, Call(action="Read File", args={"file_name": path}))
            text = texts[0]
            if failed:
                raise MCPError(types.INVALID_PARAMS, text)
        else:
            raise MCPError(types.INVALID_PARAMS, f"No such resource: {params.uri}")
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text=text)])

    async def list_prompts(self, context: Context, params: PageParams) -> types.ListPromptsResult:
        """List the only prompt."""
        prompt = types.Prompt(name=PROMPT_NAME, description="Work on the task.")
        return types.ListPromptsResult(prompts=[prompt])

    async def render_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        """Ask to begin; the task and the rules are in the instructions."""
        if params.name != PROMPT_NAME:
            raise MCPError(
                types.INVALID_PARAMS, f"No such prompt: {params.name!r}. Available: {PROMPT_NAME}."
            )
        message = types.PromptMessage(role="user", content=types.TextContent(text=fill_prompt("mcp_begin")))
        return types.GetPromptResult(messages=[message])

    async def _run_step(self, context: Context, call: Call) -> tuple[list[str], bool]:
        """Take a step in a thread, one at a time.

        If the client cancels the call or disconnects, a script or REPL command is terminated.
        """
        step_started, cancel = Event(), Event()
        action = self.run.actions.get(call.action)
        ends_run = action is not None and action.ends_run
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._report_progress, context, step_started, ends_run)
            tasks.start_soon(_set_on_cancel, cancel)
            with anyio.move_on_after(MAX_PREPARATION_WAIT_S):
                while not self.session:
                    await anyio.sleep(READY_POLL_INTERVAL_S)
            if self.session:
                result = await anyio.to_thread.run_sync(
                    self._take_step,
                    self.session,
                    call,
                    _client_name(context),
                    step_started,
                    cancel,
                    limiter=self._step_limiter,
                )
            else:
                result = [NOT_READY.format(self.preparation)], True
            tasks.cancel_scope.cancel()
        return result

    async def _report_progress(self, context: Context, step_started: Event, ends_run: bool) -> None:
        """Report the progress of a long step to a client that asks for it: changes, and the elapsed time."""
        started, reported, last_report_s = time.monotonic(), "", 0.0
        while True:
            if self.session:
                await anyio.sleep(PROGRESS_INTERVAL_S)
            seconds, progress = time.monotonic() - started, self._describe_progress(step_started, ends_run)
            if progress != reported or seconds - last_report_s >= UNCHANGED_INTERVAL_S:
                reported, last_report_s = progress, seconds
                message = f"{format_duration(seconds)}: {progress}"
                await context.session.report_progress(seconds, message=message)
            if not self.session:
                await anyio.sleep(PROGRESS_INTERVAL_S)

    def _describe_progress(self, step_started: Event, ends_run: bool) -> str:
        if not self.session:
            return f"preparing the task: {self.preparation}"
        if not step_started.is_set():
            return "waiting for an earlier call"
        if ends_run or self.session.env.done:
            return "grading the submission"
        output = self.session.env.context.output
        return (last_line(output.last_line) if output else "") or "no output yet"

    def _take_step(
        self, session: Session, call: Call, client: str, step_started: Event, cancel: Event
    ) -> tuple[list[str], bool]:
        """Take a step and report what is left; the last response waits until the run is graded."""
        step_started.set()
        try:
            if client:
                session.run_folder.record_client(client)
            step = session.step(call, cancel)
        except (BenchError, Stopped) as error:
            return [f"Error: {self._use_tool_names(str(error))}"], True
        if step.failed:
            step = step.replace(observation=self._use_tool_names(step.observation))
        if cancel.is_set():
            self._cancelled_steps.append(step)
            return [], step.failed
        unseen = [self._describe_cancelled_step(step) for step in self._cancelled_steps]
        self._cancelled_steps.clear()
        if not session.env.done:
            return [step.observation, f"[{session.remaining_budget}]", *unseen], step.failed
        ending = session.finish().ending
        return [
            step.observation,
            f"[The run is over: {ending}. The score is shown only to the operator of the benchmark.]",
        ], step.failed

    def _describe_cancelled_step(self, step: Step) -> str:
        action = self._use_tool_names(step.call.action)
        return f"[You cancelled step {step.number}, {action}. Its observation was:\n{step.observation}]"

    def _use_tool_names(self, text: str) -> str:
        """A text with tools in place of actions, as the client knows them."""
        names = {action.name: name for name, action in self.actions.items()}
        for action_name in sorted(names, key=len, reverse=True):
            text = text.replace(action_name, names[action_name])
        return text.replace("No such action", "No such tool")


def _client_name(context: Context) -> str:
    """The name and version that the client gives itself; empty if it gives none."""
    params = context.session.client_params
    if params is None:
        return ""
    client = f"{params.client_info.name} {params.client_info.version}"
    return escape_invalid_utf8(strip_control_chars(client))[:MAX_CLIENT_CHARS].strip()


async def _set_on_cancel(event: Event) -> None:
    """Set the event when the call is cancelled, or has ended."""
    try:
        await anyio.sleep_forever()
    finally:
        event.set()
