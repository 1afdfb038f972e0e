"""goose: the Agentic AI Foundation's agent, with its developer extension."""

from mlagentbench.agents.programs.preset import NpmPreset


class Goose(NpmPreset):
    """goose of the Agentic AI Foundation, with its developer extension."""

    requirements = "downloads 61 + 88 MB (Node, program)"
    default_version = "0.20.1"
    npm_packages = {
        "@aaif/goose-binary-linux-x64": "{version}",
        "@aaif/goose-binary-linux-arm64": "{version}",
    }
    executable = "@aaif/goose-binary-linux-*/bin/goose"
    command_line = "{program} run --no-session --with-builtin developer -t {description}"
    variables = {
        "GOOSE_PROVIDER": "openai",
        "GOOSE_MODEL": "gpt-5",
        "GOOSE_MODE": "auto",
        "GOOSE_DISABLE_KEYRING": "1",
        "GOOSE_TELEMETRY_ENABLED": "false",
        "OPENAI_HOST": "{url}",
    }
