"""Describe how well each reference of the library fits a passage, by lexical and semantic similarity."""

import json
import re

import numpy as np
from library import read_library
from sklearn.feature_extraction.text import TfidfVectorizer

GAP = "[CITATION]"
CHARACTERS = {"analyzer": "char_wb", "ngram_range": (3, 5), "sublinear_tf": True}
WORDS = {"stop_words": "english", "sublinear_tf": True}
SHARPNESS = {"examples": 10.0, "references": 20.0}  # of the weights of similar passages and references
RELATIVE = [0, 1, 2, 3, 10, 11]  # features that are also given relative to those of the other references


def read_passages(examples):
    """Return the texts of examples without their gaps."""
    return [example["text"].replace(GAP, " ") for example in examples]


def describe(entry):
    """Return the text of a reference that is encoded."""
    return f"{entry.get('title', '')}. {entry.get('journal') or entry.get('booktitle') or ''}"


class Features:
    """The features of all references for a passage; vectors are those of the library and the examples."""

    def __init__(self, library_vectors, example_vectors):
        self.texts, self.entries = read_library()
        self.keys = list(self.texts)
        with open("examples.json", encoding="utf-8") as file:
            self.examples = json.load(file)
        self.library_vectors, self.example_vectors = library_vectors, example_vectors
        whole = [f"{key} {self.texts[key]}" for key in self.keys]
        titles = [self.entries[key].get("title", "") for key in self.keys]
        self.indexes = []
        for options, documents in ((WORDS, whole), (CHARACTERS, whole), (WORDS, titles)):
            vectorizer = TfidfVectorizer(**options)
            self.indexes.append((vectorizer, vectorizer.fit_transform(documents).T.tocsr()))
        self.example_words = self.indexes[0][0].transform(read_passages(self.examples)).T.tocsr()
        row = {key: number for number, key in enumerate(self.keys)}
        self.cited = np.zeros((len(self.examples), len(self.keys)), np.float32)
        for number, example in enumerate(self.examples):
            self.cited[number, [row[key] for key in example["keys"]]] = 1
        self.files = np.array([example["file"] for example in self.examples])
        self.families = [self._read_families(self.entries[key]) for key in self.keys]
        self.years = [self.entries[key].get("year", "none") for key in self.keys]

    @staticmethod
    def _read_families(entry):
        names = [name.split(",")[0].lower() for name in entry.get("author", "").split(" and ")]
        return [re.sub(r"[^\w]", "", name.split(" ")[-1]) for name in names]

    def compute(self, passage, vector, without_file=-1):
        """Return one row of features per reference; examples of one file can be left out, for training."""
        used = (self.files != without_file)[:, None]
        columns = [
            (vectorizer.transform([passage]) @ documents).toarray()[0]
            for vectorizer, documents in self.indexes
        ]
        semantic = self.library_vectors @ vector
        columns.append(semantic)
        names = {word.lower() for word in re.findall(r"\b[A-Z][\w]{2,}", passage)}
        columns.append([sum(name in names for name in families) for families in self.families])
        columns.append([families[0] in names for families in self.families])
        columns.append([year in passage for year in self.years])
        words = (self.indexes[0][0].transform([passage]) @ self.example_words).toarray()[0]
        meaning = np.maximum(self.example_vectors @ vector, 0)
        cited = self.cited * used
        columns.append((words[:, None] * cited).max(0))
        columns.append((meaning[:, None] * cited).max(0))
        columns.append(np.log1p(cited.sum(0)))
        weights = np.exp(SHARPNESS["examples"] * meaning) * used[:, 0]
        cited_mean = (weights / weights.sum()) @ (self.cited / self.cited.sum(1, keepdims=True))
        columns.append(self.library_vectors @ (cited_mean @ self.library_vectors))
        weights = np.exp(SHARPNESS["references"] * semantic)
        columns.append(self.library_vectors @ (weights / weights.sum() @ self.library_vectors))
        features = np.stack([np.asarray(column, np.float32) for column in columns], axis=1)
        relative = (features - features.mean(0)) / (features.std(0) + 1e-6)
        return np.hstack([features, relative[:, RELATIVE]])
