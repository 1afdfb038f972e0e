"""Claude Code: Anthropic's coding agent."""

from mlagentbench.agents.programs.preset import NpmPreset


class ClaudeCode(NpmPreset):
    """Claude Code, Anthropic's coding agent for the terminal."""

    requirements = "downloads 61 + 169 MB (Node, program)"
    default_version = "2.1.325"
    npm_packages = {
        "@anthropic-ai/claude-code-linux-x64": "{version}",
        "@anthropic-ai/claude-code-linux-arm64": "{version}",
    }
    executable = "@anthropic-ai/claude-code-linux-*/claude"
    command_line = "{program} -p {description} --dangerously-skip-permissions --verbose"
    variables = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
    }
    files = {".claude.json": '{"hasCompletedOnboarding": true}'}
