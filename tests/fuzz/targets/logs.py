"""Logs of the original MLAgentBench, damaged: taken over as far as they can be, with a note for what cannot."""

import json
import sys
from pathlib import Path
from random import Random

from mutation import dumped, grafted, mutated

from mlagentbench.adapters.original.claimed_scores import ClaimedScores
from mlagentbench.adapters.original.log_folder import LogFolder
from mlagentbench.adapters.original.original_run import read_original_run
from mlagentbench.errors import UsageError
from mlagentbench.records import ModelCall, Step

sys.path.append(str(Path(__file__).parents[2] / "adapters"))
from originals import STEPS, TOLD, asked, main_log, state, trace

RAISES = (UsageError,)
WEIGHT, SHORT = 30, 120
AUTOGPT = (
    " AGENT THOUGHTS: look\nNEXT ACTION:  COMMAND = list_files ARGUMENTS = {'directory': '.'}\n"
    "SYSTEM:  Command list_files returned: train.py\n"
)
FILES = {
    "env_log/trace.json": trace(STEPS),
    "env_log/overall_time.txt": "60.25",
    "env_log/error.txt": "Traceback\nTimeoutException: x",
    "env_log/tool_logs/step_1_tool_log.log": asked("gpt-4", "Given", "```python\n```") * 2,
    "agent_log/main_log": main_log(STEPS) + AUTOGPT,
    "agent_log/agent_3_3.json": state(STEPS, TOLD),
    "log": f"Namespace({', '.join(f'{name}={value!r}' for name, value in TOLD.items())})\n",
    "scores.json": json.dumps({"logs/env_log/trace.json": {"final_score": 0.5}}),
}
WORDS = [
    *(
        b"Action: ",
        b"\nAction Input:",
        b"\nObservation:",
        b"Thought:",
        b"```\n",
        b"Step 0:\n",
        b"Namespace(",
        b"\n",
    ),
    *(
        b"===prompt===\n",
        b"\n===gpt-4 response (1)===\n",
        b"\n===tokens===\n",
        b"COMMAND = ",
        b" ARGUMENTS = ",
        b" ",
    ),
    *(
        b"NEXT ACTION: COMMAND = ",
        b"SYSTEM: ",
        b"THOUGHTS: ",
        b'"steps": [',
        b"1e-323",
        b"1e10",
        b"-",
        b"(",
        b"{'a': ",
    ),
]
HEADS = b"===prompt===\nx\n===gpt-4 response (1)===\n"
FOUND = [
    {"env_log/tool_logs/step_1_tool_log.log": HEADS * 2000},
    {"env_log/tool_logs/step_1_tool_log.log": b"===prompt===\n" * 9000},
    {"agent_log/main_log": b"Step 0:\n" + b"Action: a\nAction Input: b\n" * 4000},
    {"agent_log/main_log": b"NEXT ACTION: COMMAND = a ARGUMENTS = {[]: 1}\n", "env_log/trace.json": b"{}"},
    {"log": b"Namespace(task={{}})\n", "agent_log/agent_3_3.json": b"{}"},
    {"log": b"Namespace(max_time=5e-324)\n", "agent_log/agent_3_3.json": b"{}"},
    {"env_log/overall_time.txt": b"9e10"},
    {"scores.json": b'{"env_log/trace.json": {"final_score": 1%s}}' % (b"0" * 400)},
]
DAMAGED = {name: mutated([text.encode()], WORDS) for name, text in FILES.items()}
EXCHANGED = {name: grafted([json.loads(text)]) for name, text in FILES.items() if name.endswith(".json")}


def make(random: Random) -> dict[str, bytes]:
    """What one or two of the files hold now; one that is not there any more holds nothing."""
    found = {}
    for name in random.sample([*FILES], random.choice((1, 1, 2))):
        graft = name in EXCHANGED and random.random() < 0.5
        found[name] = dumped(EXCHANGED[name](random)) if graft else DAMAGED[name](random)
    return found


def attempt(case: dict[str, bytes], room: Path) -> None:
    for name, text in FILES.items():
        (room / name).parent.mkdir(parents=True, exist_ok=True)
        (room / name).write_bytes(case.get(name, text.encode()))
    run = read_original_run(LogFolder(room, "a log"))
    for step in run.steps:
        Step.model_validate_json(step.model_dump_json())
    for call in run.calls:
        ModelCall.model_validate_json(call.model_dump_json())
    assert [step.number for step in run.steps] == [*range(1, len(run.steps) + 1)]
    assert all(note.isprintable() for note in run.logs.notes)
    ClaimedScores([room / "scores.json"]).score(run)
