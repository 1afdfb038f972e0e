"""Attack: a table that is not plain text."""

import gzip
import io
import pickle
import zipfile

from mlagentbench.audit.context import Rows, to_csv
from mlagentbench.audit.table_attack import TableAttack


class TableBytes(TableAttack):
    """Submits a table that is not plain text: other encodings, archives, bombs, pickles, unclosed quotes."""

    threats = (8, 20, 24)

    def build_variants(self, answers: Rows, constant: Rows) -> dict[str, bytes]:
        """The same table in other forms, and data that expands when it is read."""
        plain = to_csv(constant).encode()
        bomb = io.BytesIO()
        with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("submission.csv", b"0" * 50_000_000)
        return {
            "a zip bomb": bomb.getvalue(),
            "a pickle that runs a command": _pickle(),
            "an unclosed quote": plain.replace(b",", b',"', 1) + b"0" * 100_000,
            "gzip": gzip.compress(plain),
            "UTF-16": plain.decode().encode("utf-16"),
            "UTF-8 with a byte order mark": b"\xef\xbb\xbf" + plain,
            "two byte order marks": b"\xef\xbb\xbf\xef\xbb\xbf" + plain,
            "NUL bytes": plain.replace(b",", b",\0"),
            "Latin-1": plain.replace(b"\n", b"\xe9\n", 1),
            "only carriage returns": plain.replace(b"\n", b"\r"),
            "semicolons": plain.replace(b",", b";"),
            "a line of 50 MB": plain + b"0" * 50_000_000,
            "a million columns": b"," * 1_000_000 + b"\n" + plain,
            "a million blank lines": plain + b"\n" * 1_000_000,
            "an empty file": b"",
        }


class _RunsCommand:
    """Unpickling it runs a command."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.system, ("touch poison-was-run",)


def _pickle() -> bytes:
    return pickle.dumps(_RunsCommand())
