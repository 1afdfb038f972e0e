"""Rank references by tf-idf, and return one complete BibTeX entry for each gap."""

import numpy as np
from library import read_library, write_bibtex
from sklearn.feature_extraction.text import TfidfVectorizer

GAP = "[CITATION]"
MAX_ENTRIES = 6

texts, entries = read_library()
keys = list(texts)
vectorizer = TfidfVectorizer(stop_words="english", sublinear_tf=True)
references = vectorizer.fit_transform([f"{key} {texts[key]}" for key in keys])


def cite(passage):
    """Return BibTeX entries for the gaps of one passage, as an array of bytes."""
    text = bytes(passage).decode()
    scores = (vectorizer.transform([text.replace(GAP, " ")]) @ references.T).toarray()[0]
    gaps = min(max(text.count(GAP), 1), MAX_ENTRIES)
    best = [keys[row] for row in np.argsort(-scores)[:gaps]]
    return np.frombuffer("\n".join(write_bibtex(key, entries[key]) for key in best).encode(), np.uint8)
