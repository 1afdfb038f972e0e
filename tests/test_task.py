from collections.abc import Callable
from pathlib import Path

import pytest

from mlagentbench.errors import UsageError
from mlagentbench.task import Task


def test_a_task_is_found_by_its_folder_and_by_its_name(toy: Path) -> None:
    task = Task.load(str(toy))
    assert (task.name, task.load_name, task.config.better) == ("toy", str(toy), "lower")
    for name in Task.names():
        assert Task.load(name).load_name == name


def test_the_error_for_an_unknown_task_lists_the_available_ones() -> None:
    with pytest.raises(UsageError, match=r"No such task: 'nonsense'\. Available: "):
        Task.load("nonsense")


@pytest.mark.parametrize(
    "part", ["description.md", "starter", "grade.py", "prepare.py", "reference", "task.toml"]
)
def test_the_error_for_an_incomplete_task_names_the_missing_part(
    part: str, variant: Callable[..., Path]
) -> None:
    with pytest.raises(UsageError, match=f"Task toy: .*{part} is missing"):
        Task.load(str(variant({part: None})))


TOML = (Path(__file__).parent / "toy" / "task.toml").read_text()
INVALID_TOML = {
    "bad TOML": ("title = ", "not valid TOML"),
    "unknown key": (TOML.replace("better", "beter"), r"beter: no such key .*; did you mean 'better'\?"),
    "unknown limit": (
        TOML.replace("processes = 64", "proceses = 64"),
        r"limits\.proceses: no such key; did you mean 'processes'\?",
    ),
    "unknown key of an edition": (
        TOML.replace("size =", "siz ="),
        r"editions\.open\.siz: no such key .*; did you mean 'size'\?",
    ),
    "unknown key of a level": (
        TOML.replace("n = 8", "n = 8, hardwear = '2 cores'"),
        r"hardwear: no such key; did you mean 'hardware'\?",
    ),
    "unlike any key": (
        TOML + "\n[twin]\nids = ['id']\ncolour = 1",
        r"twin\.colour: no such key; available: ids, words, units, years",
    ),
    "bad value": (TOML.replace('"lower"', '"smaller"'), "better: input should be 'higher' or 'lower'"),
    "bad type": (TOML.replace("steps = 20", 'steps = "many"'), "limits.steps"),
    "negative limit": (
        TOML.replace("hours = 0.5", "hours = -1"),
        "limits.hours: input should be greater than 0",
    ),
    "baseline that is not a number": (
        TOML.replace("mean = 5.0", "mean = nan"),
        "mean: input should be a finite number",
    ),
    "negative spread": (TOML.replace("sd = 0.1", "sd = -0.1"), "sd"),
    "unknown grant": (f"{TOML}\n[grants]\nmodels = true\n", "grants.models: no such key"),
    "unknown edition": (TOML.replace("editions.open", "editions.opne"), "editions"),
    "missing title": (TOML.replace("title", "#"), "title: field required"),
    "empty": ("", "field required \\(and"),
}


@pytest.mark.parametrize(("text", "message"), INVALID_TOML.values(), ids=INVALID_TOML.keys())
def test_an_invalid_task_toml_is_one_line(text: str, message: str, variant: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        Task.load(str(variant({"task.toml": text})))
    assert "task.toml" in str(caught.value) and "\n" not in str(caught.value)


def test_a_description_that_is_not_text_is_one_line(variant: Callable[..., Path]) -> None:
    folder = variant({})
    (folder / "description.md").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"Cannot read .*description\.md: "):
        Task.load(str(folder))


def test_the_error_for_an_unknown_edition_lists_the_available_ones(toy: Path) -> None:
    with pytest.raises(UsageError, match=r"Task toy has no edition 'paper'\. Available: open\."):
        Task.load(str(toy)).edition("paper")


def test_the_hash_covers_everything_except_the_readme(variant: Callable[..., Path]) -> None:
    original = Task.load(str(variant({}, "one")))
    documented = Task.load(str(variant({"README.md": "other text"}, "two")))
    harder = Task.load(str(variant({"description.md": "Something else."}, "three")))
    laxer = Task.load(str(variant({"grade.py": "def grade(submission, private): return 0.0\n"}, "four")))
    assert original.hash == documented.hash
    assert len({original.hash, harder.hash, laxer.hash}) == 3
    assert original.grader_hash == harder.grader_hash != laxer.grader_hash
