"""Ten ids, whose answers are the ids themselves."""

from pathlib import Path


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write the ids to `public` and the answers to `private`."""
    ids = range(10)
    (public / "questions.csv").write_text("id\n" + "".join(f"{i}\n" for i in ids))
    (public / "data" / "deep").mkdir(parents=True)
    (public / "data" / "deep" / "more.csv").write_text("id,hint\n1,1\n")
    (private / "answers.csv").write_text("id,value\n" + "".join(f"{i},{i}\n" for i in ids))
