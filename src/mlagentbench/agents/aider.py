"""aider: pair programming in the terminal. It edits files, and has no tools of its own."""

from mlagentbench.agents.programs.preset import PythonPreset


class Aider(PythonPreset):
    """aider, which edits train.py as the model says; it runs commands only if the model suggests them."""

    requirements = "downloads 121 MB"
    default_version = "0.86.2"
    python_packages = ("aider-chat=={version}",)
    command_line = (
        "/opt/agent/bin/aider --yes-always --no-git --no-check-update --no-show-release-notes"
        " --analytics-disable --no-show-model-warnings --no-fancy-input --no-pretty"
        " --model openai/gpt-5 --edit-format whole --auto-test --test-cmd 'python train.py'"
        " --message-file {task} train.py"
    )
    variables = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
