"""Five pairs of numbers."""

from pathlib import Path


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write the numbers to `public` and their sums to `private`."""
    rows = range(5)
    (public / "questions.csv").write_text("id,a,b\n" + "".join(f"{i},{i},{9 * i}\n" for i in rows))
    (private / "answers.csv").write_text("id,sum\n" + "".join(f"{i},{10 * i}\n" for i in rows))
