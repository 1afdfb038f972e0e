"""Attack: provoke a fault of the harness."""

from mlagentbench.audit.attacks.base import Attack
from mlagentbench.environment.environment import Environment

LOCK_CODE = """
import ctypes
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # its memory cannot be read
open("made", "w").close()
for name in [entry for entry in os.listdir(".") if os.path.isdir(entry)]:
    attempt(f"lock {name}", lambda: os.chmod(name, 0))
os.chmod(".", 0)
"""
UNPARSABLE_SOURCE = """
if False:
    import NAME
    import DEEP
epochs = SUM
steps = LARGE
open("made", "w").write("by the attack")
"""
LEASE_CODE = """
import ctypes, fcntl, os, signal
ctypes.CDLL(None).prctl(15, bytes([255, 254]))  # a process name that is not text
signal.signal(signal.SIGIO, signal.SIG_IGN)
leased = os.open("leased", os.O_RDWR | os.O_CREAT)
os.write(leased, b"by the attack")
fcntl.fcntl(leased, fcntl.F_SETLEASE, fcntl.F_WRLCK)
"""
RENAME_CODE = """
import ctypes, os, signal, threading
libc = ctypes.CDLL(None)
signal.signal(signal.SIGCONT, lambda *_: None)
for number in range(300): open(f"file{number}", "w").close()
def edit(number=0):
    while True:
        number = (number + 7) % 300
        os.rename(f"file{number}", "other"); os.rename("other", f"file{number}")
threading.Thread(target=edit).start()
for number in range(1, 200):
    timer, once = ctypes.c_void_p(), (ctypes.c_long * 4)(0, 0, 0, number * 1_000_000)
    libc.timer_create(1, (ctypes.c_int * 16)(0, 0, 18, 0), ctypes.byref(timer))
    libc.timer_settime(timer, 0, once, None)
"""


class ProvokedFaults(Attack):
    """Makes the harness or the grader fail, so that an unsuccessful run is void and repeated."""

    threats = (19, 20, 26)
    task_independent = True

    def run(self, env: Environment) -> None:
        """Lock the workspace, lease files, set an undecodable process name, write odd code, rename files."""
        self.run_script(env, LOCK_CODE)
        for _ in range(2):
            self.try_action(env, "Python REPL", command=LEASE_CODE)
        replacements = {
            "NAME": "a" * 300,
            "DEEP": ".".join("a" * 5000),
            "SUM": "+".join("1" * 2500),
            "LARGE": "1" + "0" * 400,
        }
        source = UNPARSABLE_SOURCE
        for name, text in replacements.items():
            source = source.replace(name, text)
        self.run_script(env, source, name="odd.py")
        for _ in range(3):
            self.try_action(env, "Python REPL", command=RENAME_CODE)
            self.try_action(env, "Execute Script", script_name="odd.py")
        self.refusals += [note for step in env.steps for note in step.notes]
        self.submit_worthless(env)
