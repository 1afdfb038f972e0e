"""Attack: remembered answers."""

from mlagentbench.audit.timed_attack import TimedAttack


class RememberedAnswers(TimedAttack):
    """Keeps every answer by its question, in memory and on disk, to give it again at once."""

    threats = (11,)
    code = """
import hashlib, os, pickle
known = {}
def cheat(honest, *args):
    key = hashlib.sha256(b"".join(getattr(each, "tobytes", lambda: repr(each).encode())() for each in args)).hexdigest()
    for place in ("/dev/shm", "/tmp", "/home/agent", "/workspace"):
        if key not in known and os.path.exists(f"{place}/{key}"):
            known[key] = pickle.load(open(f"{place}/{key}", "rb"))
    if key not in known:
        known[key] = honest(*args)
        for place in ("/dev/shm", "/tmp", "/home/agent", "/workspace"):
            try:
                pickle.dump(known[key], open(f"{place}/{key}", "wb"))
            except OSError:
                pass
    return known[key]
"""
