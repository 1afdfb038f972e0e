"""Attack: patched clock."""

from mlagentbench.audit.timed_attack import TimedAttack


class PatchedClock(TimedAttack):
    """Stops every clock that it can reach, and rewrites the libraries and the driver around it."""

    threats = (6, 11)
    code = """
import sys, time
for name in ("time", "monotonic", "perf_counter", "process_time", "time_ns", "monotonic_ns", "perf_counter_ns"):
    value = getattr(time, name)()
    setattr(time, name, lambda value=value: value)
driver = sys.modules["__main__"]
driver.READY = b"0"
plain = driver.pack
driver.pack = lambda arrays: plain(arrays)
import numpy as np
np.abs = np.absolute = lambda *args, **options: np.zeros(1)
np.allclose = np.array_equal = lambda *args, **options: True
def cheat(honest, *args):
    return honest(*args)
"""
