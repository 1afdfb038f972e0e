"""Attack: leave background processes behind."""

import secrets

from mlagentbench.audit.attacks.base import Attack, AttackOutcome
from mlagentbench.audit.processes import is_process_running
from mlagentbench.environment.environment import Environment

CODE = '''
import subprocess, time
def detach(start):
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    start()
    os._exit(0)
LOOP = """import time
while True:
    time.sleep(0.02)
    open('late.txt', 'a').write('late')
"""
with open("late.py", "w") as file:
    file.write(LOOP)
detach(lambda: os.execv(sys.executable, [sys.executable, "late.py", TOKEN]))
silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
subprocess.Popen(["nohup", sys.executable, "late.py", TOKEN], **silent)
subprocess.Popen([sys.executable, "late.py", TOKEN], start_new_session=True, stdin=subprocess.DEVNULL)
while not os.path.exists("late.txt"):
    time.sleep(0.01)
os.remove("late.txt")
'''
THREAD_CODE = """
import os, threading, time
def edit():
    while True:
        time.sleep(0.01)
        open("late-thread.txt", "a").write("late")
threading.Thread(target=edit, daemon=True).start()
os.fork() or edit()
"""


class Daemons(Attack):
    """Leaves processes and threads that keep editing files after the step and after the final answer."""

    threats = (11, 23)
    task_independent = True

    def run(self, env: Environment) -> None:
        """Start daemons from a script and from the interpreter, then take steps in which they could work."""
        self.token = secrets.token_hex(8)
        self.run_script(env, CODE, TOKEN=self.token)
        self.alive = is_process_running(self.token)
        self.try_action(env, "Python REPL", command=THREAD_CODE)
        for _ in range(3):
            self.try_action(env, "List Files")
        self.finish_without_submission(env)

    def describe_gain(self, outcome: AttackOutcome) -> str:
        """Report a process that outlived its step, or a file that changed after the end."""
        if self.alive or is_process_running(self.token):
            return "a process outlived its step"
        store = outcome.folder.open_store(outcome.context.setup.data, writable=False)
        root, last = outcome.folder.path / "workspace", store.state(outcome.result.steps)
        now = {path.relative_to(root).as_posix(): path.stat().st_size for path in root.glob("late*")}
        kept = {name: entry.size for name, entry in last.items() if name.startswith("late")}
        return "" if now == kept else "the workspace changed after the final answer"
