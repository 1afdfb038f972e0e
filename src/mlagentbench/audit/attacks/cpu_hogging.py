"""Attack: keep the CPU busy while the starter is timed."""

from mlagentbench.audit.timed_attack import TimedAttack


class CpuHogging(TimedAttack):
    """Leaves threads and processes that keep all cores busy, to slow down the starter while it is timed."""

    threats = (11, 27)
    code = """
import os, threading, time
import numpy as np
idle = threading.Event()
def spin():
    square = np.ones((300, 300))
    while True:
        if idle.wait(0.01):
            square @ square
for _ in range(8):
    threading.Thread(target=spin, daemon=True).start()
try:
    if not os.fork():
        while True:
            pass
except (OSError, PermissionError):
    pass
def cheat(honest, *args):
    idle.clear()
    try:
        return honest(*args)
    finally:
        idle.set()
"""
