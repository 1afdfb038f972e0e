"""mini-swe-agent: a bash tool and a loop."""

from mlagentbench.agents.programs.preset import PythonPreset


class MiniSweAgent(PythonPreset):
    """mini-swe-agent, which has a bash tool and nothing else."""

    requirements = "downloads 158 MB"
    default_version = "2.4.6"
    python_packages = ("mini-swe-agent=={version}", "mcp==2.3.0")  # its tool calls need mcp
    command_line = (
        "{python} -m minisweagent.run.mini -c mini.yaml -m openai/gpt-5 -y --exit-immediately"
        " --cost-limit 0 -t {description}"
    )
    variables = {
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_SILENT_STARTUP": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
