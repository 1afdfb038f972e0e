"""Find the references that share words with a passage, and write a rough BibTeX entry for each."""

import re

import numpy as np

RETURNED = 3  # entries in an answer

with open("library.txt", encoding="utf-8") as file:
    library = [re.match(r"\[(.+?)\] (.*)", line).groups() for line in file]


def words(text):
    """Return the set of words of a text."""
    return set(re.findall(r"[a-z]+", text.lower()))


reference_words = [words(text) for _, text in library]


def cite(passage):
    """Return BibTeX entries for the gaps of one passage, as an array of bytes.

    `passage` is the text as an array of bytes.
    """
    wanted = words(bytes(passage).decode())
    shared = np.array([len(wanted & present) for present in reference_words])
    best = np.argsort(-shared, kind="stable")[:RETURNED]
    answer = "\n".join(to_bibtex(*library[row]) for row in best)
    return np.frombuffer(answer.encode(), np.uint8)


def to_bibtex(key, text):
    """Write an entry with the few fields that are easy to find."""
    year = re.search(r"\b(?:19|20)\d\d\b", text)
    authors, _, rest = text.partition(". ")
    title, _, _ = rest.partition(". ")
    fields = {"author": authors, "title": title, "year": year[0] if year else ""}
    lines = [f"  {name} = {{{value}}},\n" for name, value in fields.items()]
    return f"@article{{{key},\n{''.join(lines)}}}\n"
