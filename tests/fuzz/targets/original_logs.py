"""Damaged logs of the original MLAgentBench: imported as far as possible, with notes about the rest."""

import json
import sys
from pathlib import Path
from random import Random

from mutation import dump_json, mutate_bytes, mutate_json

from mlagentbench.adapters.original.claimed_scores import ClaimedScores
from mlagentbench.adapters.original.log_folder import LogFolder
from mlagentbench.adapters.original.original_run import read_original_run
from mlagentbench.errors import UsageError
from mlagentbench.records import ModelCall, Step

sys.path.append(str(Path(__file__).parents[2] / "adapters"))
from originals import OPTIONS, STEPS, main_log, model_call, state, trace

EXPECTED_ERRORS = (UsageError,)
CASES_PER_1000, SHORT_CASES = 30, 120
AUTOGPT = (
    " AGENT THOUGHTS: look\nNEXT ACTION:  COMMAND = list_files ARGUMENTS = {'directory': '.'}\n"
    "SYSTEM:  Command list_files returned: train.py\n"
)
FILES = {
    "env_log/trace.json": trace(STEPS),
    "env_log/overall_time.txt": "60.25",
    "env_log/error.txt": "Traceback\nTimeoutException: x",
    "env_log/tool_logs/step_1_tool_log.log": model_call("gpt-4", "Given", "```python\n```") * 2,
    "agent_log/main_log": main_log(STEPS) + AUTOGPT,
    "agent_log/agent_3_3.json": state(STEPS, OPTIONS),
    "log": f"Namespace({', '.join(f'{name}={value!r}' for name, value in OPTIONS.items())})\n",
    "scores.json": json.dumps({"logs/env_log/trace.json": {"final_score": 0.5}}),
}
TOKENS = [
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
REGRESSION_CASES = [
    {"env_log/tool_logs/step_1_tool_log.log": HEADS * 2000},
    {"env_log/tool_logs/step_1_tool_log.log": b"===prompt===\n" * 9000},
    {"agent_log/main_log": b"Step 0:\n" + b"Action: a\nAction Input: b\n" * 4000},
    {"agent_log/main_log": b"NEXT ACTION: COMMAND = a ARGUMENTS = {[]: 1}\n", "env_log/trace.json": b"{}"},
    {"log": b"Namespace(task={{}})\n", "agent_log/agent_3_3.json": b"{}"},
    {"log": b"Namespace(max_time=5e-324)\n", "agent_log/agent_3_3.json": b"{}"},
    {"env_log/overall_time.txt": b"9e10"},
    {"scores.json": b'{"env_log/trace.json": {"final_score": 1%s}}' % (b"0" * 400)},
]
MUTATE_BYTES = {name: mutate_bytes([text.encode()], TOKENS) for name, text in FILES.items()}
MUTATE_JSON = {
    name: mutate_json([json.loads(text)]) for name, text in FILES.items() if name.endswith(".json")
}


def make_case(random: Random) -> dict[str, bytes]:
    """New content for one or two of the files."""
    contents = {}
    for name in random.sample([*FILES], random.choice((1, 1, 2))):
        replace_parts = name in MUTATE_JSON and random.random() < 0.5
        contents[name] = dump_json(MUTATE_JSON[name](random)) if replace_parts else MUTATE_BYTES[name](random)
    return contents


def run_case(case: dict[str, bytes], folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(case.get(name, text.encode()))
    run = read_original_run(LogFolder(folder, "a log"))
    for step in run.steps:
        Step.model_validate_json(step.model_dump_json())
    for call in run.calls:
        ModelCall.model_validate_json(call.model_dump_json())
    assert [step.number for step in run.steps] == [*range(1, len(run.steps) + 1)]
    assert all(note.isprintable() for note in run.logs.notes)
    ClaimedScores([folder / "scores.json"]).score(run)
