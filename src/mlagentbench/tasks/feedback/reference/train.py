"""Scores essays: ridge regression on n-grams of words, letters and word classes, stacked with counts of faults."""

import os
import re
from collections import Counter

import lightgbm as lgb
import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

SCORES = ["cohesion", "syntax", "vocabulary", "phraseology", "grammar", "conventions"]
SEED = int(os.environ.get("SEED", "0"))
FOLDS = 5
PENALTY = {"words": 3.0, "letters": 3.0, "classes": 3.0, "counts": 300.0}
TREES = {
    "n_estimators": 250,
    "learning_rate": 0.03,
    "num_leaves": 8,
    "min_child_samples": 20,
    "subsample": 0.7,
    "subsample_freq": 1,
    "colsample_bytree": 0.3,
    "reg_lambda": 5.0,
}
ENDINGS = ["ing", "ed", "ly", "tion", "ment", "ness", "ity", "ous", "ive", "al", "es", "s"]
TOKEN = re.compile(r"[A-Za-z]+(?:['-][A-Za-z]+)*|\d[\d,.]*|[^\w\s]")


def word_class(word, frequent):
    """Frequent words stand for themselves, others for their ending."""
    low = word.lower()
    if low in frequent or not word[0].isalpha():
        return "0" if word[0].isdigit() else low
    if word[0].isupper():
        return "Name"
    return next((f"-{ending}" for ending in ENDINGS if low.endswith(ending)), "-")


def language(tokens):
    """What all essays together say about the language: in how many essays each word and each pair of words is."""
    words, pairs, triples, capitals = Counter(), Counter(), Counter(), Counter()
    for essay in tokens:
        low = [token.lower() for token in essay]
        words.update(set(low))
        pairs.update(set(zip(low, low[1:])))
        triples.update(set(zip(low, low[1:], low[2:])))
        capitals.update({token.lower() for token in essay if token[0].isupper()})
    return words, pairs, triples, capitals


def counts_of_faults(text, tokens, classes, words, pairs, triples, capitals, class_pairs):
    """Numbers about one essay: lengths, rarity, repetition, capitals, punctuation, unlikely neighbours."""
    low = [token.lower() for token in tokens]
    plain = [word for word in low if word[0].isalpha()]
    size = max(len(plain), 1)
    paragraphs = [len(re.findall(r"[.!?]+", paragraph)) for paragraph in text.split("\n\n")]
    sentences = [sentence.split() for sentence in re.split(r"[.!?]+\s+", text) if sentence.split()]
    lengths = np.array([len(sentence) for sentence in sentences])
    rarity = np.array([words[word] - 1 for word in plain])
    long = [word for word in plain if len(word) > 4]
    pair_counts = np.array([pairs[pair] - 1 for pair in zip(low, low[1:])])
    triple_counts = np.array([triples[triple] - 1 for triple in zip(low, low[1:], low[2:])])
    expected = np.log([1 + words[a] for a in low[:-1]]) + np.log([1 + words[b] for b in low[1:]])
    surprise = expected - np.log(0.3 + pair_counts)
    class_surprise = np.array([class_pairs[pair] for pair in zip(classes, classes[1:])])
    bags = [{word.lower().strip(".,") for word in sentence if len(word) > 5} for sentence in sentences]
    overlap = [len(a & b) / (1 + min(len(a), len(b))) for a, b in zip(bags, bags[1:])] or [0.0]
    inner = [token for before, token in zip(tokens, tokens[1:]) if before not in ".!?" and token[0].isalpha()]
    return [
        np.log(size),
        len(sentences) / size * 100,
        lengths.mean(),
        lengths.std(),
        lengths.max(),
        (lengths < 7).mean(),
        np.std(paragraphs),
        np.max(paragraphs),
        np.min(paragraphs),
        *[(rarity <= limit).mean() for limit in (0, 1, 3, 10, 40, 150, 600)],
        np.log1p(rarity).mean(),
        np.mean([len(word) for word in plain]),
        len(long) / size,
        len(set(long)) / max(len(long), 1),
        len(set(long)) / np.sqrt(max(len(long), 1)),
        np.mean([word in long[max(0, at - 25) : at] for at, word in enumerate(long)] or [0]),
        len(set(plain)) / np.sqrt(size),
        np.mean([sentence[0][0].islower() for sentence in sentences]),
        sum(token[0].islower() and capitals[token.lower()] > 0.6 * words[token.lower()] for token in inner) / size,
        sum(token[0].isupper() and capitals[token.lower()] < 0.3 * words[token.lower()] for token in inner) / size,
        *[text.count(mark) / size * 100 for mark in (",", ".", " ,", " .", "..", "'", ";", ",,", ". ,")],
        len(re.findall(r"\b(?:dont|cant|isnt|its|weve|thats|ive|im|were|lets)\b", text.lower())) / size,
        len(re.findall(r"[a-z] [A-Z][a-z]{5,}", text)) / size,
        (pair_counts == 0).mean(),
        (pair_counts <= 2).mean(),
        (triple_counts == 0).mean(),
        (triple_counts <= 1).mean(),
        surprise.mean(),
        *np.percentile(surprise, [50, 75, 90, 97]),
        class_surprise.mean(),
        *np.percentile(class_surprise, [75, 90, 97]),
        np.mean(overlap),
        len([1 for a, b in zip(low, low[1:]) if a == b]) / size,
    ]


def encode(texts):
    """N-grams of three kinds and the counts of faults, for all essays at once: none of it needs a score."""
    tokens = [TOKEN.findall(text) for text in texts]
    words, pairs, triples, capitals = language(tokens)
    frequent = {word for word, _ in words.most_common(250)}
    classes = [[word_class(token, frequent) for token in essay] for essay in tokens]
    single = Counter(name for essay in classes for name in essay)
    double = Counter(pair for essay in classes for pair in zip(essay, essay[1:]))
    total = sum(single.values())
    class_pairs = {(a, b): np.log(single[a] * single[b] / total / count) for (a, b), count in double.items()}
    counts = np.array(
        [
            counts_of_faults(text, essay, kind, words, pairs, triples, capitals, class_pairs)
            for text, essay, kind in zip(texts, tokens, classes)
        ]
    )
    print(f"{counts.shape[1]} counts made", flush=True)
    kinds = {
        "words": CountVectorizer(analyzer=lambda essay: grams(lower(essay), 2), min_df=4).fit_transform(tokens),
        "letters": CountVectorizer(analyzer="char", ngram_range=(2, 4), min_df=8, lowercase=False).fit_transform(texts),
        "classes": CountVectorizer(analyzer=lambda essay: grams(essay, 3), min_df=8).fit_transform(classes),
    }
    for name, table in kinds.items():
        print(f"{table.shape[1]} n-grams of {name}", flush=True)
        kinds[name] = TfidfTransformer(sublinear_tf=True).fit_transform(table)
    kinds["counts"] = StandardScaler().fit_transform(counts).clip(-4, 4)
    return kinds


def lower(tokens):
    """The tokens without capitals."""
    return [token.lower() for token in tokens]


def grams(tokens, longest):
    """All runs of at most `longest` tokens."""
    return [" ".join(tokens[at : at + size]) for size in range(1, longest + 1) for at in range(len(tokens) - size + 1)]


def first_stage(kinds, seen, scores, new):
    """The scores that each kind of feature gives to new essays: one block of six columns for each kind."""
    return np.hstack([Ridge(alpha=PENALTY[name]).fit(t[seen], scores).predict(t[new]) for name, t in kinds.items()])


def fit_predict(kinds, seen, scores, new):
    """Stack: what the first stage says of essays that it has not seen, and the counts, give the final scores."""
    fold = np.random.default_rng(SEED).permutation(len(seen)) % FOLDS
    inner = np.zeros((len(seen), 6 * len(kinds)))
    for number in range(FOLDS):
        inner[fold == number] = first_stage(kinds, seen[fold != number], scores[fold != number], seen[fold == number])
    outer = first_stage(kinds, seen, scores, new)
    features = np.hstack([inner, kinds["counts"][seen]])
    new_features = np.hstack([outer, kinds["counts"][new]])
    scaler = StandardScaler().fit(features)
    linear = Ridge(alpha=300).fit(scaler.transform(features), scores).predict(scaler.transform(new_features))
    trees = np.zeros_like(linear)
    for column in range(6):
        model = lgb.LGBMRegressor(**TREES, random_state=SEED, n_jobs=1, verbose=-1)
        trees[:, column] = model.fit(features, scores[:, column]).predict(new_features)
    return ((linear + trees) / 2).clip(1, 5)


def error(predicted, scores):
    """The mean of the six columns' root mean squared errors."""
    return np.sqrt(((predicted - scores) ** 2).mean(axis=0)).mean()


def main():
    """Hold a fifth out, then predict the test essays."""
    train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv")
    kinds = encode([*train["full_text"], *test["full_text"]])
    scores = train[SCORES].to_numpy(float)
    rows, new = np.arange(len(train)), np.arange(len(train), len(train) + len(test))

    held = np.random.default_rng(SEED).permutation(len(train)) % 5 == 0
    found = error(fit_predict(kinds, rows[~held], scores[~held], rows[held]), scores[held])
    print(f"held out: {found:.4f}", flush=True)

    predicted = fit_predict(kinds, rows, scores, new)
    submission = pd.DataFrame(predicted, columns=SCORES)
    submission.insert(0, "text_id", test["text_id"])
    submission.to_csv("submission.csv", index=False)
    print(f"validation MCRMSE: {found:.4f}")


main()
