"""Writes log folders like the original MLAgentBench."""

import json
from pathlib import Path
from typing import Any

START = 1_690_000_000.0
OPTIONS = {
    "task": "house-price",
    "log_dir": "logs",
    "work_dir": "./workspace",
    "max_steps": 30,
    "max_time": 18000,
    "device": 0,
    "python": "/somewhere/bin/python",
    "resume": None,
    "agent_type": "ResearchAgent",
    "llm_name": "gpt-4",
    "fast_llm_name": "gpt-3.5-turbo",
    "edit_script_llm_name": "gpt-4",
    "retrieval": False,
}
PROMPT = """Enabled Tools in Prompt:['List Files']
================================Start=============================
You are a helpful research assistant. You have access to the following tools:
- List Files:
        Action: List Files
        Action Input: {
        }
Always respond in this format exactly:
Action: the action to take, should be one of the names of the tools
Action Input: the input to the action as a valid JSON string
Observation:
```
the result of the action
```

"""


def step(name: str, args: Any, observation: Any, after: float) -> dict[str, Any]:
    return {"action": {"name": name, "args": args}, "observation": observation, "timestamp": START + after}


STEPS = [
    step("List Files", {"dir_path": "."}, "train.py\n", 10.0),
    step(
        "Edit Script (AI)",
        {"script_name": "train.py", "edit_instruction": "x", "save_name": "train.py"},
        "ok",
        40.5,
    ),
    step(
        "Execute Script", {"script_name": "missing.py"}, "EnvError: The file missing.py does not exist.", 41.0
    ),
    step("Final Answer", {"final_answer": "It is better."}, "end", 50.0),
]


def reply_entries(number: int, name: str, args: Any) -> dict[str, str]:
    """The entries of a reply, as the original parses them: logged with the line break that ends it."""
    return {
        "Reflection": f" reflection {number}\n",
        "Research Plan and Status": f" plan {number}\n",
        "Fact Check": "\n",
        "Thought": f" thought {number}\n",
        "Action": f" {name}\n",
        "Action Input": f" {json.dumps(args)}\n",
    }


def state(steps: list[dict[str, Any]], options: dict[str, Any]) -> str:
    """agent_N_M.json."""
    history = [
        {
            "step_idx": n + 1,
            "action": reply_entries(n, logged["action"]["name"], logged["action"]["args"]),
            "observation": "seen",
        }
        for n, logged in enumerate(steps)
    ]
    return json.dumps(
        {"args": options, "valid_format_entires": ["Action"], "history_steps": history}, indent=4
    )


def main_log(steps: list[dict[str, Any]]) -> str:
    blocks = []
    for n, logged in enumerate(steps):
        entries = "".join(
            f"{k}:{v}"
            for k, v in reply_entries(n, logged["action"]["name"], logged["action"]["args"]).items()
        )
        blocks.append(
            f"Step {n}:\n\n\nAssistant:\n{entries}\nObservation:\n\n```\n{logged['observation']}\n```\n\n"
        )
    return PROMPT + "".join(blocks)


def model_call(model: str, prompt: str, reply: str) -> str:
    """One call in a log of model calls."""
    return (
        f"\n===================prompt=====================\n\n\nHuman: {prompt} \n\nAssistant:"
        f"\n==================={model} response (2000)=====================\n{reply}"
        "\n===================tokens=====================\n"
        "Number of prompt tokens: 120\nNumber of sampled tokens: 30\n\n\n"
    )


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def trace(steps: list[Any]) -> str:
    infos = {
        "List Files": {"name": "List Files", "usage": {}, "function": "list_files", "is_primitive": True}
    }
    content = {
        "steps": steps,
        "low_level_steps": [],
        "action_infos": infos,
        "task_description": "Predict prices.",
    }
    return json.dumps(content, indent=4)


def original(folder: Path, steps: list[Any] = STEPS, options: dict[str, Any] = OPTIONS) -> Path:
    """A complete log folder of the research agent."""
    files = {
        "env_log/trace.json": trace(steps),
        "env_log/overall_time.txt": "60.25",
        "env_log/tool_logs/step_1_tool_log.log": model_call(
            "gpt-4", "Given this python script", "```python\n```"
        ),
        "env_log/traces/step_0_files/train.py": "first\n",
        "env_log/traces/step_1_files/train.py": "second\n",
        "env_log/traces/step_1_files/backup/train.py_2023": "first\n",
        "env_log/traces/step_2_files/train.py": "second\n",
        "env_log/traces/step_2_files/submission.csv": "Id,SalePrice\n1,2\n",
        "env_log/traces/step_3_files/train.py": "second\n",
        "env_log/traces/step_3_files/submission.csv": "Id,SalePrice\n1,2\n",
        "env_log/traces/step_final_files/train.py": "second\n",
        "env_log/traces/step_final_files/submission.csv": "Id,SalePrice\n1,2\n",
        "agent_log/main_log": main_log(steps),
        "agent_log/step_0_log.log": model_call("gpt-4", "What now?", "Action: List Files"),
        "agent_log/step_3_summarize_observation_log.log_0": model_call("gpt-3.5-turbo", "Summarize", "short"),
        f"agent_log/agent_{len(steps) - 1}_{len(steps) - 1}.json": state(steps, options),
    }
    return write(folder, files)
