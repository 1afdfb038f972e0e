"""Attack: patch the clock."""

from mlagentbench.audit.timed_attack import TimedAttack


class PatchedClock(TimedAttack):
    """Stops all clocks it can reach and patches the libraries and the driver around it."""

    threats = (6, 11)
    code = """
import sys, time
clocks = ("time", "monotonic", "perf_counter", "process_time", "time_ns", "monotonic_ns", "perf_counter_ns")
for name in clocks:
    value = getattr(time, name)()
    setattr(time, name, lambda value=value: value)
driver = sys.modules["__main__"]
driver.READY = b"0"
original = driver.pack_arrays
driver.pack_arrays = lambda arrays: original(arrays)
import numpy as np
np.abs = np.absolute = lambda *args, **options: np.zeros(1)
np.allclose = np.array_equal = lambda *args, **options: True
def cheat(honest, *args):
    return honest(*args)
"""
