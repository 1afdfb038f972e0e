"""What a client is offered of a run: actions as tools, the description and the files as resources, one prompt."""

import time
from typing import Any
from urllib.parse import quote, unquote

import anyio
from mcp import MCPError, types
from mcp.server import Server, ServerRequestContext

import mlagentbench
from mlagentbench.agents.tools import offered, tool_name
from mlagentbench.errors import BenchError, Stopped
from mlagentbench.language.prompts import fill
from mlagentbench.records import Call
from mlagentbench.runner.session import Session
from mlagentbench.words import last_line

DESCRIPTION, FILES = "task://description", "workspace:///"
NEWS = 1.0  # seconds between two words about a step that takes long

Context = ServerRequestContext[Any]
Asked = types.PaginatedRequestParams | None


class Offering:
    """One run as an MCP server; of the score it never says anything."""

    def __init__(self, session: Session) -> None:
        self.session = session
        env = session.env
        self.told = fill("tools", task=env.task.description.strip(), steps=str(env.spec.limits.steps))
        self.actions = {tool_name(name): action for name, action in env.actions.items()}
        self.given = sorted(path for path, entry in env.world.store.state(0).items() if entry.kind == "file")
        self._one_at_a_time = anyio.CapacityLimiter(1)
        self.server: Server[Any] = Server(
            "mlagentbench",
            version=mlagentbench.__version__,
            title=f"MLAgentBench: {env.task.name}",
            instructions=self.told,
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_resources=self.list_resources,
            on_list_resource_templates=self.list_templates,
            on_read_resource=self.read_resource,
            on_list_prompts=self.list_prompts,
            on_get_prompt=self.prompt,
        )

    async def list_tools(self, context: Context, asked: Asked) -> types.ListToolsResult:
        """The actions."""
        tools = [
            types.Tool(
                name=tool.name,
                title=action.name,
                description=tool.description,
                input_schema=tool.parameters,
                annotations=types.ToolAnnotations(read_only_hint=not action.changes, open_world_hint=False),
            )
            for tool, action in zip(offered(self.session.env), self.actions.values(), strict=True)
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(self, context: Context, asked: types.CallToolRequestParams) -> types.CallToolResult:
        """One step; a tool that is not there or wrong arguments are steps too, as in any run."""
        action = self.actions.get(asked.name)
        call = Call(action=action.name if action else asked.name, args=asked.arguments or {})
        told, failed = await self._step(context, call)
        return types.CallToolResult(content=[types.TextContent(text=text) for text in told], is_error=failed)

    async def list_resources(self, context: Context, asked: Asked) -> types.ListResourcesResult:
        """The description, and the files that the task gives; later ones are reached by the template."""
        files = [types.Resource(uri=FILES + quote(path), name=path, description="costs a step") for path in self.given]
        text = types.Resource(uri=DESCRIPTION, name="description", mime_type="text/markdown")
        return types.ListResourcesResult(resources=[text, *files])

    async def list_templates(self, context: Context, asked: Asked) -> types.ListResourceTemplatesResult:
        """Any file of the workspace."""
        template = types.ResourceTemplate(
            uri_template=f"{FILES}{{+path}}", name="file", description="A file as it is now; reading it costs a step."
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(self, context: Context, asked: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        """The description costs nothing; a file is read by a step, so that the record has all that was seen."""
        if asked.uri == DESCRIPTION:
            text = self.session.env.task.description
        elif asked.uri.startswith(FILES):
            path = unquote(asked.uri.removeprefix(FILES))
            told, failed = await self._step(context, Call(action="Read File", args={"file_name": path}))
            text = told[0]
            if failed:
                raise MCPError(types.INVALID_PARAMS, text)
        else:
            raise MCPError(types.INVALID_PARAMS, f"there is no resource {asked.uri}")
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=asked.uri, text=text)])

    async def list_prompts(self, context: Context, asked: Asked) -> types.ListPromptsResult:
        """There is one."""
        return types.ListPromptsResult(prompts=[types.Prompt(name="work", description="Work on the task.")])

    async def prompt(self, context: Context, asked: types.GetPromptRequestParams) -> types.GetPromptResult:
        """The task, and the rules of the work."""
        if asked.name != "work":
            raise MCPError(types.INVALID_PARAMS, f"there is no prompt {asked.name!r}; there is: work")
        message = types.PromptMessage(role="user", content=types.TextContent(text=self.told))
        return types.GetPromptResult(messages=[message])

    async def _step(self, context: Context, call: Call) -> tuple[list[str], bool]:
        """Steps wait for their turn; a client that goes away is not waited for."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._report, context)
            answer = await anyio.to_thread.run_sync(
                self._act, call, abandon_on_cancel=True, limiter=self._one_at_a_time
            )
            tasks.cancel_scope.cancel()
        return answer

    async def _report(self, context: Context) -> None:
        """Tell a client that wants to know how a long step goes."""
        began = time.monotonic()
        while True:
            await anyio.sleep(NEWS)
            output = self.session.env.world.output
            line = last_line(output.last_line) if output else "waiting"
            await context.session.report_progress(time.monotonic() - began, message=line)

    def _act(self, call: Call) -> tuple[list[str], bool]:
        """Do it, and say what is left; the last step is answered when it is graded, lest a client leave before."""
        try:
            step = self.session.step(call)
        except (BenchError, Stopped) as error:
            return [f"Error: {error}"], True
        if not self.session.env.done:
            return [step.observation, f"[{self.session.budget}]"], step.failed
        ending = self.session.finish().ending
        return [
            step.observation,
            f"[the run is over: {ending}; its score is for those who run the benchmark]",
        ], step.failed
