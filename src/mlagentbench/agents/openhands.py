"""OpenHands: the agent of its SDK, with a terminal and a file editor."""

from mlagentbench.agents.programs.preset import PythonPreset

MAIN = """
import sys
from openhands.sdk import LLM, Agent, Conversation, Tool
from openhands.tools.file_editor import FileEditorTool
from openhands.tools.task_tracker import TaskTrackerTool
from openhands.tools.terminal import TerminalTool

url, task = sys.argv[1:]
llm = LLM(model="openai/gpt-5", base_url=url, api_key="none-needed", usage_id="agent")
tools = [Tool(name=tool.name) for tool in (TerminalTool, FileEditorTool, TaskTrackerTool)]
conversation = Conversation(agent=Agent(llm=llm, tools=tools), workspace="/workspace")
conversation.send_message(open(task).read())
conversation.run()
"""


class Openhands(PythonPreset):
    """OpenHands, the agent of its SDK with a terminal, a file editor and a task list."""

    requirements = "Python 3.12 or newer; downloads 110 MB"
    default_version = "1.58.0"
    python_version = "3.12+"
    # What the tools require besides these is for a browser, and not all of it has wheels.
    packages_alone = ("openhands-tools=={version}",)
    python_packages = (
        "openhands-sdk=={version}",
        "binaryornot==0.6.0",
        "cachetools==8.0.0",
        "libtmux==0.62.0",
    )
    command_line = "{python} /opt/home/.openhands/main.py {url}/v1 {task}"
    variables = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OPENHANDS_SUPPRESS_BANNER": "1",
    }
    files = {".openhands/main.py": MAIN}
