"""Attack: resume while suspended."""

from mlagentbench.audit.timed_attack import TimedAttack

# A TCP connection whose peer never reads times out; the kernel then sends a signal that resumes the process.
ARM_SIGNAL_CODE = """
import fcntl, os, signal, socket
connections = []
def arm(milliseconds):
    listener, caller = socket.socket(), socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    caller.connect(listener.getsockname())
    caller.setblocking(False)
    try:
        while True:
            caller.send(bytes(1 << 16))
    except BlockingIOError:
        pass
    fcntl.fcntl(caller, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(caller, 10, signal.SIGCONT)
    fcntl.fcntl(caller, fcntl.F_SETFL, fcntl.fcntl(caller, fcntl.F_GETFL) | os.O_ASYNC)
    connections.append((listener, caller))
"""


class SelfResuming(TimedAttack):
    """Is resumed by timers or sockets while suspended, to keep the cores busy while the starter is timed."""

    threats = (11, 27)
    code = f"""
{ARM_SIGNAL_CODE}
import threading, time
import numpy as np
asked = threading.Event()
def spin():
    square = np.ones((400, 400))
    while True:
        square @ square if not asked.is_set() else time.sleep(0.001)
for _ in range(4):
    threading.Thread(target=spin, daemon=True).start()
try:
    import ctypes
    event, timer = (ctypes.c_int * 16)(0, 0, 18), ctypes.c_void_p()
    interval = (ctypes.c_long * 4)(0, 10**7, 0, 10**7)
    libc = ctypes.CDLL(None)
    signal.signal(signal.SIGCONT, lambda *_: None)  # newer kernels drop a timer whose signal has no handler
    libc.timer_create(1, event, ctypes.byref(timer))
    libc.timer_settime(timer, 0, interval, None)
except Exception:
    for step in range(40):
        arm(100 + 100 * step)
def cheat(honest, *args):
    asked.set()
    try:
        return honest(*args)
    finally:
        asked.clear()
"""
