"""Serves a run over stdio or HTTP until it is over, or the client leaves, or somebody stops it."""

import socket
from contextlib import AbstractContextManager
from threading import Thread

import anyio
import uvicorn
from mcp.server.stdio import stdio_server

from mlagentbench.adapters.mcp.run_server import RunServer
from mlagentbench.errors import UsageError
from mlagentbench.runner.session import Session
from mlagentbench.system.progress import ProgressCallback

POLL_INTERVAL_S = 0.2  # seconds between two looks at the clock and for a wish to stop
SHUTDOWN_GRACE_S = 3  # seconds that clients get to hear the last answers


def serve_run(opening: AbstractContextManager[Session], port: int | None, say: ProgressCallback) -> Session:
    """Hold the run while clients play; a client that leaves before the end leaves it to be resumed.

    The server has a thread of its own, which may be stuck in reading from a client when all else is over.
    """
    listener = _listen_on_loopback(port) if port is not None else None
    with opening as played:
        offering = RunServer(played)
        web = _create_web_server(offering) if listener else None
        serving = Thread(
            target=web.run if web else anyio.run,
            args=([listener],) if web else (_serve_stdio, offering),
            daemon=True,
        )
        where = (
            f"http://127.0.0.1:{listener.getsockname()[1]}/mcp" if listener else "standard input and output"
        )
        say(f"serving {played.env.task.name} at {where}; the run is in {played.folder.path}")
        serving.start()
        try:
            _wait_until_over(played, serving, web)
        except BaseException:
            played.suspend()
            raise
        if not played.result:
            played.suspend()
    return played


def _wait_until_over(played: Session, serving: Thread, web: uvicorn.Server | None) -> None:
    """Until nobody is served any more; over stdio, a client may go on asking after the end."""
    while serving.is_alive():
        if not played.result:
            played.env.stop_token.raise_if_requested()
            if played.env.done or played.env.fault:
                played.finish()
        elif web:
            web.should_exit = True
        serving.join(POLL_INTERVAL_S)
    if played.env.done:
        played.finish()


async def _serve_stdio(offering: RunServer) -> None:
    async with stdio_server() as (incoming, outgoing):
        await offering.server.run(incoming, outgoing, offering.server.create_initialization_options())


def _create_web_server(offering: RunServer) -> uvicorn.Server:
    app = offering.server.streamable_http_app(session_idle_timeout=None)
    return uvicorn.Server(
        uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=SHUTDOWN_GRACE_S)
    )


def _listen_on_loopback(port: int) -> socket.socket:
    """Nobody but programs of this machine can connect: there is no password."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise UsageError(f"cannot listen on port {port}: {error.strerror}") from error
