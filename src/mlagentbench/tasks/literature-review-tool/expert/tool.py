"""Split a topic into its themes, find papers for each by meaning and by words, and group them by theme."""

import re

import numpy as np
import pandas as pd
from encoder import encode
from sklearn.feature_extraction.text import TfidfVectorizer

RETURNED = 200  # papers in an answer; those without hidden judgements do not count
WORDS_WEIGHT = 0.2  # of tf-idf, next to the encoder
FEEDBACK_WEIGHT = 1.0  # of the similarity to the first papers of a theme
FEEDBACK_PAPERS = 15
OPENING = re.compile(
    r"(?:A review of|The review covers|We want to know what is new about|Please collect recent work on) "
)
CONNECTION = re.compile(
    r"; (?:and )?|, as well as |, and finally |\. (?:The review also looks at|A last part is about"
    r"|Another section is on|The rest is on) "
)

papers = pd.read_csv("papers.csv", keep_default_na=False)
ids = papers["id"].to_numpy()
vectorizer = TfidfVectorizer(stop_words="english", sublinear_tf=True, min_df=2)
words = vectorizer.fit_transform(papers["title"] + " " + papers["abstract"])
with np.load("vectors.npz") as stored:
    vectors = stored["papers"]


def split_topic(text):
    """Return the themes of a topic."""
    return CONNECTION.split(OPENING.sub("", text, count=1).rstrip("."))


def standardize(scores):
    """Scale the scores of each theme to mean 0 and variance 1."""
    return (scores - scores.mean(axis=1, keepdims=True)) / (scores.std(axis=1, keepdims=True) + 1e-9)


def add_feedback(scores):
    """Compare all papers with the first ones of each theme, as far as those prefer it to the other themes."""
    shares = np.exp(scores)
    shares /= shares.sum(axis=0)
    weights = np.zeros_like(scores)
    for theme, preference in enumerate(scores * shares):
        first = np.argsort(-preference, kind="stable")[:FEEDBACK_PAPERS]
        weights[theme, first] = np.maximum(preference[first], 0)
    centres = weights @ vectors
    centres /= np.linalg.norm(centres, axis=1, keepdims=True) + 1e-9
    return scores + FEEDBACK_WEIGHT * standardize(centres @ vectors.T)


def review(topic):
    """Answer one topic: the ids of the papers, best first, and the group of each."""
    themes = split_topic(bytes(topic).decode())
    by_meaning = standardize(encode(themes) @ vectors.T)
    by_words = standardize((vectorizer.transform(themes) @ words.T).toarray())
    scores = add_feedback(by_meaning + WORDS_WEIGHT * by_words)
    best = np.argsort(-scores.max(axis=0), kind="stable")[:RETURNED]
    return ids[best], scores.argmax(axis=0)[best]
