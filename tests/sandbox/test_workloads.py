"""Ordinary training code works inside the sandbox."""

from script_runner import ScriptRunner

from mlagentbench.records import Limits

LARGE = Limits(memory_gb=2, disk_gb=1)


def test_tables_models_and_processes_work(run: ScriptRunner) -> None:
    result = run(
        """
import json, multiprocessing, os, sqlite3, subprocess, sys, tempfile, threading

def square(x): return x * x

if __name__ == '__main__':
    import numpy, pandas, lightgbm
    from joblib import Parallel, delayed
    generator = numpy.random.default_rng(int(os.environ['SEED']))
    frame = pandas.DataFrame(generator.random((500, 3)), columns=list('abc'))
    model = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1).fit(frame[['a', 'b']], frame['c'])
    assert len(model.predict(frame[['a', 'b']])) == 500
    for method in ('fork', 'spawn'):
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(square, range(4)) == [0, 1, 4, 9]
    assert Parallel(n_jobs=2)(delayed(square)(x) for x in range(4)) == [0, 1, 4, 9]
    shell = subprocess.run(['sh', '-c', 'echo $SEED; whoami'], capture_output=True, text=True)
    assert shell.stdout == '7\\nagent\\n'
    thread = threading.Thread(target=print, args=('thread',)); thread.start(); thread.join()
    with sqlite3.connect('data.sqlite') as base: base.execute('create table t (x)')
    with tempfile.TemporaryFile() as file: file.write(b'x')
    frame.to_csv('out.csv', index=False)
    os.rename('out.csv', 'submission.csv')
    print(os.path.expanduser('~'), sys.version_info[:2], os.cpu_count() > 0)
""",
        limits=LARGE,
    )
    assert result.exit_code == 0, result.text
    assert (run.workspace / "submission.csv").stat().st_size > 1000
    assert (result.execution.peak_mb or 0) > 20


def test_asyncio_shared_memory_and_loopback_servers_work(run: ScriptRunner) -> None:
    result = run(
        """
import asyncio, socket, threading
from multiprocessing import shared_memory
memory = shared_memory.SharedMemory(create=True, size=1000)
memory.buf[0] = 1; memory.close(); memory.unlink()
async def main():
    server = await asyncio.start_server(lambda r, w: w.close(), '127.0.0.1', 0)
    port = server.sockets[0].getsockname()[1]
    await asyncio.open_connection('localhost', port)
    process = await asyncio.create_subprocess_exec('true')
    assert await process.wait() == 0
asyncio.run(main())
left, right = socket.socketpair()
""",
        limits=LARGE,
    )
    assert result.exit_code == 0, result.text


def test_a_module_in_the_workspace_does_not_shadow_the_startup_of_the_sandbox(run: ScriptRunner) -> None:
    """A script named like a module of Python's hurts only scripts that import it."""
    (run.workspace / "json.py").write_text("raise SystemExit(9)")
    (run.workspace / "sh").write_text("#!/bin/sh\nexit 9")
    (run.workspace / "sh").chmod(0o755)
    assert run("print(1)").exit_code == 0
    assert run("import json").exit_code == 9
