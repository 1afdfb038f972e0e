import subprocess
import sys
from pathlib import Path

import pytest

from mlagentbench.errors import Fault
from mlagentbench.system.journal import Journal


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "lines")


def lines(journal: Journal) -> list[str]:
    return [line for line, _ in journal.lines()]


def test_a_journal_that_was_never_written_has_no_lines(journal: Journal) -> None:
    assert lines(journal) == []
    journal.truncate(0)
    assert not journal.path.exists()


def test_lines_are_read_in_order_with_the_offsets_of_their_ends(journal: Journal) -> None:
    for text in ("one", "zwei: ä", "three"):
        journal.append(text)
    assert [line for line, _ in journal.lines()] == ["one\n", "zwei: ä\n", "three\n"]
    ends = [end for _, end in journal.lines()]
    assert ends == [4, 13, 19]
    assert journal.path.stat().st_size == ends[-1]


def test_an_incomplete_last_line_is_skipped_and_can_be_truncated(journal: Journal) -> None:
    journal.append("whole")
    with journal.path.open("ab") as file:
        file.write(b'{"incomplete": ')
    assert lines(journal) == ["whole\n"]
    journal.truncate(6)
    journal.append("next")
    assert lines(journal) == ["whole\n", "next\n"]


def test_a_line_that_does_not_fit_leaves_the_file_unchanged(journal: Journal) -> None:
    journal.append("before")
    program = f"""
import resource, signal
from pathlib import Path
from mlagentbench.errors import Fault
from mlagentbench.system.journal import Journal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))
try:
    Journal(Path({str(journal.path)!r})).append("x" * 100)
except Fault as fault:
    print(fault)
"""
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Cannot write" in process.stdout and "disk full" in process.stdout
    assert lines(journal) == ["before\n"]
    assert journal.path.stat().st_size == 7


def test_a_missing_folder_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(Fault, match="No such file"):
        Journal(tmp_path / "nowhere" / "lines").append("x")


def test_no_file_descriptor_stays_open(journal: Journal) -> None:
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    for number in range(20):
        journal.append(str(number))
    assert len(list(descriptors.iterdir())) == before
