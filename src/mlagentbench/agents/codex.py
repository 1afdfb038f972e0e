"""Codex: OpenAI's coding agent."""

from mlagentbench.agents.programs.preset import NpmPreset

CONFIG = """
model = "gpt-5"
model_provider = "bench"
check_for_update_on_startup = false
web_search = "disabled"

[model_providers.bench]
name = "bench"
base_url = "http://127.0.0.1:8791/v1"
wire_api = "responses"

[analytics]
enabled = false
"""


class Codex(NpmPreset):
    """Codex, OpenAI's coding agent for the terminal."""

    requirements = "downloads 61 + 172 MB (Node, program)"
    default_version = "0.166.0"
    npm_packages = {
        "@openai/codex-linux-x64": "npm:@openai/codex@{version}-linux-x64",
        "@openai/codex-linux-arm64": "npm:@openai/codex@{version}-linux-arm64",
    }
    executable = "@openai/codex-linux-*/vendor/*/bin/codex"
    command_line = (
        "{program} exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox {description}"
    )
    files = {".codex/config.toml": CONFIG}
