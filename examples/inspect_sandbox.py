"""An Inspect task in the bwrap sandbox: inspect eval examples/inspect_sandbox.py --model openai/gpt-5"""

from inspect_ai import Task, task
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.tool import bash, python
from inspect_ai.util import SandboxEnvironmentSpec

from mlagentbench.adapters.inspect.sandbox import BwrapConfig


@task
def count_words() -> Task:
    """Commands run under bubblewrap instead of Docker, without network, with the packages of a runtime."""
    return Task(
        dataset=[
            Sample(
                input="How many lines of words.txt start with b? Answer with the number alone.",
                target="2",
                files={"words.txt": "bare\nanchor\nbone\nstone\n"},
            )
        ],
        solver=react(tools=[bash(timeout=60), python(timeout=60)]),
        scorer=includes(),
        sandbox=SandboxEnvironmentSpec("bwrap", BwrapConfig(runtime="tabular", memory_gb=2)),
    )
