"""Gemini CLI: Google's coding agent."""

import json

from mlagentbench.agents.programs.preset import NpmPreset

SETTINGS = {
    "general": {"enableAutoUpdate": False, "disableAutoUpdate": True, "disableUpdateNag": True},
    "privacy": {"usageStatisticsEnabled": False},
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "telemetry": {"enabled": False},
}


class GeminiCli(NpmPreset):
    """Gemini CLI, Google's coding agent for the terminal."""

    requirements = "downloads 61 + 20 MB (Node, program)"
    default_version = "0.61.0"
    npm_packages = {"@google/gemini-cli": "{version}"}
    executable = "@google/gemini-cli/bundle/gemini.js"
    needs_node = True
    command_line = "{node} {program} --yolo --skip-trust -m gemini-2.5-pro -p {description}"
    variables = {"GEMINI_API_KEY": "none-needed", "GOOGLE_GEMINI_BASE_URL": "{url}"}
    files = {".gemini/settings.json": json.dumps(SETTINGS)}
