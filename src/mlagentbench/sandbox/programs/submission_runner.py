"""Runs inside the sandbox: calls one function of the submission for every question that arrives on the pipe.

The submission shares this process and can change anything in it, but gains nothing by that: the questions,
the right answers and the measured time are known only at the other end of the pipe. Uses only the standard
library and numpy; no pickles.

An array is sent as the code of its type, its number of dimensions, its shape and its bytes. The format is
simple enough to be parsed safely at the other end.
"""

import importlib
import math
import os
import struct
import sys

import numpy as np

READY = b"driver 1"  # sent before any code of the submission runs
DTYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
MAX_DIMENSIONS = 16
ERROR_BIT = 1 << 63  # set in the length of an answer that is an error message
MAX_ERROR_BYTES = 1000
REFUSED_AUDIT_EVENTS = (
    "os.exec os.fork os.forkpty os.posix_spawn os.spawn os.system pty.spawn subprocess.Popen"
    " ctypes.dlopen ctypes.dlsym ctypes.dlsym/handle ctypes.call_function ctypes.cdata"
)


def read_exactly(fd: int, size: int) -> bytearray:
    """Read exactly `size` bytes; exit if the pipe is closed."""
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = os.readv(fd, [view])
        if not count:
            os._exit(0)
        view = view[count:]
    return data


def write_all(fd: int, data: bytes) -> None:
    """Write all bytes, in as many calls as the pipe needs."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def read_message(fd: int) -> bytearray:
    """Read one message: its length, then its bytes."""
    return read_exactly(fd, struct.unpack("<Q", read_exactly(fd, 8))[0])


def pack_arrays(arrays: "list[np.ndarray]") -> bytes:
    """Encode arrays of numbers, one after another; other arrays raise a TypeError."""
    parts = []
    for value in arrays:
        array = np.asarray(value)
        dtype = array.dtype.str[1:] if array.dtype.kind != "b" else "?"
        if dtype not in DTYPES:
            raise TypeError(f"an array of {array.dtype} is not an array of numbers")
        parts.append(struct.pack(f"<BB{array.ndim}Q", DTYPES.index(dtype), array.ndim, *array.shape))
        parts.append(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    return b"".join(parts)


def unpack_arrays(data: bytearray) -> "list[np.ndarray]":
    """Decode the arrays of a message; anything else raises a ValueError."""
    arrays, offset = [], 0
    while offset < len(data):
        if len(data) < offset + 2 or data[offset] >= len(DTYPES) or data[offset + 1] > MAX_DIMENSIONS:
            raise ValueError("not an array")
        code, ndim = data[offset], data[offset + 1]
        dtype = np.dtype("<" + DTYPES[code] if code else "?")
        start = offset + 2 + 8 * ndim
        if len(data) < start:
            raise ValueError("not a complete array")
        shape = struct.unpack_from(f"<{ndim}Q", data, offset + 2)
        count = math.prod(shape)
        offset = start + count * dtype.itemsize
        if offset > len(data) or max(shape, default=0) > 1 << 31:
            raise ValueError("not a complete array")
        flat = np.frombuffer(data, dtype, count, start) if count else np.empty(0, dtype)
        arrays.append(flat.reshape(shape))
    return arrays


def install_audit_guard() -> None:
    """Refuse other programs and machine code from now on, except what belongs to Python and its packages."""
    refused = frozenset(REFUSED_AUDIT_EVENTS.split())
    trusted_folders = (f"{sys.base_prefix}/", f"{os.path.dirname(np.__path__[0])}/")

    def hook(event: str, args: "tuple[object, ...]") -> None:
        if event in refused:
            raise PermissionError(f"{event} is not allowed here")
        if event == "import":
            name, path = str(args[0]), str(args[1] or "")
            if name == "_posixsubprocess" or (
                path and (not path.startswith(trusted_folders) or "/../" in path)
            ):
                raise PermissionError(f"importing {name} is not allowed here")

    sys.addaudithook(hook)


def main(module: str, function: str, guarded: str = "") -> None:
    """Load the submission, report that it is loaded, then answer questions until the pipe is closed.

    An array without dimensions is passed to the function as a Python number.
    """
    questions, answers = os.dup(0), os.dup(1)
    devnull = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(devnull, fd)
    write_all(answers, READY)
    sys.path.insert(0, os.getcwd())
    if guarded:
        install_audit_guard()
    try:
        answer = getattr(importlib.import_module(module), function)
        write_all(answers, struct.pack("<Q", 0))
        while True:
            arrays = unpack_arrays(read_message(questions))
            result = answer(*[array if array.ndim else array.item() for array in arrays])
            data = pack_arrays(list(result) if isinstance(result, (tuple, list)) else [result])
            write_all(answers, struct.pack("<Q", len(data)))
            write_all(answers, data)
    except BaseException as error:
        text = f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:MAX_ERROR_BYTES]
        write_all(answers, struct.pack("<Q", ERROR_BIT | len(text)) + text)
        raise


if __name__ == "__main__":
    main(*sys.argv[1:])
