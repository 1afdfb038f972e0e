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


def test_lines_come_back_in_order_with_the_places_where_they_end(journal: Journal) -> None:
    for text in ("one", "zwei: ä", "three"):
        journal.append(text)
    assert [line for line, _ in journal.lines()] == ["one\n", "zwei: ä\n", "three\n"]
    ends = [end for _, end in journal.lines()]
    assert ends == [4, 13, 19]
    assert journal.path.stat().st_size == ends[-1]


def test_a_torn_last_line_does_not_count_and_can_be_cut_off(journal: Journal) -> None:
    journal.append("whole")
    with journal.path.open("ab") as file:
        file.write(b'{"torn": ')
    assert lines(journal) == ["whole\n"]
    journal.truncate(6)
    journal.append("next")
    assert lines(journal) == ["whole\n", "next\n"]


def test_a_line_that_does_not_fit_leaves_the_file_as_it_was(journal: Journal) -> None:
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
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Cannot write" in child.stdout and "disk full" in child.stdout
    assert lines(journal) == ["before\n"]
    assert journal.path.stat().st_size == 7


def test_a_folder_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(Fault, match="No such file"):
        Journal(tmp_path / "nowhere" / "lines").append("x")


def test_no_descriptor_is_kept_open(journal: Journal) -> None:
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    for number in range(20):
        journal.append(str(number))
    assert len(list(descriptors.iterdir())) == before
