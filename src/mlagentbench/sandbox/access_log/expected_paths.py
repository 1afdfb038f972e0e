"""Where an honest command has business inside the sandbox; whatever lies elsewhere is foreign to it."""

PRIVATE_PATHS = (
    "/workspace",
    "/tmp",
    "/home/agent",
    "/dev/shm",
)  # what a command has to itself, whatever the host has there
OVERFLOW_NAME = "…"  # stands for the paths beyond what a ledger holds, in each place
_FOLDERS = """/workspace /opt/runtime /opt/python /opt/repl.py /opt/bridge.py /opt/endpoint /usr /bin /sbin /lib /lib32
    /lib64 /libx32 /tmp /home/agent /dev/shm /proc/self /proc/sys /proc/driver /sys"""  # of /sys nothing is inside
_ETC_NAMES = """alternatives fonts ld.so.cache ld.so.conf ld.so.conf.d ld.so.preload localtime mime.types passwd group hosts
    nsswitch.conf host.conf resolv.conf gai.conf protocols services"""
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
    """The place below which a path lies, or nothing."""
    if path.startswith("/dev/nvidia"):
        return "/dev"
    if path.startswith(("/proc/self/root", "/proc/self/cwd")):  # which lead anywhere
        return ""
    return next(
        (place for place in EXPECTED_PATHS if path.startswith(place) and path[len(place) :][:1] in ("", "/")),
        "",
    )


def is_local_address(address: str) -> bool:
    """Whether a socket of this address can be reached in a sandbox, which has no network but its own loopback."""
    return address.startswith(LOCAL_ADDRESS_PREFIXES)
