"""Turn texts into vectors with the pretrained encoder."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # the encoder is a local folder, and there is no network

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

BATCH = 32

tokenizer = AutoTokenizer.from_pretrained("encoder")
model = AutoModel.from_pretrained("encoder").eval()


@torch.inference_mode()
def encode(texts, max_tokens=96):
    """Return one vector of length 1 for each text: the mean over its tokens."""
    order = np.argsort([len(text) for text in texts], kind="stable")
    vectors = np.zeros((len(texts), model.config.hidden_size), np.float32)
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        batch = tokenizer(
            [texts[row] for row in rows],
            truncation=True,
            max_length=max_tokens,
            padding=True,
            return_tensors="pt",
        )
        mask = batch["attention_mask"][..., None]
        states = model(**batch).last_hidden_state
        means = (states * mask).sum(1) / mask.sum(1)
        vectors[rows] = torch.nn.functional.normalize(means, dim=1).numpy()
    return vectors
