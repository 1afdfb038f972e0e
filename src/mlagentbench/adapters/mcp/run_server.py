"""What a client is offered of a run: actions as tools, the description and the files as resources, one prompt."""

import time
from typing import Any
from urllib.parse import quote, unquote

import anyio
from mcp import MCPError, types
from mcp.server import Server, ServerRequestContext

import mlagentbench
from mlagentbench.agents.tools import build_tools, tool_name
from mlagentbench.errors import BenchError, Stopped
from mlagentbench.formatting import last_line
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.records import Call
from mlagentbench.runner.session import Session

DESCRIPTION_URI, FILE_URI_PREFIX = "task://description", "workspace:///"
PROGRESS_INTERVAL_S = 1.0  # seconds between two words about a step that takes long

Context = ServerRequestContext[Any]
PageParams = types.PaginatedRequestParams | None


class RunServer:
    """One run as an MCP server; of the score it never says anything."""

    def __init__(self, session: Session) -> None:
        self.session = session
        env = session.env
        self.instructions = fill_prompt(
            "tools", task=env.problem_statement.strip(), steps=str(env.spec.limits.steps)
        )
        self.actions = {tool_name(name): action for name, action in env.actions.items()}
        self.initial_files = sorted(
            path for path, entry in env.context.store.state(0).items() if entry.kind == "file"
        )
        self._step_limiter = anyio.CapacityLimiter(1)
        self.server: Server[Any] = Server(
            "mlagentbench",
            version=mlagentbench.__version__,
            title=f"MLAgentBench: {env.task.name}",
            instructions=self.instructions,
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_resources=self.list_resources,
            on_list_resource_templates=self.list_resource_templates,
            on_read_resource=self.read_resource,
            on_list_prompts=self.list_prompts,
            on_get_prompt=self.render_prompt,
        )

    async def list_tools(self, context: Context, asked: PageParams) -> types.ListToolsResult:
        """The actions."""
        tools = [
            types.Tool(
                name=tool.name,
                title=action.name,
                description=tool.description,
                input_schema=tool.parameters,
                annotations=types.ToolAnnotations(
                    read_only_hint=not action.changes_workspace, open_world_hint=False
                ),
            )
            for tool, action in zip(build_tools(self.session.env), self.actions.values(), strict=True)
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(self, context: Context, asked: types.CallToolRequestParams) -> types.CallToolResult:
        """One step; a tool that is not there or wrong arguments are steps too, as in any run."""
        action = self.actions.get(asked.name)
        call = Call(action=action.name if action else asked.name, args=asked.arguments or {})
        told, failed = await self._run_step(context, call)
        return types.CallToolResult(content=[types.TextContent(text=text) for text in told], is_error=failed)

    async def list_resources(self, context: Context, asked: PageParams) -> types.ListResourcesResult:
        """The description, and the files that the task gives; later ones are reached by the template."""
        files = [
            types.Resource(uri=FILE_URI_PREFIX + quote(path), name=path, description="costs a step")
            for path in self.initial_files
        ]
        text = types.Resource(uri=DESCRIPTION_URI, name="description", mime_type="text/markdown")
        return types.ListResourcesResult(resources=[text, *files])

    async def list_resource_templates(
        self, context: Context, asked: PageParams
    ) -> types.ListResourceTemplatesResult:
        """Any file of the workspace."""
        template = types.ResourceTemplate(
            uri_template=f"{FILE_URI_PREFIX}{{+path}}",
            name="file",
            description="A file as it is now; reading it costs a step.",
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(
        self, context: Context, asked: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """The description costs nothing; a file is read by a step, so that the record has all that was seen."""
        if asked.uri == DESCRIPTION_URI:
            text = self.session.env.problem_statement
        elif asked.uri.startswith(FILE_URI_PREFIX):
            path = unquote(asked.uri.removeprefix(FILE_URI_PREFIX))
            told, failed = await self._run_step(context, Call(action="Read File", args={"file_name": path}))
            text = told[0]
            if failed:
                raise MCPError(types.INVALID_PARAMS, text)
        else:
            raise MCPError(types.INVALID_PARAMS, f"there is no resource {asked.uri}")
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=asked.uri, text=text)])

    async def list_prompts(self, context: Context, asked: PageParams) -> types.ListPromptsResult:
        """There is one."""
        return types.ListPromptsResult(prompts=[types.Prompt(name="work", description="Work on the task.")])

    async def render_prompt(
        self, context: Context, asked: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        """The task, and the rules of the work."""
        if asked.name != "work":
            raise MCPError(types.INVALID_PARAMS, f"there is no prompt {asked.name!r}; there is: work")
        message = types.PromptMessage(role="user", content=types.TextContent(text=self.instructions))
        return types.GetPromptResult(messages=[message])

    async def _run_step(self, context: Context, call: Call) -> tuple[list[str], bool]:
        """Steps wait for their turn; a client that goes away is not waited for."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._report_progress, context)
            answer = await anyio.to_thread.run_sync(
                self._take_step, call, abandon_on_cancel=True, limiter=self._step_limiter
            )
            tasks.cancel_scope.cancel()
        return answer

    async def _report_progress(self, context: Context) -> None:
        """Tell a client that wants to know how a long step goes."""
        began = time.monotonic()
        while True:
            await anyio.sleep(PROGRESS_INTERVAL_S)
            output = self.session.env.context.output
            line = last_line(output.last_line) if output else "waiting"
            await context.session.report_progress(time.monotonic() - began, message=line)

    def _take_step(self, call: Call) -> tuple[list[str], bool]:
        """Do it, and say what is left; the last step is answered when it is graded, lest a client leave before."""
        try:
            step = self.session.step(call)
        except (BenchError, Stopped) as error:
            return [f"Error: {error}"], True
        if not self.session.env.done:
            return [step.observation, f"[{self.session.remaining_budget}]"], step.failed
        ending = self.session.finish().ending
        return [
            step.observation,
            f"[the run is over: {ending}; its score is for those who run the benchmark]",
        ], step.failed
