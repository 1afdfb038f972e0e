"""Qwen Code: Alibaba's coding agent."""

import json

from mlagentbench.agents.programs.preset import NpmPreset

SETTINGS = {
    "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
}


class QwenCode(NpmPreset):
    """Qwen Code, Alibaba's coding agent for the terminal."""

    requirements = "downloads 61 + 33 MB (Node, program)"
    default_version = "0.24.4"
    npm_packages = {"@qwen-code/qwen-code": "{version}"}
    executable = "@qwen-code/qwen-code/cli-entry.js"
    needs_node = True
    command_line = "{node} {program} --yolo --auth-type openai -m model -p {description}"
    files = {".qwen/settings.json": json.dumps(SETTINGS)}
