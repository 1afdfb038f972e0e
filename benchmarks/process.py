"""Measures the cost of process findings on one large run of a language agent; prints milliseconds per run.

python benchmarks/process.py [REPETITIONS]
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from mlagentbench.analysis.runs import read_runs
from mlagentbench.process.findings import collect_findings
from mlagentbench.records import (
    Call,
    Execution,
    Hardware,
    Hashes,
    Limits,
    Message,
    ModelCall,
    Prompt,
    Reply,
    Result,
    RunSpec,
    Step,
)
from mlagentbench.runner.folder import RunFolder

STEPS = 50
HASHES = Hashes(task="t" * 64, grader="a" * 64, data="d" * 64, runtime="r" * 64)
MACHINE = Hardware(cpu="a chip", cores=2, memory_gb=8, system="Linux", python="3.11")
ACTIONS = (
    ("Read File", {"file_name": "train.py"}),
    ("Write File", {"file_name": "train.py", "content": "..."}),
)
EXECUTE = ("Execute Script", {"script_name": "train.py"})


def create_run(folder_path: Path) -> None:
    spec_fields: dict[str, Any] = {
        "task": "toy",
        "edition": "open",
        "agent": "research",
        "model": "m",
        "seed": 0,
        "sandbox": "bwrap",
    }
    spec = RunSpec(
        version="0",
        id="0",
        started="2026-01-01",
        limits=Limits(),
        hashes=HASHES,
        hardware=MACHINE,
        **spec_fields,
    )
    folder = RunFolder.create(folder_path, spec)
    files = {f"data/{number}.csv": manifest_entry(number) for number in range(30)}
    changes = [{"step": 0, "changed": files, "removed": []}]
    for number in range(1, STEPS + 1):
        action, args = (*ACTIONS, EXECUTE)[number % 3]
        execution = Execution(exit_code=0, seconds=12) if action == "Execute Script" else None
        thought = f"The accuracy of 0.8{max(number - 1, 1):03d} is better, so I keep it."
        step = Step(
            number=number,
            call=Call(action=action, args=args, thought=thought),
            observation=output_of(number),
            seconds=1,
            clock=number,
            execution=execution,
        )
        folder.trace.append(step.model_dump_json())
        folder.model_calls.append(model_call_of(number, thought).model_dump_json())
        changes.append({"step": number, "changed": {"train.py": manifest_entry(number)}, "removed": []})
    (folder_path / "snapshots").mkdir()
    (folder_path / "snapshots" / "manifest.jsonl").write_text(
        "".join(f"{json.dumps(line)}\n" for line in changes)
    )
    folder.write_result(
        Result(
            task="toy",
            edition="open",
            agent="research",
            ending="steps",
            steps=STEPS,
            seconds=60,
            hashes=HASHES,
        )
    )


def manifest_entry(number: int) -> dict[str, object]:
    return {"kind": "file", "mode": 0o644, "hash": f"{number:064x}", "size": 10}


def output_of(number: int) -> str:
    epochs = (
        f"epoch {epoch}: loss {0.5 + epoch / 1000:.4f} accuracy {0.6 + epoch / 777:.4f}\n"
        for epoch in range(60)
    )
    return (
        f"[exit code 0, 12.0 s, peak memory 300 MB]\n{''.join(epochs)}validation accuracy: 0.8{number:03d}\n"
    )


def model_call_of(number: int, thought: str) -> ModelCall:
    prompt = Prompt(messages=(Message(role="user", text=(output_of(number) * 20)[:40_000]),))
    plan = f"Reflection: fine\nResearch Plan and Status: {thought}\nFact Check: ok\n"
    text = f"{plan}Thought: {thought}\nAction: X"
    reply = Reply(text=text)
    return ModelCall(
        number=number,
        step=number,
        inside=False,
        role="main",
        model="m",
        prompt=prompt,
        reply=reply,
        seconds=1,
    )


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder_path:
        create_run(Path(folder_path, "run"))
        started = time.process_time()
        for _ in range(count):
            collect_findings(read_runs([Path(folder_path)])[0])
        print(f"{(time.process_time() - started) / count * 1000:.1f} ms per run of {STEPS} steps")


main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
