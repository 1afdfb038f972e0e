"""Attack: same form, same answer."""

from mlagentbench.audit.timed_attack import TimedAttack


class SameFormSameAnswer(TimedAttack):
    """Works once for each form of a question, and answers the next of that form with what it has."""

    threats = (11,)
    code = """
known = {}
def cheat(honest, *args):
    form = tuple(getattr(each, "shape", each) for each in args)
    if form not in known:
        known[form] = honest(*args)
    return known[form]
"""
