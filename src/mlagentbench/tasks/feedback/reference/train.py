"""Predict text scores with ridge regression on n-grams, stacked with boosted trees on counts of errors."""

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
    """Map frequent words to themselves, and others to their ending."""
    lowered = word.lower()
    if lowered in frequent or not word[0].isalpha():
        return "0" if word[0].isdigit() else lowered
    if word[0].isupper():
        return "Name"
    return next((f"-{ending}" for ending in ENDINGS if lowered.endswith(ending)), "-")


def count_language(tokens):
    """Count in how many texts each word, pair, triple and capitalized word occurs."""
    words, pairs, triples, capitals = Counter(), Counter(), Counter(), Counter()
    for essay in tokens:
        lowered = [token.lower() for token in essay]
        words.update(set(lowered))
        pairs.update(set(zip(lowered, lowered[1:])))
        triples.update(set(zip(lowered, lowered[1:], lowered[2:])))
        capitals.update({token.lower() for token in essay if token[0].isupper()})
    return words, pairs, triples, capitals


def compute_counts(text, tokens, classes, words, pairs, triples, capitals, class_pairs):
    """Return features of a text: lengths, rarity, repetition, capitals, punctuation, unlikely pairs."""
    lowered = [token.lower() for token in tokens]
    alphabetic = [word for word in lowered if word[0].isalpha()]
    size = max(len(alphabetic), 1)
    paragraphs = [len(re.findall(r"[.!?]+", paragraph)) for paragraph in text.split("\n\n")]
    sentences = [sentence.split() for sentence in re.split(r"[.!?]+\s+", text) if sentence.split()]
    lengths = np.array([len(sentence) for sentence in sentences])
    rarity = np.array([words[word] - 1 for word in alphabetic])
    long = [word for word in alphabetic if len(word) > 4]
    pair_counts = np.array([pairs[pair] - 1 for pair in zip(lowered, lowered[1:])])
    triple_counts = np.array([triples[triple] - 1 for triple in zip(lowered, lowered[1:], lowered[2:])])
    expected = np.log([1 + words[a] for a in lowered[:-1]]) + np.log([1 + words[b] for b in lowered[1:]])
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
        np.mean([len(word) for word in alphabetic]),
        len(long) / size,
        len(set(long)) / max(len(long), 1),
        len(set(long)) / np.sqrt(max(len(long), 1)),
        np.mean(
            [word in long[max(0, position - 25) : position] for position, word in enumerate(long)] or [0]
        ),
        len(set(alphabetic)) / np.sqrt(size),
        np.mean([sentence[0][0].islower() for sentence in sentences]),
        sum(token[0].islower() and capitals[token.lower()] > 0.6 * words[token.lower()] for token in inner)
        / size,
        sum(token[0].isupper() and capitals[token.lower()] < 0.3 * words[token.lower()] for token in inner)
        / size,
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
        len([1 for a, b in zip(lowered, lowered[1:]) if a == b]) / size,
    ]


def encode(texts):
    """Compute n-grams of three kinds and the counts, for all texts at once; none of it uses the scores."""
    tokens = [TOKEN.findall(text) for text in texts]
    words, pairs, triples, capitals = count_language(tokens)
    frequent = {word for word, _ in words.most_common(250)}
    classes = [[word_class(token, frequent) for token in essay] for essay in tokens]
    single = Counter(name for essay in classes for name in essay)
    double = Counter(pair for essay in classes for pair in zip(essay, essay[1:]))
    total = sum(single.values())
    class_pairs = {(a, b): np.log(single[a] * single[b] / total / count) for (a, b), count in double.items()}
    counts = np.array(
        [
            compute_counts(text, essay, kind, words, pairs, triples, capitals, class_pairs)
            for text, essay, kind in zip(texts, tokens, classes)
        ]
    )
    print(f"{counts.shape[1]} counts made", flush=True)
    feature_blocks = {
        "words": CountVectorizer(analyzer=lambda essay: ngrams(lowercase(essay), 2), min_df=4).fit_transform(
            tokens
        ),
        "letters": CountVectorizer(
            analyzer="char", ngram_range=(2, 4), min_df=8, lowercase=False
        ).fit_transform(texts),
        "classes": CountVectorizer(analyzer=lambda essay: ngrams(essay, 3), min_df=8).fit_transform(classes),
    }
    for name, table in feature_blocks.items():
        print(f"{table.shape[1]} n-grams of {name}", flush=True)
        feature_blocks[name] = TfidfTransformer(sublinear_tf=True).fit_transform(table)
    feature_blocks["counts"] = StandardScaler().fit_transform(counts).clip(-4, 4)
    return feature_blocks


def lowercase(tokens):
    """Return the tokens in lower case."""
    return [token.lower() for token in tokens]


def ngrams(tokens, max_words):
    """Return all n-grams of at most `max_words` tokens."""
    return [
        " ".join(tokens[position : position + size])
        for size in range(1, max_words + 1)
        for position in range(len(tokens) - size + 1)
    ]


def predict_by_block(feature_blocks, train_rows, scores, new):
    """Predict the six scores of new texts from each block of features, side by side."""
    return np.hstack(
        [
            Ridge(alpha=PENALTY[name]).fit(t[train_rows], scores).predict(t[new])
            for name, t in feature_blocks.items()
        ]
    )


def fit_predict(feature_blocks, train_rows, scores, new):
    """Stack models: out-of-fold predictions of each block, and the counts, give the final scores."""
    folds = np.random.default_rng(SEED).permutation(len(train_rows)) % FOLDS
    inner = np.zeros((len(train_rows), 6 * len(feature_blocks)))
    for fold in range(FOLDS):
        inner[folds == fold] = predict_by_block(
            feature_blocks, train_rows[folds != fold], scores[folds != fold], train_rows[folds == fold]
        )
    new_predictions = predict_by_block(feature_blocks, train_rows, scores, new)
    features = np.hstack([inner, feature_blocks["counts"][train_rows]])
    new_features = np.hstack([new_predictions, feature_blocks["counts"][new]])
    scaler = StandardScaler().fit(features)
    linear = Ridge(alpha=300).fit(scaler.transform(features), scores).predict(scaler.transform(new_features))
    trees = np.zeros_like(linear)
    for column in range(6):
        model = lgb.LGBMRegressor(**TREES, random_state=SEED, n_jobs=1, verbose=-1)
        trees[:, column] = model.fit(features, scores[:, column]).predict(new_features)
    return ((linear + trees) / 2).clip(1, 5)


def mcrmse(predicted, scores):
    """Return the root mean squared error of each score, averaged over the six scores."""
    return np.sqrt(((predicted - scores) ** 2).mean(axis=0)).mean()


def main():
    """Validate on a fifth of the texts, then predict the scores of the test texts."""
    train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv")
    feature_blocks = encode([*train["full_text"], *test["full_text"]])
    scores = train[SCORES].to_numpy(float)
    rows, new = np.arange(len(train)), np.arange(len(train), len(train) + len(test))

    is_validation = np.random.default_rng(SEED).permutation(len(train)) % 5 == 0
    estimate = mcrmse(
        fit_predict(feature_blocks, rows[~is_validation], scores[~is_validation], rows[is_validation]),
        scores[is_validation],
    )
    print(f"held out: {estimate:.4f}", flush=True)

    predicted = fit_predict(feature_blocks, rows, scores, new)
    submission = pd.DataFrame(predicted, columns=SCORES)
    submission.insert(0, "text_id", test["text_id"])
    submission.to_csv("submission.csv", index=False)
    print(f"validation MCRMSE: {estimate:.4f}")


main()
