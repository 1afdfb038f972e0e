"""Grades a literature review tool: asks it about hidden topics one at a time, scores ranking and groups."""

import json
import time
from collections import Counter
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagentbench.grading.checks import InvalidSubmission, Program

START_SECONDS = 60
TOTAL_SECONDS = 120  # of all answers together
MAX_PAPERS = 300  # in one answer
RANKED_PAPERS = 100  # that count, after papers without hidden judgements were removed

Ints = npt.NDArray[np.int64]


def grade(submission: Path, private: Path) -> float:
    """Return the mean over the topics of the mean of nDCG and adjusted Rand index."""
    if (submission / "tool.py").is_symlink() or not (submission / "tool.py").is_file():
        raise InvalidSubmission("tool.py is missing, or is not a regular file")
    topics = json.loads((private / "topics.json").read_text())
    graded = set(json.loads((private / "graded.json").read_text()))
    scores = []
    with Program(submission, "tool", "review", start_timeout_s=START_SECONDS) as program:
        deadline = time.monotonic() + TOTAL_SECONDS
        for topic in topics:
            if (seconds_left := deadline - time.monotonic()) <= 0:
                raise InvalidSubmission(f"review took more than {TOTAL_SECONDS} seconds in total")
            question = np.frombuffer(topic["text"].encode(), np.uint8)
            arrays, _ = program.ask(question, timeout_s=seconds_left, max_bytes=2 * 8 * MAX_PAPERS)
            scores.append(score_answer(*check_answer(arrays), topic, graded))
    return float(np.mean(scores))


def check_answer(arrays: list[Any]) -> tuple[list[int], list[int]]:
    """Return the papers and groups of an answer, which must be two lists of integers of one length."""
    if len(arrays) != 2:
        raise InvalidSubmission(f"review returned {len(arrays)} arrays; it must return two")
    for array in arrays:
        if array.dtype.kind not in "iu" or array.ndim != 1:
            raise InvalidSubmission(
                f"review returned {array.dtype} {array.shape}; both arrays must be lists of integers"
            )
    papers, groups = (array.tolist() for array in arrays)
    if len(papers) != len(groups):
        raise InvalidSubmission(f"review returned {len(papers)} papers, but {len(groups)} groups")
    if len(papers) > MAX_PAPERS:
        raise InvalidSubmission(f"review returned {len(papers)} papers; at most {MAX_PAPERS} are allowed")
    if len(set(papers)) < len(papers):
        raise InvalidSubmission("review returned a paper twice")
    return papers, groups


def score_answer(papers: list[int], groups: list[int], topic: dict[str, Any], graded: set[int]) -> float:
    """Score one answer from 0 to 1; papers without hidden judgements, and unknown ones, are ignored."""
    answer = [(paper, group) for paper, group in zip(papers, groups, strict=True) if paper in graded]
    answer = answer[:RANKED_PAPERS]
    gains = [topic["gains"].get(str(paper), 0) for paper, _ in answer]
    ranking = discounted_gain(gains) / discounted_gain(sorted(topic["gains"].values(), reverse=True))
    group_by_paper = {str(paper): group for paper, group in answer}
    # A paper of a theme that was not found is in a group of its own.
    found = [group_by_paper.get(paper, f"missing {paper}") for paper in topic["groups"]]
    return (ranking + max(0.0, adjusted_rand_index(list(topic["groups"].values()), found))) / 2


def discounted_gain(gains: list[int]) -> float:
    """Return the sum of the gains of a ranking, each divided by the logarithm of its position plus one."""
    counted = np.array(gains[:RANKED_PAPERS], float)
    return float((counted / np.log2(np.arange(len(counted)) + 2)).sum())


def adjusted_rand_index(first: list[Any], second: list[Any]) -> float:
    """Return how well two partitions agree: 1 if they are the same, about 0 for random groups."""
    same_both = sum(comb(count, 2) for count in Counter(zip(first, second, strict=True)).values())
    same_first, same_second = (
        sum(comb(count, 2) for count in Counter(partition).values()) for partition in (first, second)
    )
    expected = same_first * same_second / comb(len(first), 2)
    most = (same_first + same_second) / 2
    return (same_both - expected) / (most - expected) if most != expected else 1.0
