"""What is mounted into the sandbox for an external program besides the program itself."""

from collections.abc import Sequence
from pathlib import Path

HOME_PATH = "/opt/home"
# Programs in Rust and Go look for certificates here, and some do not start without any.
CA_BUNDLE_PATH = "/etc/ssl/certs/ca-certificates.crt"
CA_BUNDLES = (CA_BUNDLE_PATH, "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")
COPY_HOME = f'cp -R {HOME_PATH}/. "$HOME" && exec "$@"'


def find_ca_bundle() -> Path:
    """The certificates of this machine's authorities, or else those that come with pip."""
    for path in map(Path, CA_BUNDLES):
        if path.is_file():
            return path.resolve()
    from pip._vendor import certifi

    return Path(certifi.where())


def copy_home_command(command: Sequence[str]) -> list[str]:
    """The command that first copies the mounted home folder, which is read-only, to the home folder."""
    return ["sh", "-c", COPY_HOME, "sh", *command]
