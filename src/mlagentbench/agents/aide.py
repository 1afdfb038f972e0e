"""AIDE: a tree search over whole scripts, by Weco AI."""

from mlagentbench.agents.programs.preset import PythonPreset

# AIDE runs code in its own process, so the task's Python runs AIDE. It leaves the best script in its log
# folder; that script becomes train.py, and runs where AIDE's folders `input` and `working` are the workspace.
MAIN = """
import os, shutil, subprocess, sys, traceback
from pathlib import Path

packages, *arguments = sys.argv[1:]
sys.path.append(packages)
from aide.run import run

sys.argv = ["aide", *arguments]
try:
    run()
except Exception:
    traceback.print_exc()
    os._exit(1)  # its interpreter would keep it alive
(best,) = Path("/tmp/aide/logs").glob("*/best_solution.py")
shutil.copy(best, "train.py")
for name in ("input", "working"):
    if not os.path.lexists(name):
        os.symlink(".", name)
sys.exit(subprocess.call(["python", "train.py"]))
"""


class Aide(PythonPreset):
    """AIDE by Weco AI: a tree search over whole scripts; the best one becomes train.py."""

    requirements = "downloads 21 MB"
    default_version = "0.2.2"
    # aideml also requires some 200 packages for the code that it writes, which has the task's packages here.
    packages_alone = ("aideml=={version}",)
    python_packages = (
        *("anthropic==2.8.0", "backoff==2.2.1", "black==26.10.1", "coolname==5.0.0"),
        *("dataclasses-json==0.6.7", "funcy==2.1", "genson==1.4.0", "humanize==4.16.0"),
        *("igraph==1.0.0", "jsonschema==4.26.0", "omegaconf==2.4.0", "openai==3.49.0"),
        *("python-dotenv==1.2.4", "requests==2.34.2", "rich==15.0.0", "shutup==0.3.0"),
    )
    command_line = (
        "python /opt/home/.aide/main.py {packages} data_dir=/workspace desc_file={task} copy_data=false"
        " preprocess_data=false log_dir=/tmp/aide/logs workspace_dir=/tmp/aide/workspaces"
        " generate_report=false agent.code.model=model agent.feedback.model=model report.model=model"
    )
    files = {".aide/main.py": MAIN}
