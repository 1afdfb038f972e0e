"""opencode: an open-source coding agent for the terminal."""

import json

from mlagentbench.agents.programs.preset import NpmPreset

CONFIG = {
    "$schema": "https://opencode.ai/config.json",
    "autoupdate": False,
    "share": "disabled",
    "model": "bench/model",
    "small_model": "bench/model",
    "permission": "allow",
    "provider": {
        "bench": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": "http://127.0.0.1:8791/v1", "apiKey": "none-needed"},
            "models": {"model": {"limit": {"context": 200_000, "output": 32_000}}},
        }
    },
}


class Opencode(NpmPreset):
    """opencode, the open-source coding agent for the terminal."""

    requirements = "downloads 61 + 60 MB (Node, program)"
    default_version = "1.18.33"
    npm_packages = {"opencode-linux-x64-baseline": "{version}", "opencode-linux-arm64": "{version}"}
    executable = "opencode-linux-*/bin/opencode"
    command_line = "{program} run {description}"
    variables = {
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    }
    files = {".config/opencode/opencode.json": json.dumps(CONFIG)}
