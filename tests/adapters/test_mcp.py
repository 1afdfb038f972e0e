"""Whole runs with the official client library, over both transports."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.server import Server
from mcp.types import CallToolResult

from mlagentbench.adapters.mcp import run_server
from mlagentbench.adapters.mcp.served_run import describe_new_run
from mlagentbench.environment.problem_statement import build_problem_statement
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.session import open_session
from mlagentbench.runner.setup import Setup
from mlagentbench.runner.verify import verify_run
from mlagentbench.system.cache import cache_dir
from mlagentbench.system.extras import install_command
from mlagentbench.task import Task

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
Until = Callable[[Callable[[], object]], None]
Play = Callable[[Client], Awaitable[None]]
PERFECT = "id,value\n" + "".join(f"{n},{n}\n" for n in range(10))
SUBMIT = {"final_answer": "done"}


def command(*args: object) -> list[str]:
    return ["-W", "error", "-m", "mlagentbench", "mcp", *map(str, args)]


def over_stdio(log: Path, play: Play, *args: object, mode: str = "auto") -> None:
    """Run a client that starts the server itself, as most do."""
    server = StdioServerParameters(command=sys.executable, args=command(*args), env=dict(os.environ))

    async def main() -> None:
        with log.open("w") as errors:
            async with Client(stdio_client(server, errors), mode=mode) as client:
                await play(client)

    try:
        asyncio.run(main())
    except Exception as error:
        raise AssertionError(f"stderr of the server: {log.read_text()}") from error


def in_memory(setup: Setup, folder: Path, play: Play) -> None:
    """Run a client and a server in this process, without a transport; importing them takes a second."""

    def never_open(progress: object) -> NoReturn:
        raise AssertionError

    description = describe_new_run(setup.task, "open", "", "", "starter", {}, False, never_open)
    server = run_server.RunServer(description)
    with open_session(setup, "mcp", folder) as session:
        server.attach(session)
        connect(server.server, play)
        session.suspend()


@contextmanager
def over_http(*args: object) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A server whose run is ready, and its address."""
    with subprocess.Popen(
        [sys.executable, *command(*args, "--http", "0")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stderr
            lines = read_until_ready(server)
            url = re.search(r"http://\S+/mcp", lines)
            assert url, lines + server.stderr.read()
            yield server, url[0]
        finally:
            server.kill()


def read_until_ready(server: "subprocess.Popen[str]") -> str:
    assert server.stderr
    lines = ""
    for line in server.stderr:
        lines += line
        if line.startswith("Ready; run folder"):
            break
    return lines


def connect(address: str | Server, play: Play, mode: str = "auto") -> None:
    async def main() -> None:
        async with Client(address, mode=mode) as client:
            await play(client)

    asyncio.run(main())


def texts(answer: CallToolResult) -> list[str]:
    return [part.text for part in answer.content if part.type == "text"]


async def win(client: Client) -> None:
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert tools["execute_script"].input_schema["required"] == ["script_name"]
    assert tools["list_files"].annotations and tools["list_files"].annotations.read_only_hint
    assert "understand_file" not in tools  # no model is configured
    answer = await client.call_tool("execute_script", {"script_name": "train.py"})
    assert not answer.is_error and "validation mean absolute error: 5.0" in texts(answer)[0]
    assert texts(answer)[1].startswith("[19 of 20 steps and ")
    answer = await client.call_tool("write_file", {"file_name": "submission.csv", "content": PERFECT})
    answer = await client.call_tool("final_answer", SUBMIT)
    ending = "[The run is over: submitted. The score is shown only to the operator of the benchmark.]"
    assert texts(answer) == ["Submitted.", ending] and not answer.is_error


def check_won(run: Path) -> None:
    folder = RunFolder(run)
    assert folder.result and (folder.result.score, folder.result.success) == (0.0, True)
    assert (folder.spec.agent, folder.spec.seed) == ("claude", 4)
    assert folder.spec.clients == ("mcp 0.1.0",)  # the client's own name and version
    first, *_ = steps = folder.steps()
    assert [step.call.action for step in steps] == ["Execute Script", "Write File", "Final Answer"]
    assert first.clock == first.seconds  # the clock started with the first call


def test_a_client_that_starts_the_server_completes_a_run(toy: Path, tmp_path: Path, setup: Setup) -> None:
    run, log = tmp_path / "run", tmp_path / "log"

    async def play(client: Client) -> None:
        await win(client)
        late = await client.call_tool("list_files", {})
        assert late.is_error and texts(late) == ["Error: The run is over: submitted"]

    over_stdio(log, play, toy, "--out", run, "--seed", 4, "--name", "claude", mode="legacy")
    check_won(run)
    assert [check.what for check in verify_run(RunFolder(run), setup) if not check.holds] == []
    assert "verdict      SUCCESS" in log.read_text()  # shown on the server's terminal


def test_a_client_over_http_completes_a_run(toy: Path, tmp_path: Path) -> None:
    with over_http(toy, "--out", tmp_path / "run", "--seed", 4, "--name", "claude", "--json") as (
        server,
        address,
    ):
        connect(address, win)
        out, _ = server.communicate(timeout=20)
    assert server.returncode == 0 and json.loads(out)["improvement"] == 1.0
    check_won(tmp_path / "run")


def test_reading_the_description_is_free_and_reading_a_file_costs_a_step(
    toy: Path, tmp_path: Path, setup: Setup
) -> None:
    async def play(client: Client) -> None:
        resources = (await client.list_resources()).resources
        spec = RunFolder(tmp_path / "run").spec
        statement = build_problem_statement(Task.load(str(toy)), spec.edition, spec.limits, spec.hardware)
        assert client.instructions and statement.strip() in client.instructions
        prompt = (await client.get_prompt("work")).messages[0].content
        assert prompt.type == "text" and "task://description" in prompt.text
        assert "questions.csv" not in prompt.text  # the description is in the instructions only
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["work"]
        uris = [resource.uri for resource in resources]
        assert uris[0] == "task://description" and "workspace:///data/deep/more.csv" in uris
        templates = (await client.list_resource_templates()).resource_templates
        assert templates[0].uri_template == "workspace:///{+path}"
        assert await read(client, "task://description") == statement
        assert RunFolder(tmp_path / "run").steps() == ()
        assert await read(client, "workspace:///train.py") == (toy / "starter" / "train.py").read_text()
        await client.call_tool("write_file", {"file_name": "a b.txt", "content": "new"})
        assert await read(client, "workspace:///a%20b.txt") == "new"
        for uri in ("workspace:///none.py", "workspace:///../../etc/passwd", "file:///etc/passwd"):
            with pytest.raises(MCPError, match=r"No such resource|does not exist|outside"):
                await read(client, uri)
        with pytest.raises(MCPError, match="No such prompt"):
            await client.get_prompt("play")

    in_memory(setup, tmp_path / "run", play)
    assert [step.failed for step in RunFolder(tmp_path / "run").steps()] == [False, False, False, True, True]


async def read(client: Client, uri: str) -> str:
    contents = (await client.read_resource(uri)).contents[0]
    assert hasattr(contents, "text")
    return str(contents.text)


def test_invalid_arguments_are_failed_steps_with_a_reason(tmp_path: Path, setup: Setup) -> None:
    async def play(client: Client) -> None:
        for name, args, reason in (
            ("execute_script", {"script": "train.py"}, "Error: execute_script: script_name is missing"),
            (
                "inspect_script_lines",
                {"script_name": "train.py", "start_line_number": "x"},
                "start_line_number",
            ),
            ("read_file", {"file_name": "train.py", "mode": "r"}, "mode is not an argument of this action"),
            ("dance", {}, "No such tool: 'dance'. Available: append_file, "),
        ):
            answer = await client.call_tool(name, args)
            assert answer.is_error and reason in texts(answer)[0]
        assert texts(answer)[1].startswith("[16 of 20 steps")

    in_memory(setup, tmp_path / "run", play)
    assert [step.failed for step in RunFolder(tmp_path / "run").steps()] == [True] * 4


def test_parallel_calls_are_served_one_at_a_time(tmp_path: Path, setup: Setup) -> None:
    code = (
        "import os\nassert not os.path.exists('busy')\n"
        "open('busy', 'w').close()\nos.remove('busy')\nprint('alone')\n"
    )

    async def play(client: Client) -> None:
        await client.call_tool("write_file", {"file_name": "a.py", "content": code})
        calls = [client.call_tool("execute_script", {"script_name": "a.py"}) for _ in range(5)]
        answers = await asyncio.gather(*calls)
        assert all(texts(answer)[0].endswith("alone") for answer in answers)
        assert len({texts(answer)[1].partition(" steps")[0] for answer in answers}) == 5

    in_memory(setup, tmp_path / "run", play)
    assert [step.number for step in RunFolder(tmp_path / "run").steps()] == [1, 2, 3, 4, 5, 6]


def test_a_run_can_be_resumed_after_its_client_disconnected(toy: Path, tmp_path: Path, cli: Cli) -> None:
    run, log = tmp_path / "run", tmp_path / "log"

    async def start(client: Client) -> None:
        await client.call_tool("write_file", {"file_name": "submission.csv", "content": PERFECT})
        await client.call_tool("python_repl", {"command": "kept = 7"})

    async def finish(client: Client) -> None:
        answer = await client.call_tool("python_repl", {"command": "print(kept)"})
        assert texts(answer)[0].strip() == "7" and texts(answer)[1].startswith("[17 of 20 steps")
        await client.call_tool("final_answer", SUBMIT)

    over_stdio(log, start, toy, "--out", run)
    assert RunFolder(run).result is None
    assert log.read_text().endswith(
        f"mlagentbench: the client left before the end; continue with: mlagentbench mcp --resume {run}\n"
    )
    done = cli("resume", run)
    assert (done.returncode, "taken by another program (mcp)" in done.stderr) == (2, True)
    over_stdio(log, finish, "--resume", run)
    result = RunFolder(run).result
    assert result and (result.score, result.steps, result.ending) == (0.0, 4, "submitted")


def test_a_disconnect_during_a_script_terminates_it(toy: Path, tmp_path: Path, until: Until) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    mark = f"forever-{os.getpid()}"
    messages: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        messages.append(message or "")

    async def play(client: Client) -> None:
        code = "import time\nprint('started', flush=True)\ntime.sleep(600)\n"
        await client.call_tool("write_file", {"file_name": f"{mark}.py", "content": code})
        call = client.call_tool(
            "execute_script", {"script_name": f"{mark}.py"}, progress_callback=on_progress
        )
        task = asyncio.create_task(call)
        while not any(re.fullmatch(r"\d+\.\d s: started", message) for message in messages):
            await asyncio.sleep(0.05)
        task.cancel()

    over_stdio(log, play, toy, "--out", run)
    until(lambda: "continue with" in log.read_text())
    assert RunFolder(run).result is None
    assert "[killed: the call was cancelled" in RunFolder(run).steps()[1].observation
    processes = subprocess.run(["ps", "ax", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert mark not in processes.replace(str(tmp_path), "")


def test_a_cancelled_call_terminates_its_script_and_the_next_response_has_the_observation(
    tmp_path: Path, setup: Setup
) -> None:
    code = "import time\nprint('working', flush=True)\ntime.sleep(600)\n"

    async def play(client: Client) -> None:
        await client.call_tool("python_repl", {"command": "kept = 7"})
        await client.call_tool("write_file", {"file_name": "slow.py", "content": code})
        for tool, arguments in (
            ("execute_script", {"script_name": "slow.py"}),
            ("python_repl", {"command": f"import os\nos.close(0)\n{code}"}),
        ):
            await cancel_when_it_prints(client, tool, arguments, "working")
        answer = await client.call_tool("python_repl", {"command": "'kept' in globals()"})
        observation, left, *cancelled = texts(answer)
        assert observation == "False" and left.startswith("[15 of 20 steps")  # the interpreter was killed
        assert cancelled[0].startswith(
            "[You cancelled step 3, execute_script. Its observation was:\n[killed:"
        )
        assert cancelled[0].endswith("\nworking]") and "step 4, python_repl" in cancelled[1]
        assert len(texts(await client.call_tool("list_files", {}))) == 2

    in_memory(setup, tmp_path / "run", play)
    steps = RunFolder(tmp_path / "run").steps()
    assert [step.execution.limit for step in steps if step.execution] == ["cancelled", "cancelled"]
    assert not any(step.failed for step in steps)


async def cancel_when_it_prints(client: Client, tool: str, arguments: dict[str, str], text: str) -> None:
    printed = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        if text in (message or ""):
            printed.set()

    call = asyncio.create_task(client.call_tool(tool, arguments, progress_callback=on_progress))
    await printed.wait()
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call


def test_progress_is_reported_when_it_changes_and_while_the_run_is_graded(
    tmp_path: Path, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_server, "PROGRESS_INTERVAL_S", 0)  # even the shortest step is reported
    messages: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        messages.append((message or "").partition(": ")[2])

    async def play(client: Client) -> None:
        code = "import time\nfor n in (1, 2):\n    print(f'line {n}')\n    time.sleep(0.2)\n"
        await client.call_tool("python_repl", {"command": code}, progress_callback=on_progress)
        lines = [message for message in messages if message.startswith("line")]
        assert lines == ["line 1", "line 2"]
        messages.clear()
        await client.call_tool("final_answer", SUBMIT, progress_callback=on_progress)
        assert messages[-1] == "grading the submission"

    in_memory(setup, tmp_path / "run", play)


def test_two_clients_over_http_share_the_run_and_losing_one_does_not_end_it(
    toy: Path, tmp_path: Path
) -> None:
    async def look(client: Client) -> None:
        await client.call_tool("list_files", {})

    async def submit(client: Client) -> None:
        assert texts(await client.call_tool("list_files", {}))[1].startswith("[18 of 20")
        await client.call_tool("final_answer", SUBMIT)

    with over_http(toy, "--out", tmp_path / "run") as (server, address):
        connect(address, look)
        connect(address, submit)
        out, _ = server.communicate(timeout=20)
    assert "INVALID: submission.csv is missing" in out


def test_the_time_limit_ends_a_run_whose_client_left(toy: Path, tmp_path: Path) -> None:
    async def look(client: Client) -> None:
        await client.call_tool("list_files", {})

    with over_http(toy, "--out", tmp_path / "run", "--hours", "0.0001", "--json") as (server, address):
        connect(address, look)
        out, _ = server.communicate(timeout=20)
    assert server.returncode == 0 and json.loads(out)["ending"] == "time"


def test_stop_ends_a_waiting_server_and_the_run_can_be_resumed(toy: Path, tmp_path: Path, cli: Cli) -> None:
    for args in ([], ["--http", "0"]):
        run = tmp_path / f"run{len(args)}"
        with subprocess.Popen(
            [sys.executable, *command(toy, "--out", run, *args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as server:
            assert server.stderr and "Serving toy" in read_until_ready(server)
            assert cli("stop", run).stdout == f"stopped: {run}\n"
            server.wait(20)
            assert server.returncode == 130
            assert server.stderr.read().endswith(f"continue with: mlagentbench mcp --resume {run}\n")


WAITING_PREPARE = """
import time
from pathlib import Path

def prepare(edition, raw, public, private, seed):
    while not Path(__file__).with_name("go").exists():
        time.sleep(0.01)
    (public / "questions.csv").write_text("id\\n1\\n")
"""


def test_a_client_that_comes_before_the_data_is_prepared_is_answered_at_once_and_its_call_waits(
    variant: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, home, messages = variant({"prepare.py": WAITING_PREPARE}), tmp_path / "home", []
    home.mkdir()
    (home / "runtimes").symlink_to(cache_dir() / "runtimes")
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(home))

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        messages.append(message)
        if "Preparing data of toy" in (message or ""):
            (task / "go").touch()

    async def play(client: Client) -> None:
        assert client.instructions and "your first call" in client.instructions
        assert "execute_script" in {tool.name for tool in (await client.list_tools()).tools}
        assert (await client.list_resources()).resources[0].uri == "task://description"
        answer = await client.call_tool("list_files", {}, progress_callback=on_progress)
        assert "questions.csv" in texts(answer)[0] and texts(answer)[1].startswith("[19 of 20 steps")

    over_stdio(tmp_path / "log", play, task, "--out", tmp_path / "run")
    (step,) = RunFolder(tmp_path / "run").steps()
    assert messages and step.clock == step.seconds


def test_a_call_that_waits_too_long_for_the_preparation_is_answered_and_is_no_step(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_server, "MAX_PREPARATION_WAIT_S", 0.0)

    def never_open(progress: object) -> NoReturn:
        raise AssertionError

    server = run_server.RunServer(
        describe_new_run(Task.load(str(toy)), "open", "", "", "starter", {}, False, never_open)
    )
    server.preparation = "Installing packages"

    async def main() -> None:
        async with Client(server.server) as client:
            answer = await client.call_tool("list_files", {})
            assert answer.is_error and texts(answer) == [
                "Error: The task is being prepared (Installing packages). Call again in a minute."
                " This call was not a step."
            ]

    asyncio.run(main())


def test_tools_state_the_time_limit_of_the_run(toy: Path) -> None:
    limits = {"script_minutes": 7}
    run = describe_new_run(
        Task.load(str(toy)), "open", "", "", "starter", limits, False, lambda progress: None
    )
    for name in ("Execute Script", "Python REPL"):
        assert "may run for 7 minutes at most" in run.actions[name].description


def test_a_fault_voids_the_run_and_is_reported(toy: Path, tmp_path: Path) -> None:
    async def play(client: Client) -> None:
        (tmp_path / "run" / "trace.jsonl").mkdir()
        answer = await client.call_tool("list_files", {})
        assert answer.is_error and "Cannot write" in texts(answer)[0]

    with over_http(toy, "--out", tmp_path / "run", "--json") as (server, address):
        connect(address, play)
        out, _ = server.communicate(timeout=20)
    assert server.returncode == 1 and json.loads(out)["ending"] == "fault"


def test_requests_from_other_web_sites_are_rejected(toy: Path, tmp_path: Path) -> None:
    with over_http(toy, "--out", tmp_path / "run") as (_, address):
        request = Request(address, b"{}", {"Content-Type": "application/json", "Host": "evil.example"})
        with pytest.raises(HTTPError) as rejected:
            urlopen(request, timeout=10)
        rejected.value.close()
    assert rejected.value.code in (403, 421)


def test_usage_errors_are_one_line(toy: Path, tmp_path: Path, cli: Cli) -> None:
    for args, reason in (
        ((), "Name a task or a run to resume"),
        (("--resume", tmp_path), "is not a run"),
        ((toy, "--name", "tuner"), "is the name of an agent"),
        ((toy, "--sandbox", "box"), "No such sandbox: 'box'"),
    ):
        done = cli("mcp", *args)
        assert done.returncode == 2 and reason in done.stderr and len(done.stderr.splitlines()) == 1, (
            done.stderr
        )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = cli("mcp", toy, "--http", listener.getsockname()[1], "--out", tmp_path / "other")
    assert done.returncode == 2 and "Cannot listen on port" in done.stderr
    assert not (tmp_path / "other").exists()


def test_without_the_package_one_line_shows_the_install_command(
    toy: Path, tmp_path: Path, cli_process: Cli
) -> None:
    (tmp_path / "mcp.py").write_text("raise ImportError('gone', name='mcp')")
    paths = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = cli_process("mcp", toy, env={**os.environ, "PYTHONPATH": paths})
    assert (done.returncode, done.stderr) == (
        2,
        f"mlagentbench: mcp is not installed. Install it: {install_command('mcp')}\n",
    )
