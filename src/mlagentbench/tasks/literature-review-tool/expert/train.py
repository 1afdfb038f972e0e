"""Encode all papers for tool.py, and measure it on the example topics."""

import json
import math
from collections import Counter

import numpy as np
import pandas as pd
from encoder import encode

RANKED = 100
MAX_TOKENS = 96  # of the title and the beginning of the abstract


def main():
    """Write vectors.npz, then measure."""
    papers = pd.read_csv("papers.csv", keep_default_na=False)
    texts = papers["title"] + ". " + papers["abstract"]
    np.savez("vectors.npz", papers=encode(texts.tolist(), MAX_TOKENS))
    print(f"validation score: {evaluate(papers):.4f}")


def evaluate(papers):
    """Return the mean score over the example topics."""
    import tool  # reads vectors.npz

    judged = set(papers["id"][papers["judged"] == 1])
    scores = []
    with open("examples.json") as file:
        for example in json.load(file):
            topic = np.frombuffer(example["text"].encode(), np.uint8)
            scores.append(score(*tool.review(topic), example, judged))
    return np.mean(scores)


def score(papers, groups, example, judged):
    """Score one answer like the grader: the mean of nDCG@100 and the adjusted Rand index."""
    answer = [(paper, group) for paper, group in zip(papers.tolist(), groups.tolist()) if paper in judged]
    answer = answer[:RANKED]
    gains = [example["gains"].get(str(paper), 0) for paper, _ in answer]
    best = sorted(example["gains"].values(), reverse=True)[:RANKED]
    ndcg = discounted(gains) / discounted(best)
    found = {str(paper): group for paper, group in answer}
    predicted = [found.get(paper, f"missing {paper}") for paper in example["groups"]]
    return (ndcg + max(0.0, rand_index(list(example["groups"].values()), predicted))) / 2


def discounted(gains):
    """Return the discounted cumulative gain of a ranking."""
    return sum(gain / math.log2(position + 2) for position, gain in enumerate(gains))


def rand_index(first, second):
    """Return the adjusted Rand index of two partitions."""
    pairs = [
        sum(math.comb(count, 2) for count in Counter(part).values())
        for part in (zip(first, second), first, second)
    ]
    expected = pairs[1] * pairs[2] / math.comb(len(first), 2)
    most = (pairs[1] + pairs[2]) / 2
    return (pairs[0] - expected) / (most - expected) if most != expected else 1.0


if __name__ == "__main__":
    main()
