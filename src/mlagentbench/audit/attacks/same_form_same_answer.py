"""Attack: same form, same answer."""

from mlagentbench.audit.programs import TimedAttack


class SameFormSameAnswer(TimedAttack):
    """Works once for each form of a question, and answers the next of that form with what it has."""

    lines = (11,)
    code = """
known = {}
def cheat(honest, *args):
    form = tuple(getattr(each, "shape", each) for each in args)
    if form not in known:
        known[form] = honest(*args)
    return known[form]
"""
