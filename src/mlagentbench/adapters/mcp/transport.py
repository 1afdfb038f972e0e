"""Serves a run over stdio or HTTP until it is over, the client disconnects, or a stop is requested."""

import logging
import socket
from threading import Thread

import anyio
import uvicorn
from mcp.server.stdio import stdio_server

from mlagentbench.adapters.mcp.run_server import RunServer
from mlagentbench.adapters.mcp.served_run import ServedRun
from mlagentbench.errors import UsageError
from mlagentbench.runner.session import Session
from mlagentbench.system.progress import ProgressCallback

POLL_INTERVAL_S = 0.2  # for the time limit and for a stop request
SHUTDOWN_GRACE_S = 3  # for clients to receive the last responses


def serve_run(run: ServedRun, port: int | None, progress: ProgressCallback) -> Session:
    """Serve a run to clients; if they disconnect before the end, the run is suspended and can be resumed.

    The server runs in a background thread, which may still be blocked reading from a client at the end. It
    answers clients while this thread prepares the run.
    """
    run_server = RunServer(run)
    listener = _listen_on_loopback(port) if port is not None else None
    web = _create_web_server(run_server) if listener else None
    thread = Thread(
        target=web.run if web else anyio.run,
        args=([listener],) if web else (_serve_stdio, run_server),
        daemon=True,
    )
    address = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp" if listener else "standard input and output"
    thread.start()
    progress(f"Serving {run.task_name} at {address}")

    def report_preparation(line: str) -> None:
        run_server.preparation = line.strip()
        progress(line)

    with run.open(report_preparation) as session:
        run_server.attach(session)
        progress(f"Ready; run folder: {session.folder}; the clock starts with the first call")
        try:
            _wait_until_over(session, thread, web)
        except BaseException:
            session.suspend()
            raise
        if not session.result:
            session.suspend()
    return session


def _wait_until_over(session: Session, thread: Thread, web: uvicorn.Server | None) -> None:
    """Wait until the server ends; over stdio, a client may send requests after the end of the run."""
    while thread.is_alive():
        if not session.result:
            session.env.stop_token.raise_if_requested()
            if session.env.done or session.env.fault:
                session.finish()
        elif web and not web.should_exit:
            # Streams of clients that stay connected are cancelled, which is not an error worth a traceback.
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
            web.should_exit = True
        thread.join(POLL_INTERVAL_S)
    if session.env.done:
        session.finish()


async def _serve_stdio(run_server: RunServer) -> None:
    async with stdio_server() as (incoming, outgoing):
        options = run_server.server.create_initialization_options()
        await run_server.server.run(incoming, outgoing, options)


def _create_web_server(run_server: RunServer) -> uvicorn.Server:
    app = run_server.server.streamable_http_app(session_idle_timeout=None)
    return uvicorn.Server(
        uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=SHUTDOWN_GRACE_S)
    )


def _listen_on_loopback(port: int) -> socket.socket:
    """Listen on the loopback interface only, since there is no authentication."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise UsageError(f"Cannot listen on port {port}: {error.strerror}") from error
