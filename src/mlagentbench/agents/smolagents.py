"""smolagents: Hugging Face's agent that thinks in Python code."""

from mlagentbench.agents.programs.preset import PythonPreset


class Smolagents(PythonPreset):
    """Hugging Face's smolagents: the model writes Python, which runs in the agent's own interpreter."""

    requirements = "downloads 17 MB"
    default_version = "1.26.0"
    python_packages = ("smolagents[openai]=={version}",)
    command_line = (
        "{python} -m smolagents.cli {description} --model-type OpenAIModel --model-id model"
        " --api-base {url}/v1 --api-key none-needed --tools --imports *"
    )
