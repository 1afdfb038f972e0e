"""What is kept of the output of a command."""

from pathlib import Path

import pytest

from mlagentbench.sandbox.output import HEAD_BYTES, MAX_OUTPUT_FILE_BYTES, TAIL_BYTES, CommandOutput


def collect(*chunks: bytes) -> str:
    output = CommandOutput()
    for chunk in chunks:
        output.write(chunk)
    return output.text


def test_a_short_output_is_kept_whole() -> None:
    assert collect(b"one\n", b"two") == "one\ntwo"
    assert collect() == ""


def test_a_long_output_keeps_its_head_and_tail_and_counts_the_rest() -> None:
    text = collect(b"first\n", *[b"x" * 65_536] * 100, b"\nlast")
    assert text.startswith("first\n")
    assert text.endswith("\nlast")
    assert f"[... {6 + 65_536 * 100 + 5 - HEAD_BYTES - TAIL_BYTES:,} bytes left out ...]" in text
    assert len(text) < HEAD_BYTES + TAIL_BYTES + 100


@pytest.mark.parametrize(
    "size", [HEAD_BYTES, HEAD_BYTES + 1, HEAD_BYTES + TAIL_BYTES, HEAD_BYTES + TAIL_BYTES + 1, 5 * HEAD_BYTES]
)
def test_no_byte_is_lost_or_repeated_between_head_and_tail(size: int) -> None:
    content = bytes(32 + n % 90 for n in range(size))
    for step in (1, 7, 4096, size):
        text = collect(*(content[at : at + step] for at in range(0, size, step)))
        if size <= HEAD_BYTES + TAIL_BYTES:
            assert text == content.decode()
        else:
            assert text.split("\n[...")[0] == content[:HEAD_BYTES].decode()
            assert text.endswith(content[-TAIL_BYTES:].decode())


def test_the_file_stores_everything_up_to_its_maximum(tmp_path: Path) -> None:
    with CommandOutput(tmp_path / "all", max_file_bytes=1000) as output:
        for _ in range(10):
            output.write(b"y" * 300)
    assert (tmp_path / "all").read_bytes() == b"y" * 1000
    assert output.size_bytes == 3000
    assert MAX_OUTPUT_FILE_BYTES == 64 * 2**20


def test_a_progress_bar_shows_its_last_state() -> None:
    assert collect(b"start\r\n", b"\r 10%", b"\r 50%", b"\r100%\n", b"end\r\n") == "start\n100%\nend\n"
    assert collect(b"\r 10%\r") == " 10%"


def test_control_sequences_are_removed() -> None:
    assert collect(b"\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2J\x1b[1;1Hx\x07\x00\x9b5\x7f") == "red x\ufffd5"
    assert collect("kept: é ü 漢字 🙂 \t.".encode()) == "kept: é ü 漢字 🙂 \t."


def test_binary_output_becomes_short_and_valid_text() -> None:
    text = collect(bytes(range(256)) * 1000)
    assert len(text.encode()) < 40_000
    assert text.encode("utf-8").decode("utf-8") == text
    assert collect(b"\xff" * 5000) == "\ufffd"


def test_the_last_line_is_available_to_show_progress() -> None:
    output = CommandOutput()
    assert output.last_line == ""
    output.write(b"epoch 1\nepoch 2\n\n")
    assert output.last_line == "epoch 2"
    output.write(b"z" * 3 * HEAD_BYTES + b"\nepoch 3")
    assert output.last_line == "epoch 3"
