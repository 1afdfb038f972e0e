import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlagentbench.errors import InvalidSubmission
from mlagentbench.grading.checks import (
    AnswerArrays,
    read_answer_arrays,
    read_answers,
    read_submission,
    read_submission_arrays,
    read_texts,
)

GOOD = "id,value\n1,0.5\n2,1.5\n3,2.5\n"


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    path = tmp_path_factory.mktemp("private") / "answers.csv"
    path.write_text("id,value\n1,1\n2,2\n3,3\n")
    return read_answers(path, id="id", columns=["value"])


def read(path: Path, content: bytes | str, answers: pd.DataFrame) -> list[float]:
    """Read a submission in both ways, with the same result."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    like = AnswerArrays("id", answers.index.tolist(), {"value": answers["value"].to_numpy(float)})
    try:
        table = read_submission(path, id="id", columns=["value"], like=answers)
    except InvalidSubmission as error:
        with pytest.raises(InvalidSubmission) as same:
            read_submission_arrays(path, like)
        assert str(same.value) == str(error)
        raise
    assert list(table.index) == list(answers.index)
    arrays = read_submission_arrays(path, like)
    assert arrays.keys() == {"value"} and arrays["value"].tolist() == table["value"].tolist()
    return [float(value) for value in table["value"]]


def test_rows_in_any_order_are_joined_by_id(tmp_path: Path, answers: pd.DataFrame) -> None:
    path = tmp_path / "submission.csv"
    assert read(path, GOOD, answers) == [0.5, 1.5, 2.5]
    assert read(path, "id,value\n3,2.5\n1,0.5\n2,1.5\n", answers) == [0.5, 1.5, 2.5]


@pytest.mark.parametrize(
    "content",
    [
        GOOD.replace("\n", "\r\n"),
        "\ufeff" + GOOD,
        GOOD.rstrip("\n"),
        GOOD + "\n\n",
        "id, value\n1, 0.5\n 2 ,1.5\n3,2.5 \n",
        '"id","value"\n"1","0.5"\n"2","1.5"\n"3","2.5"\n',
        "id,value\n1,5e-1\n2,+1.5\n3,25e-1\n",
    ],
    ids=["crlf", "bom", "no trailing newline", "blank lines", "spaces", "quotes", "other number formats"],
)
def test_harmless_variants_of_the_same_table_are_read_alike(
    tmp_path: Path, answers: pd.DataFrame, content: str
) -> None:
    assert read(tmp_path / "submission.csv", content, answers) == [0.5, 1.5, 2.5]


MALFORMED = {
    "empty": (b"", "is empty"),
    "header only": (b"id,value\n", "has 0 rows; there must be 3"),
    "only blank lines": (b"\n\n\n", "must have the columns id, value"),
    "wrong columns": (b"id,price\n1,1\n2,2\n3,3\n", "must have the columns id, value; it has: 'id', 'price'"),
    "no header": (b"1,1\n2,2\n3,3\n", "must have the columns"),
    "extra column": (b"id,value,x\n1,1,1\n2,2,2\n3,3,3\n", "must have the columns"),
    "reordered columns": (b"value,id\n1,1\n2,2\n3,3\n", "must have the columns"),
    "repeated column": (b"id,value,value\n1,1,1\n2,2,2\n3,3,3\n", "must have the columns"),
    "short": (b"id,value\n1,1\n2,2\n", "has 2 rows; there must be 3"),
    "long": (b"id,value\n1,1\n2,2\n3,3\n4,4\n", "has 4 rows; there must be 3"),
    "repeated ids": (b"id,value\n1,1\n1,1\n3,3\n", "repeats 1 id: '1'"),
    "one id many times": (b"id,value\n1,1\n1,1\n1,1\n", "repeats 1 id"),
    "unknown id": (b"id,value\n1,1\n2,2\n7,3\n", "unknown id: '7'"),
    "id with a leading zero": (b"id,value\n01,1\n2,2\n3,3\n", "unknown id: '01'"),
    "id as a float": (b"id,value\n1.0,1\n2.0,2\n3.0,3\n", "unknown id: '1.0'"),
    "nan": (b"id,value\n1,nan\n2,2\n3,3\n", "1 values of value that are not usable numbers: 'nan'"),
    "inf": (b"id,value\n1,inf\n2,-inf\n3,3\n", "not usable"),
    "empty cell": (b"id,value\n1,\n2,2\n3,3\n", "not usable"),
    "text": (b"id,value\n1,one\n2,2\n3,3\n", "not usable numbers: 'one'"),
    "overflow": (b"id,value\n1,1e999\n2,2\n3,3\n", "not usable"),
    "huge integer": (b"id,value\n1," + b"9" * 400 + b"\n2,2\n3,3\n", "not usable"),
    "hexadecimal": (b"id,value\n1,0x10\n2,2\n3,3\n", "not usable"),
    "ragged, too many": (b"id,value\n1,1\n2,2,2\n3,3\n", "row 2 does not have 2 cells"),
    "ragged, too few": (b"id,value\n1,1\n2\n3,3\n", "row 2 does not have 2 cells"),
    "quoted newlines": (b'id,value\n"1\n",1\n2,"2\n3,3"\n', "row|rows|not usable"),
    "open quote": (b'id,value\n1,1\n2,2\n"3,3\n', "is not a csv file"),
    "NULs": (b"id,value\n1,1\n2,\x00\n3,3\n", "not usable"),
    "NULs only": (b"\x00" * 100, "must have the columns"),
    "binary": (bytes(range(256)), "is not a csv file in UTF-8"),
    "UTF-16": (GOOD.encode("utf-16"), "is not a csv file in UTF-8"),
    "latin 1": ("id,value\n1,é\n2,2\n3,3\n".encode("latin-1"), "is not a csv file in UTF-8"),
    "lone carriage returns": (b"id,value\r1,1\r2,2\r3,3\rx", "row 4 does not have 2 cells"),
    "one long line": (b"id,value" + b"," * 100_000, "must have the columns"),
    "pickle": (b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94.", "is not a csv file"),
}


@pytest.mark.parametrize(("content", "message"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_submission_is_rejected_with_a_message(
    tmp_path: Path, answers: pd.DataFrame, content: bytes, message: str
) -> None:
    with pytest.raises(InvalidSubmission, match=message) as caught:
        read(tmp_path / "submission.csv", content, answers)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


def test_a_missing_submission_or_a_folder_is_rejected(tmp_path: Path, answers: pd.DataFrame) -> None:
    for path in (tmp_path / "submission.csv", tmp_path):
        with pytest.raises(InvalidSubmission, match="is missing"):
            read_submission(path, id="id", columns=["value"], like=answers)


def test_a_gigabyte_is_rejected_before_it_is_read(tmp_path: Path, answers: pd.DataFrame) -> None:
    path = tmp_path / "submission.csv"
    path.write_text(GOOD)
    os.truncate(path, 1 << 30)
    with pytest.raises(InvalidSubmission, match="1,073,741,824 bytes; 3 predictions need at most"):
        read_submission(path, id="id", columns=["value"], like=answers)


def test_a_small_file_with_very_many_rows_takes_little_memory(tmp_path: Path) -> None:
    like = pd.DataFrame({"value": [""] * 3}, index=["1", "2", "3"])
    path = tmp_path / "submission.csv"
    for row, message in (
        ("1,1\n", "has 250,000 rows; there must be 3"),
        ("1\n", "row 1 does not have 2 cells"),
    ):
        path.write_text("id,value\n" + row * (1_000_000 // len(row)))
        tracemalloc.start()
        try:
            with pytest.raises(InvalidSubmission, match=message):
                read_texts(path, "id", ["value"], like, mean_cell_bytes=1000)
            assert tracemalloc.get_traced_memory()[1] < 1_000_000
        finally:
            tracemalloc.stop()


def test_ids_may_contain_spaces_commas_and_leading_zeros(tmp_path: Path) -> None:
    private, path = tmp_path / "answers.csv", tmp_path / "submission.csv"
    private.write_text('key,a,b\n007,1,1\n"x, y",2,2\na b,3,3\n')
    like = read_answers(private, id="key", columns=["a", "b"])
    path.write_text('key,a,b\na b,5,6\n"x, y",3,4\n007,1,2\n')
    found = read_submission(path, id="key", columns=["a", "b"], like=like)
    assert found.to_numpy().tolist() == [[1, 2], [3, 4], [5, 6]]
    assert float((found["a"] - like["a"]).abs().mean()) == 1.0


@settings(max_examples=300, deadline=None)
@given(
    content=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))
)
def test_random_bytes_raise_only_invalid_submission(
    content: bytes, answers: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "random.csv"
    for data in (content, b"id,value\n" + content, GOOD.encode()[:-2] + content):
        try:
            assert len(read(path, data, answers)) == 3
        except InvalidSubmission as error:
            assert str(error)


def test_texts_are_joined_by_id_and_may_be_longer_than_numbers(tmp_path: Path) -> None:
    private, path = tmp_path / "answers.csv", tmp_path / "submission.csv"
    private.write_text("id,runs\na,\nb,1 2 3 4\n")
    like = read_answers(private, id="id", columns=["runs"], text=True)
    assert like["runs"].tolist() == ["", "1 2 3 4"]
    path.write_text(f"id,runs\nb,{'7 ' * 40_000}\na,-\n")
    assert [len(cell) for cell in read_texts(path, "id", ["runs"], like, mean_cell_bytes=100)["runs"]] == [
        1,
        79_999,
    ]
    path.write_text(f"id,runs\nb,{'7 ' * 60_000}\na,{'7 ' * 60_000}\n")
    with pytest.raises(InvalidSubmission, match="bytes; 2 predictions need at most 200,400"):
        read_texts(path, "id", ["runs"], like, mean_cell_bytes=100)


def test_answer_arrays_keep_the_order_of_the_file_and_cannot_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    path.write_text('key,a,b,c\n"x, y",1,2.5,text\n007,-3e2,4,text\n')
    answers = read_answer_arrays(path, id="key", columns=["b", "a"])
    assert answers.ids == ["x, y", "007"] and list(answers.columns) == ["b", "a"]
    assert answers["a"].tolist() == [1, -300] and answers["b"].tolist() == [2.5, 4]
    with pytest.raises(ValueError, match="read-only"):
        answers["a"][0] = 2


def test_a_grader_of_numbers_loads_no_pandas(tmp_path: Path) -> None:
    """A process that forks for each submission takes the longer the more it has loaded."""
    path = tmp_path / "answers.csv"
    path.write_text("id,value\n1,1\n")
    grade = "import sys; from pathlib import Path"
    grade += "; from mlagentbench.grading.checks import read_answer_arrays as answers"
    grade += ", read_submission_arrays as submitted; path = Path(sys.argv[1])"
    grade += "; assert submitted(path, answers(path, 'id', ['value']))['value'] == [1]"
    check = "assert not {'pandas', 'pydantic'} & sys.modules.keys(), sys.modules.keys()"
    subprocess.run([sys.executable, "-c", f"{grade}; {check}", str(path)], check=True, timeout=60)
