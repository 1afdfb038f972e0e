"""The llama-inference task on a tiny model: read from both layouts, graded in real sandboxes."""

import importlib
import json
import shutil
import struct
import sys
import zipfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mlagentbench.discovery import load_module_from_file
from mlagentbench.errors import InvalidSubmission
from mlagentbench.task import BUILTIN_TASKS_DIR

TASK = BUILTIN_TASKS_DIR / "llama-inference"
TASK_MODULES = ("generator", "gguf", "tensor_file", "tokenizer")
MODEL_SETTINGS = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
}
LAYER_WEIGHTS = {
    "input_layernorm": ("attn_norm", 64),
    "self_attn.q_proj": ("attn_q", 64, 64),
    "self_attn.k_proj": ("attn_k", 32, 64),
    "self_attn.v_proj": ("attn_v", 32, 64),
    "self_attn.o_proj": ("attn_output", 64, 64),
    "post_attention_layernorm": ("ffn_norm", 64),
    "mlp.gate_proj": ("ffn_gate", 96, 64),
    "mlp.up_proj": ("ffn_up", 96, 64),
    "mlp.down_proj": ("ffn_down", 64, 96),
}
WORDS = ["".join(base_tokens) for base_tokens in product("aeiou", "bcd", "fgh", "klm", "pqr")]
PrepareEdition = Callable[..., Path]


@pytest.fixture
def task_modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """Import the modules of the task's folder, which is on the path only during a test."""
    monkeypatch.syspath_prepend(str(TASK))
    for name in TASK_MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    found = {name: importlib.import_module(name) for name in TASK_MODULES}
    found["prepare"] = load_module_from_file(TASK / "prepare.py")
    for name in TASK_MODULES:
        monkeypatch.delitem(sys.modules, name)
    return found


def make_weights(seed: int = 0) -> dict[str, np.ndarray]:
    """Return the weights of a small model by their usual names, exact in every format."""
    rng = np.random.default_rng(seed)
    found = {"model.embed_tokens": rng.normal(size=(512, 64)), "model.norm": rng.uniform(0.5, 1.5, 64)}
    for layer in range(2):
        for name, (_, *shape) in LAYER_WEIGHTS.items():
            found[f"model.layers.{layer}.{name}"] = rng.normal(0, 0.2, shape) if shape[1:] else np.ones(shape)
    # BF16 keeps seven bits after the leading one.
    return {
        f"{name}.weight": (each.astype("f4").view("u4") & 0xFFFF0000).view("f4")
        for name, each in found.items()
    }


def base_tokens(task_modules: dict[str, ModuleType]) -> list[str]:
    return [*task_modules["tokenizer"].BYTE_SYMBOLS, "Ġt", "Ġth", "Ġthe", "re"]


MERGES = ["Ġ t", "Ġt h", "Ġth e", "r e"]


def encode_gguf(task_modules: dict[str, ModuleType], seed: int = 0) -> bytes:
    """Encode the same model as a GGUF file."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def setting(name: str, value: object) -> bytes:
        if isinstance(value, list):
            return text(name) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
        if isinstance(value, float):
            return text(name) + struct.pack("<If", 6, value)
        return text(name) + struct.pack("<II", 4, value)

    settings = {
        "llama.vocab_size": 512,
        "llama.embedding_length": 64,
        "llama.feed_forward_length": 96,
        "llama.block_count": 2,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.tokens": base_tokens(task_modules) + ["Ġ" + word for word in WORDS[:252]],
        "tokenizer.ggml.merges": MERGES,
    }
    names = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    for layer in range(2):
        for name, (short, *_) in LAYER_WEIGHTS.items():
            names[f"model.layers.{layer}.{name}.weight"] = f"blk.{layer}.{short}.weight"
    head, data = b"", b""
    for name, each in make_weights(seed).items():
        if "q_proj" in name or "k_proj" in name:  # rotary pairs are adjacent
            each = each.reshape(-1, 2, 8, 64).swapaxes(1, 2).reshape(each.shape)
        sides = each.shape[::-1]
        head += text(names[name]) + struct.pack(f"<I{len(sides)}QIQ", len(sides), *sides, 0, len(data))
        data += each.astype("<f4").tobytes()
        data += bytes(-len(data) % 32)
    metadata = b"".join(setting(name, value) for name, value in settings.items())
    start = b"GGUF" + struct.pack("<IQQ", 3, len(names), len(settings)) + metadata + head
    return start + bytes(-len(start) % 32) + data


def write_hub_model(raw: Path, kind: str) -> None:
    """Write the same model in the layout of the hub, in two files."""
    (raw / "config.json").write_text(
        json.dumps({**MODEL_SETTINGS, "model_type": "llama", "tie_word_embeddings": True})
    )
    words = ["<unk>", "<s>", "</s>", *[f"<0x{n:02X}>" for n in range(256)], "▁", *map(chr, range(33, 127))]
    words += ["▁t", "▁th", "▁the", "re"]
    words += ["▁" + word for word in WORDS[: 512 - len(words)]]
    model = {
        "vocab": {word: n for n, word in enumerate(words)},
        "merges": [merge.replace("Ġ", "▁").split(" ") for merge in MERGES],
    }
    added = [{"id": 1, "content": "<s>"}]
    (raw / "tokenizer.json").write_text(json.dumps({"model": model, "added_tokens": added}))
    everything = list(make_weights().items())
    for number, part in enumerate((everything[:5], everything[5:])):
        header, data = {"__metadata__": {"format": "pt"}}, b""
        for name, each in part:
            packed = (
                (each.view("u4") >> 16).astype("<u2")
                if kind == "BF16"
                else each.astype({"F16": "<f2"}.get(kind, "<f4"))
            )
            offsets = [len(data), len(data) + packed.nbytes]
            header[name] = {"dtype": kind, "shape": each.shape, "data_offsets": offsets}
            data += packed.tobytes()
        header_bytes = json.dumps(header).encode()
        (raw / f"model-{number}.safetensors").write_bytes(
            struct.pack("<Q", len(header_bytes)) + header_bytes + data
        )


@pytest.fixture
def prepare_edition(task_modules: dict[str, ModuleType], tmp_path: Path) -> PrepareEdition:
    """Return a function that prepares an instance of the small model."""

    def make(edition: str = "open", seed: int = 1, place: str = "data", kind: str = "BF16") -> Path:
        raw, public, private = (tmp_path / place / name for name in ("raw", "public", "private"))
        for folder in (raw, public, private):
            folder.mkdir(parents=True, mode=0o755)
        if edition == "open":
            with zipfile.ZipFile(raw / task_modules["prepare"].ARCHIVE, "w") as wheel:
                wheel.writestr(task_modules["prepare"].MEMBER, encode_gguf(task_modules))
        else:
            write_hub_model(raw, kind)
        task_modules["prepare"].prepare(edition, raw, public, private, seed)
        return tmp_path / place

    return make


@pytest.mark.parametrize(
    ("edition", "kind"), [("open", ""), ("paper", "BF16"), ("paper", "F16"), ("paper", "F32")]
)
def test_both_layouts_give_the_same_model(prepare_edition: PrepareEdition, edition: str, kind: str) -> None:
    public = prepare_edition(edition, kind=kind) / "public"
    with np.load(public / "weights/weights.npz") as file:
        found = dict(file)
    assert found.keys() == make_weights().keys()
    assert all((found[name] == each.astype("f2")).all() for name, each in make_weights().items())
    assert json.loads((public / "weights/config.json").read_text()) == {
        **MODEL_SETTINGS,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
    }


@pytest.mark.parametrize("edition", ["open", "paper"])
def test_prompts_are_text_that_the_token_file_decodes(prepare_edition: PrepareEdition, edition: str) -> None:
    public = prepare_edition(edition) / "public"
    texts = json.loads((public / "weights/tokens.json").read_text())
    for prompt in np.load(public / "prompts.npy")[:20]:
        read = "".join(texts[token] for token in prompt).encode("latin-1").decode()
        assert read.removeprefix("<s> ")[0] in "AEIOU" and read.isascii()


def test_the_tokenizer_merges_by_priority_within_words(task_modules: dict[str, ModuleType]) -> None:
    tokenizer = task_modules["tokenizer"].Tokenizer(base_tokens(task_modules), MERGES)
    tokens = tokenizer.encode("Over there, 12 the  café")
    assert [tokenizer.vocabulary[token] for token in tokens] == [
        *("O", "v", "e", "r", "Ġthe", "re", ",", "Ġ", "1", "2", "Ġthe", "Ġ", "Ġ", "c", "a", "f", "Ã", "©"),
    ]


def test_quantized_blocks_are_unpacked(task_modules: dict[str, ModuleType]) -> None:
    packings = task_modules["gguf"].BLOCK_FORMATS
    four = np.frombuffer(struct.pack("<2e", 0.5, -1) + bytes(range(16)), np.uint8)[None]
    assert packings[3].unpack(four).tolist() == [[n / 2 - 1 for n in range(16)] + [-1.0] * 16]
    eight = np.frombuffer(struct.pack("<e32b", 0.25, *range(-16, 16)), np.uint8)[None]
    assert packings[8].unpack(eight).tolist() == [[n / 4 for n in range(-16, 16)]]


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_seed_determines_the_prompts_and_nothing_else(prepare_edition: PrepareEdition) -> None:
    one, same, other = (
        prepare_edition(seed=2**62, place="a"),
        prepare_edition(seed=2**62, place="b"),
        prepare_edition(seed=3, place="c"),
    )
    assert all(read_files(one / room) == read_files(same / room) for room in ("public", "private"))
    changed = {
        name
        for name, data in read_files(one / "public").items()
        if read_files(other / "public")[name] != data
    }
    assert changed == {"prompts.npy"}
    assert read_files(one / "private")["prompts.npy"] != read_files(other / "private")["prompts.npy"]


def test_no_hidden_prompt_is_public(prepare_edition: PrepareEdition) -> None:
    folder = prepare_edition()
    shown, hidden = (np.load(folder / room / "prompts.npy") for room in ("public", "private"))
    together = {tuple(prompt) for prompt in np.concatenate([shown, hidden]).tolist()}
    assert len(together) == len(shown) + len(hidden) == 656


def test_prompts_start_with_too_many_different_words_for_a_table_of_answers(
    task_modules: dict[str, ModuleType],
) -> None:
    tokenizer = task_modules["tokenizer"].Tokenizer(
        [*base_tokens(task_modules), *("Ġ" + word for word in WORDS)], MERGES
    )
    prompts = task_modules["prepare"]._draw_prompts(tokenizer, 19, 1)
    assert len(np.unique(prompts[:, :17], axis=0)) == 656  # the letters of three words, and two spaces


@pytest.fixture
def workspace(prepare_edition: PrepareEdition, tmp_path: Path) -> Path:
    """Make a workspace with the starter and the small model, next to the instance `data`."""
    folder = tmp_path / "workspace"
    shutil.copytree(prepare_edition() / "public", folder)
    shutil.copytree(TASK / "starter", folder, dirs_exist_ok=True)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


@pytest.fixture
def grader(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("MLAGENTBENCH_GRADING", json.dumps({"runtime": "torch", "sandbox": "bwrap"}))
    return load_module_from_file(TASK / "grade.py")


@pytest.mark.parametrize(("level", "share"), [("reference", 1.0), ("expert", 0.97)])
def test_a_known_solution_is_correct_according_to_the_numpy_model(
    grader: ModuleType,
    workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    level: str,
    share: float,
) -> None:
    agreements = []
    monkeypatch.setattr(
        grader, "_is_equal", lambda one, other: agreements.append((one == other).all())
    )  # do not rely on the starter
    monkeypatch.setattr(grader, "MIN_CORRECT_SHARE", share)
    shutil.copytree(TASK / level, workspace, dirs_exist_ok=True)
    assert grader.grade(workspace, tmp_path / "data/private") > 0  # on busy cores, the time says nothing
    # Rounded weights may choose another token of nearly the same logit, which the grader accepts.
    assert agreements and (all(agreements) or share < 1)


def generate_greedily(model: object, prompt: tuple[int, ...], count: int) -> np.ndarray:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(compute_logits(model, tokens)[-1].argmax()))
    return np.array(tokens[len(prompt) :])


def compute_logits(model: object, tokens: list[int]) -> np.ndarray:
    return model.compute_states(np.array([tokens]))[0] @ model._weights("model.embed_tokens").T


def test_tokens_count_up_to_the_first_wrong_one(grader: ModuleType, workspace: Path) -> None:
    model = grader.NumpyModel(workspace / "weights")
    one, two = (5, 70, 300), (9, 10)
    right = [generate_greedily(model, one, 6), generate_greedily(model, two, 4)]
    assert model.count_correct([one, two], right) == 10
    assert model.count_correct([one, two], [right[0], np.array([*right[1][:3], 600])]) == 9
    assert model.count_correct([one, two], [right[0], np.array([-1, *right[1][1:]])]) == 6
    worst = int(compute_logits(model, list(one))[-1].argmin())
    steered = np.array(
        [worst, *generate_greedily(model, (*one, worst), 5)]
    )  # all but one are the model's choice
    assert model.count_correct([one], [steered]) == 0


@pytest.mark.parametrize(("more", "right"), [(0.01, 1), (-0.01, 0)])
def test_a_token_may_be_slightly_less_likely_than_the_best(
    grader: ModuleType, workspace: Path, monkeypatch: pytest.MonkeyPatch, more: float, right: int
) -> None:
    model = grader.NumpyModel(workspace / "weights")
    prompt = (5, 70, 300)
    after = compute_logits(model, list(prompt))[-1]
    second, best = after.argsort()[-2:]
    monkeypatch.setattr(grader, "LOGIT_TOLERANCE", after[best] - after[second] + more)
    assert model.count_correct([prompt], [np.array([second])]) == right


def test_too_few_correct_tokens_are_invalid(grader: ModuleType, workspace: Path) -> None:
    folder = workspace / "weights"
    prompts = [(n, n + 1, n + 2) for n in range(20)]
    starter = {prompt: generate_greedily(grader.NumpyModel(folder), prompt, 2) for prompt in prompts}
    wrong = {prompt: np.array([added[0], (added[1] + 1) % 512]) for prompt, added in starter.items()}
    one, two = ({**starter, **dict(list(wrong.items())[:count])} for count in (1, 2))
    grader._check_answers(grader.GeneratedTokens(starter, one), folder)
    with pytest.raises(
        InvalidSubmission, match=r"only 95\.0% of the tokens are correct; at least 97% must be"
    ):
        grader._check_answers(grader.GeneratedTokens(starter, two), folder)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([np.zeros((2, 3))], "float64"),
        ([np.zeros((3, 2), "i8")], "expected int64"),
        ([np.zeros((2, 3), "?")], "bool"),
        ([np.zeros((2, 3), "i8")] * 2, "returned 2 arrays"),
        ([], "returned 0 arrays"),
    ],
)
def test_an_answer_must_be_one_array_of_integers(grader: ModuleType, found: list, message: str) -> None:
    with pytest.raises(InvalidSubmission, match=message):
        grader._check_tokens(found, (2, 3))
    assert grader._check_tokens([np.ones((2, 3), "u1")], (2, 3)).dtype == np.int64


def test_no_prompt_is_repeated_and_prompts_are_padded_with_zeros(grader: ModuleType) -> None:
    prompts = grader.PromptPool(np.arange(1, 81).reshape(10, 8))
    drawn = np.concatenate([prompts.draw([3, 8]) for _ in range(5)])
    assert sorted(drawn[:, 0]) == list(range(1, 81, 8))
    assert all((row[3:] == 0).all() for row in drawn[::2]) and (drawn[1::2] > 0).all()
    assert not all((prompts.draw([8] * 10) == prompts.draw([8] * 10)).all() for _ in range(5))


@pytest.mark.parametrize("damage", ["changed", "removed", "linked"])
def test_the_weights_must_be_unchanged(
    grader: ModuleType, workspace: Path, tmp_path: Path, damage: str
) -> None:
    path = workspace / "weights/weights.npz"
    if damage == "changed":
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    elif damage == "removed":
        path.unlink()
    else:
        path.rename(tmp_path / "elsewhere.npz")
        path.symlink_to(tmp_path / "elsewhere.npz")
    with pytest.raises(InvalidSubmission, match=r"weights/weights\.npz is missing or was changed"):
        grader.grade(workspace, tmp_path / "data/private")


def test_large_files_beside_the_weights_are_invalid(
    grader: ModuleType, workspace: Path, tmp_path: Path
) -> None:
    (workspace / "tables").mkdir()
    with (workspace / "tables/next_tokens.bin").open("wb") as file:
        file.truncate(1_100_000_000)
    with pytest.raises(InvalidSubmission, match=r"without weights/, have 1\.10 GB; at most 1 GB are allowed"):
        grader.grade(workspace, tmp_path / "data/private")


@pytest.mark.parametrize(("starter_seconds", "sets"), [(0.0, 1), (60.0, 4)])
def test_a_fast_submission_answers_several_sets_of_prompts(
    grader: ModuleType, tmp_path: Path, starter_seconds: float, sets: int
) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "llama.py").write_text(
        "import numpy as np\ndef generate(prompts, lengths, count):\n    return np.ones((2, 3), int)"
    )
    answers = grader.GeneratedTokens()
    call = grader.Call([5, 8], 3, most_sets=4, starter_seconds=starter_seconds)
    question = grader._make_question(grader.PromptPool(np.arange(160).reshape(20, 8)), answers, call)
    with grader._start_program({"start_seconds": 30, "memory_gb": 4}, tmp_path) as program:
        assert question(program, False, 60.0) > 0
    assert len(answers.submission) == 2 * sets and not answers.starter


SKIP_LAST_TOKEN = """

honest = generate
def generate(prompts, lengths, new_tokens):
    if len(prompts) > 1:
        return honest(prompts, lengths, new_tokens)
    return np.pad(honest(prompts, lengths, new_tokens - 1), ((0, 0), (0, 1)), constant_values=28)
"""


def test_a_submission_with_made_up_tokens_is_invalid(
    grader: ModuleType, workspace: Path, tmp_path: Path
) -> None:
    made_up = "import numpy as np\ndef generate(prompts, lengths, count):\n"
    made_up += "    return np.full((len(prompts), count), 7)"
    (workspace / "llama.py").write_text(made_up)
    with pytest.raises(InvalidSubmission, match=r"only .* of the tokens"):
        grader.grade(workspace, tmp_path / "data/private")


def test_leaving_out_one_token_per_round_is_invalid(
    grader: ModuleType, workspace: Path, tmp_path: Path
) -> None:
    with (workspace / "llama.py").open("a") as file:
        file.write(SKIP_LAST_TOKEN)
    with pytest.raises(InvalidSubmission, match=r"only .* of the tokens are correct; at least 97% must be"):
        grader.grade(workspace, tmp_path / "data/private")
