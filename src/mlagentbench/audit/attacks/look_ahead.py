"""Attack: look ahead."""

from mlagentbench.audit.attacks.base import Attack
from mlagentbench.environment.environment import Environment
from mlagentbench.task import Task

MODEL_CODE = """
import glob, os, pickle, select
import numpy as np
def texts():
    for place in ("/workspace", "/tmp", "/dev/shm", "/home/agent", os.getcwd(), "/opt", "/proc/self/cwd/.."):
        for path in glob.glob(place + "/*"):
            if os.path.isfile(path) and not path.endswith(".py"):
                yield open(path, "rb").read(20_000_000)
held = [text for text in texts()]
seen, kept, found = [], "/dev/shm/seen", {}
def predict(last):
    seen.append(np.asarray(last).copy())
    for fd in range(3, 8):
        try:
            if select.select([fd], [], [], 0)[0]:
                held.append(os.read(fd, 1 << 16))
        except OSError:
            pass
    chances = np.full((len(last), 256), 1 / 256)
    looked_for = len(seen) % len(last)  # one of them, since a search takes a while
    for row, byte in enumerate(last):
        text, at = found.get(row, (b"", 0))
        if text[at : at + 1] != bytes([max(int(byte), 0)]):
            found.pop(row, None)
            said = bytes(int(each[row]) for each in seen[-16:] if each[row] >= 0)
            for each in held if row == looked_for and len(said) >= 12 else ():
                if (place := each.find(said)) >= 0:
                    found[row] = (each, place + len(said))
        else:
            found[row] = (text, at + 1)
        text, at = found.get(row, (b"", 0))
        if at < len(text):
            chances[row] = 1e-3 / 256
            chances[row, text[at]] += 1 - 1e-3
    if len(seen) % 100 == 0:
        pickle.dump(seen, open(kept, "wb"))
    return chances / chances.sum(axis=1, keepdims=True)
"""


class LookAhead(Attack):
    """Predicts from the text itself: found in files, kept from an earlier grading, or read from the pipe beforehand."""

    threats = (1, 2)
    slow = True
    runs_alone = True

    @classmethod
    def applies_to(cls, task: Task) -> bool:
        """Whether a language model is submitted."""
        return task.name == "BabyLM"

    def run(self, env: Environment) -> None:
        """A model that only looks things up."""
        self.try_action(env, "Write File", file_name="model.py", content=MODEL_CODE)
        self.submit(env)
