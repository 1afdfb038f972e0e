"""The paths that an honest command has reason to open inside the sandbox; all others are unexpected."""

PRIVATE_PATHS = ("/workspace", "/tmp", "/home/agent", "/dev/shm")  # private to a command, not the host's
OVERFLOW_NAME = "…"  # stands for the paths of a folder that exceed the capacity of the log
# /sys is expected because it is empty inside.
_FOLDERS = """/workspace /opt/runtime /opt/python /opt/repl.py /opt/bridge.py /opt/endpoint
    /usr /bin /sbin /lib /lib32 /lib64 /libx32
    /tmp /home/agent /dev/shm /proc/self /proc/sys /proc/driver /sys"""
_ETC_NAMES = """alternatives fonts ld.so.cache ld.so.conf ld.so.conf.d ld.so.preload localtime mime.types
    passwd group hosts nsswitch.conf host.conf resolv.conf gai.conf protocols services"""
_DEVICE_NAMES = "null zero full random urandom tty log"
_PROC_NAMES = "cpuinfo meminfo stat filesystems loadavg uptime version mounts"
EXPECTED_PATHS = (
    *_FOLDERS.split(),
    *(f"/etc/{name}" for name in _ETC_NAMES.split()),
    *(f"/dev/{name}" for name in _DEVICE_NAMES.split()),
    *(f"/proc/{name}" for name in _PROC_NAMES.split()),
    "/var/run/nscd",
    "/run/nscd",
)
LOCAL_ADDRESS_PREFIXES = (
    "netlink",
    "unix:",
    "inet:127.",
    "inet:0.0.0.0:",
    "inet:[::1]:",
    "inet:[::]:",
    "inet:[::ffff:127.",
)


def expected_prefix(path: str) -> str:
    """The expected path that `path` is or is below, or ""."""
    if path.startswith("/dev/nvidia"):
        return "/dev"
    if path.startswith(("/proc/self/root", "/proc/self/cwd")):  # these lead anywhere
        return ""
    for prefix in EXPECTED_PATHS:
        if path.startswith(prefix) and path[len(prefix) :][:1] in ("", "/"):
            return prefix
    return ""


def is_local_address(address: str) -> bool:
    """Whether a socket address can be reached from a sandbox, whose only network is its own loopback."""
    return address.startswith(LOCAL_ADDRESS_PREFIXES)
