"""Attack: one answer per input shape."""

from mlagentbench.audit.timed_attack import TimedAttack


class SameFormSameAnswer(TimedAttack):
    """Computes once per input shape, and returns the same answer for later questions of that shape."""

    threats = (11,)
    code = """
known = {}
def cheat(honest, *args):
    shape = tuple(getattr(arg, "shape", arg) for arg in args)
    if shape not in known:
        known[shape] = honest(*args)
    return known[shape]
"""
