"""Classify film reviews: fine-tuned encoders of their strongest sentences, and linear models of n-grams."""

import os

import numpy as np
import pandas as pd
from encoder import Reviews, fine_tune, score_reviews
from linear import count_ngrams, fit_again, fit_once

SEED = int(os.environ.get("SEED", "0"))
HELD_OUT_GROUPS = 3  # of each label, for validation
ENCODERS = 3  # whose scores are averaged
ENCODER_WEIGHT = 0.6  # in the mean of encoders and linear models


def fit_encoders(texts, rows, labels, new_rows):
    """Fine-tune encoders on labelled rows; return the mean scores of the new rows, and 0 for all others."""
    reviews = Reviews(texts)
    reviews.choose_sentences(rows, labels)
    scores = np.zeros(len(texts))
    for number in range(ENCODERS):
        print(f"encoder {number + 1} of {ENCODERS}", flush=True)
        model = fine_tune(reviews, rows, labels, ENCODERS * SEED + number)
        scores += score_reviews(model, reviews, new_rows)
    return scores / scores[new_rows].std()


def blend(tables, rows, labels, encoded, new_rows):
    """Combine the encoders' scores with those of linear models, which are fitted a second time.

    The second fit also learns from the new rows whose label both are sure of.
    """
    linear = fit_once(tables, rows, labels, new_rows)
    both = ENCODER_WEIGHT * encoded + (1 - ENCODER_WEIGHT) * linear
    linear = fit_again(tables, rows, labels, both, new_rows)
    return ENCODER_WEIGHT * encoded + (1 - ENCODER_WEIGHT) * linear


def main():
    """Train on most groups of reviews, validate on the others, and label the test reviews."""
    train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv")
    texts = pd.concat([train["text"], test["text"]]).str.replace("<br />", " ").to_numpy()
    labels = train["label"].to_numpy()
    held_out = (train.groupby("label")["group"].rank("dense") <= HELD_OUT_GROUPS).to_numpy()
    rows, test_rows = np.arange(len(train)), np.arange(len(train), len(texts))
    fitted, validation = rows[~held_out], rows[held_out]
    unlabelled = np.concatenate([validation, test_rows])  # held-out reviews are treated like test reviews

    # Encoders are trained once, without the labels for validation; the linear models then also with them.
    encoded = fit_encoders(texts, fitted, labels[fitted], unlabelled)
    print(f"encoders alone: {((encoded[validation] > 0) == labels[validation]).mean():.4f}", flush=True)
    tables = count_ngrams(texts)
    on_validation = blend(tables, fitted, labels[fitted], encoded, unlabelled)[validation] > 0
    accuracy = (on_validation == labels[validation]).mean()
    on_test = blend(tables, rows, labels, encoded, test_rows)[test_rows] > 0
    pd.DataFrame({"id": test["id"], "label": on_test.astype(int)}).to_csv("submission.csv", index=False)
    print(f"validation accuracy: {accuracy:.4f}")


main()
