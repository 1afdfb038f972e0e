"""The live display of a run."""

from collections.abc import Callable
from io import StringIO
from threading import Thread

from rich.console import Console

from mlagentbench.environment.environment import Environment
from mlagentbench.terminal.live import LivePanel

CODE = "import os\nprint('epoch 1', flush=True)\nwhile not os.path.exists('go'): pass\nprint('epoch 2')\n"


def test_the_last_line_of_a_running_script_is_shown(
    env: Environment, do: Callable[..., str], until: Callable[[Callable[[], object]], None]
) -> None:
    def render() -> str:
        text = StringIO()
        Console(file=text, width=200).print(LivePanel(env))
        return text.getvalue()

    do(env, "Write File", file_name="slow.py", content=CODE)
    script = Thread(target=do, args=(env, "Execute Script"), kwargs={"script_name": "slow.py"})
    script.start()
    until(lambda: "epoch 1" in render())
    (env.context.workspace.root / "go").touch()
    script.join()
    assert "epoch 2" in render() and "epoch 1" not in render()
