"""Features of texts with errors: n-grams, what a language model expects instead, and measures of errors.

Nothing here uses scores: the features of all texts, with and without scores, are computed together.
"""

import re
from collections import Counter
from itertools import pairwise

import numpy as np
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.preprocessing import normalize

TOKEN = re.compile(r"\n\n|[A-Za-z]+(?:['-][A-Za-z]+)*|\d[\d,.]*\d|\d|\.\.+|[^\w\s]")
SENTENCE_END = re.compile(r"(?<=[.!?])[\"']?\s+|\n\n")
SENTENCE_MARKS = {".", "!", "?", '"', "\n\n"}
ENDINGS = ["ing", "ed", "ly", "tion", "ment", "ness", "ity", "ous", "ive", "al", "es", "s"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
FREQUENT_WORDS = 300  # with a class of their own; others are classed by their ending
TYPICAL_TOKENS = 250  # counts are scaled to a text of this length
CHUNK_TOKENS = 100_000  # processed at once by the language model
CONTEXT_PRIOR, PAIR_PRIOR, LONG_PRIOR = 20.0, 10.0, 10.0  # pseudo-counts of shorter contexts
LONG_WEIGHT = 0.5  # exponent of the evidence from contexts of two words on one side
MIN_EXPECTATION = 0.08  # probability from which another word counts as expected
TOPICS = 100
PATTERNS = [
    " ,", r" \.", r"\.\.", ",", r"\.", "'", "[;:-]", ", ?,", "[!?]", '"', r", and\b", r", so\b",
    r"[.!?] [a-z]", r", [A-Z][a-z]+", r'[^.!?"]\n\n', "[a-z,]$", "[a-z] [A-Z][a-z]",
    r"\b(?:[a-z]+nt|[wt]hats|lets|weve|youre|its|im|ive)\b",
]  # fmt: skip


def encode(texts):
    """Return blocks of non-negative counts (sparse, one row per text) and a table of measures."""
    tokens = [TOKEN.findall(text) for text in texts]
    lowered = [[token.lower() for token in text] for text in tokens]
    documents, ids, names = classify_words(tokens, lowered)
    context_blocks, log_probabilities = compare_with_contexts(documents, ids, len(names))
    classes = [list(names[row[1:-1]]) for row in np.split(ids, np.flatnonzero(np.diff(documents)) + 1)]
    blocks = {
        "words": CountVectorizer(analyzer=lambda text: ngrams(text, 3), min_df=8).fit_transform(lowered),
        "classes": CountVectorizer(analyzer=lambda text: ngrams(text, 3), min_df=12).fit_transform(classes),
        "letters": CountVectorizer(
            analyzer="char", ngram_range=(2, 4), min_df=15, lowercase=False
        ).fit_transform(texts),
        **context_blocks,
    }
    scale = sparse.diags_array([TYPICAL_TOKENS / len(text) for text in tokens])
    blocks = {name: (scale @ block).tocsr().astype(np.float32) for name, block in blocks.items()}
    measures = np.hstack([measure_errors(texts, tokens, lowered, log_probabilities), measure_topics(texts)])
    return blocks, np.hstack([measures, blocks.pop("swaps").toarray()])


def ngrams(tokens, max_tokens):
    """Return all n-grams of at most `max_tokens` tokens."""
    return [
        " ".join(tokens[position : position + size])
        for size in range(1, max_tokens + 1)
        for position in range(len(tokens) - size + 1)
    ]


def classify_words(tokens, lowered):
    """Map each token to a class: a frequent word, or the form of a rare one.

    Returns the text of each token, its class, and the names of the classes. Two tokens of padding surround
    each text.
    """
    frequencies = Counter(word for text in lowered for word in set(text))
    frequent = {word for word, _ in frequencies.most_common(FREQUENT_WORDS)}

    def classify(token):
        word = token.lower()
        if word in frequent:
            return word
        if not word[0].isalpha():
            return "0" if word[0].isdigit() else "mark"
        if token[0].isupper():
            return "Name"
        return next((f"-{ending}" for ending in ENDINGS if word.endswith(ending)), "-")

    rows = [["#", "#", *map(classify, text), "#", "#"] for text in tokens]
    names = np.array(sorted({name for row in rows for name in row}))
    ids = np.searchsorted(names, np.concatenate(rows))
    return np.repeat(np.arange(len(rows)), [len(row) for row in rows]), ids, names


def compare_with_contexts(documents, ids, size):
    """Compare each token with what a model of word classes expects between its neighbours.

    The model counts which class occurs between which neighbours in all texts, without the token itself.
    Returns the log probabilities of all tokens, by text, and these blocks:
    - surprises: for each class, the improbability of its tokens; the tokens that seem to be missing; those
      that could be left out; all of its tokens
    - confusions: for each pair of classes, how often the second was expected in place of the first
    - swaps: neighbouring tokens that would be more probable in the other order
    """
    texts = documents[-1] + 1
    at = np.arange(2, len(ids) - 2)
    at = at[documents[at - 2] == documents[at + 2]]
    before2, before, token, after, after2 = (ids[at + offset] for offset in (-2, -1, 0, 1, 2))
    text = documents[at]
    counts = np.bincount(token, minlength=size).astype(np.float32)
    share = (counts + 0.5) / (counts + 0.5).sum()
    by_left, by_right = (count_pairs(context, token, size) for context in (before, after))
    between, by_left2, by_right2 = (
        count_pairs(first * size + second, token, size * size, size)
        for first, second in ((before, after), (before2, before), (after, after2))
    )
    improbable, superfluous, missing, present = (np.zeros((texts, size), np.float32) for _ in range(4))
    log_probabilities = np.zeros(len(at), np.float32)
    confusions = []
    for start in range(0, len(at), CHUNK_TOKENS):
        part = slice(start, start + CHUNK_TOKENS)
        left, right, word, row = before[part], after[part], token[part], text[part]
        each = np.arange(len(word))

        from_left = expect(by_left[left], word, share, CONTEXT_PRIOR)
        from_right = expect(by_right[right], word, share, CONTEXT_PRIOR)
        product = from_left * from_right / share
        expected = expect(
            between[left * size + right], word, product / product.sum(axis=1, keepdims=True), PAIR_PRIOR
        )
        from_left2 = expect(by_left2[before2[part] * size + left], word, from_left, LONG_PRIOR)
        from_right2 = expect(by_right2[right * size + after2[part]], word, from_right, LONG_PRIOR)
        expected *= ((from_left2 / from_left) * (from_right2 / from_right)) ** LONG_WEIGHT
        expected /= expected.sum(axis=1, keepdims=True)

        log_probabilities[part] = np.log(expected[each, word])
        np.add.at(present, (row, word), 1)
        np.add.at(improbable, (row, word), 1 - expected[each, word])
        adjacent, kept = by_left[left, right], between[left * size + right, word] - 1
        np.add.at(superfluous, (row, word), adjacent / (adjacent + kept + 3))
        inserted = between[left * size + word]
        inserted /= inserted.sum(axis=1, keepdims=True) + (by_left[left, word] - 1)[:, None] + 5
        first = np.flatnonzero(np.r_[True, row[1:] != row[:-1]])
        missing[row[first]] += np.add.reduceat(inserted, first, axis=0)
        expected[each, word] = 0
        where, other = np.nonzero(expected > MIN_EXPECTATION)
        confusions.append((row[where], word[where] * size + other, expected[where, other]))

    row, pair, value = (np.concatenate(parts) for parts in zip(*confusions, strict=True))
    table = sparse.csr_array((value, (row, pair)), shape=(texts, size * size))
    blocks = {
        "surprises": sparse.csr_array(np.hstack([improbable, missing, superfluous, present])),
        "confusions": table[:, np.flatnonzero((table > 0).sum(axis=0) >= 15)],
        "swaps": sparse.csr_array(count_swaps(documents, ids, at, by_left, counts, share)),
    }
    return blocks, np.split(log_probabilities, np.flatnonzero(np.diff(text)) + 1)


def expect(counts, word, prior, weight):
    """Return the probability of each class from its counts in one context per token, without that token."""
    counts[np.arange(len(word)), word] -= 1
    return (counts + weight * prior) / (counts.sum(axis=1, keepdims=True) + weight)


def count_pairs(contexts, tokens, rows, columns=None):
    """Count how often each token occurs in each context."""
    columns = columns or rows
    return (
        np.bincount(contexts * columns + tokens, minlength=rows * columns)
        .astype(np.float32)
        .reshape(rows, -1)
    )


def count_swaps(documents, ids, at, by_left, counts, share):
    """Count, at three thresholds, the pairs of neighbours that would be more probable in the other order."""
    first, second, third, fourth = (ids[at + offset] for offset in (-1, 0, 1, 2))

    def log_probability(left, right, seen):
        pair, alone = by_left[left, right] - seen, counts[left] - seen
        return np.log(
            (np.maximum(pair, 0) + CONTEXT_PRIOR * share[right]) / (np.maximum(alone, 0) + CONTEXT_PRIOR)
        )

    swapped = sum(log_probability(a, b, 0) for a, b in ((first, third), (third, second), (second, fourth)))
    given = sum(log_probability(a, b, 1) for a, b in ((first, second), (second, third), (third, fourth)))
    return np.stack(
        [
            np.bincount(documents[at], 1 / (1 + np.exp(threshold + given - swapped)))
            for threshold in (0, 2, 4)
        ],
        axis=1,
    )


def measure_errors(texts, tokens, lowered, log_probabilities):
    """Measure lengths, spelling, capitals, punctuation, repetition and improbable words of each text."""
    frequencies = Counter(word for text in lowered for word in set(text))
    pairs = Counter(pair for text in lowered for pair in set(pairwise(text)))
    triples = Counter(
        triple for text in lowered for triple in set(zip(text, text[1:], text[2:], strict=False))
    )
    inner, capitals = Counter(), Counter()  # words inside of sentences, and those with a capital
    for text in tokens:
        for token in inner_words(text):
            inner[token.lower()] += 1
            capitals[token.lower()] += token[0].isupper()
    neighbours = {}
    rows = []
    for text, text_tokens, marked, log_probability in zip(
        texts, tokens, lowered, log_probabilities, strict=True
    ):
        words = [word for word in marked if word[0].isalpha()]
        size = len(words)
        rarity = np.array([frequencies[word] - 1 for word in words])
        pair_counts = np.array([pairs[pair] - 1 for pair in pairwise(marked)])
        triple_counts = np.array([triples[t] - 1 for t in zip(marked, marked[1:], marked[2:], strict=False)])
        frequency = np.array([frequencies[word] for word in marked])
        rarer = np.minimum(frequency[:-1], frequency[1:])
        surprise = np.log1p(frequency[:-1]) + np.log1p(frequency[1:]) - np.log(0.3 + pair_counts)
        rows.append(
            [
                *measure_lengths(text, size),
                *measure_spelling(words, frequencies, neighbours),
                *[(rarity <= limit).mean() for limit in (0, 2, 10, 40, 150, 600)],
                np.log1p(rarity).mean(),
                *measure_capitals(text_tokens, inner, capitals, size),
                *[len(re.findall(pattern, text)) / size for pattern in PATTERNS],
                *measure_repetition(words, frequencies, 0.15 * len(texts)),
                np.mean([a == b for a, b in pairwise(marked)]),
                *[(pair_counts[rarer > limit] <= 0).sum() / size for limit in (100, 500, 1500)],
                *[(pair_counts[rarer > limit] <= 3).sum() / size for limit in (100, 500, 1500)],
                (pair_counts == 0).mean(),
                (triple_counts == 0).mean(),
                (triple_counts <= 1).mean(),
                surprise.mean(),
                *np.percentile(surprise, [50, 75, 90, 97]),
                log_probability.mean(),
                *[(log_probability < limit).mean() for limit in (-2, -3, -4, -5, -6, -7, -8)],
            ]
        )
    return np.array(rows)


def inner_words(tokens):
    """Return the words that do not begin a sentence."""
    return [b for a, b in pairwise(tokens) if b[0].isalpha() and a not in SENTENCE_MARKS]


def measure_lengths(text, size):
    """Measure sentences and paragraphs."""
    sentences = [sentence.split() for sentence in SENTENCE_END.split(text) if sentence.split()]
    lengths = np.array([len(sentence) for sentence in sentences])
    paragraphs = [len(SENTENCE_END.split(paragraph)) for paragraph in text.split("\n\n")]
    complete = paragraphs[:-1] or paragraphs
    return [
        np.log(size),
        lengths.mean(),
        lengths.std(),
        lengths.max(),
        (lengths < 6).mean(),
        len(lengths) / size,
        np.mean([sentence[0][0].islower() for sentence in sentences]),
        max(paragraphs),
        min(complete),
        np.std(complete),
        paragraphs[0],
        np.mean([not 3 <= length <= 5 for length in paragraphs[1:-1]] or [0.3]),
    ]


def measure_spelling(words, frequencies, neighbours):
    """Return the shares of rare words with and without a much more frequent word one letter away."""
    misspelled = unknown = 0
    for word in words:
        if frequencies[word] <= 2 and word.isalpha() and len(word) > 3:
            if word not in neighbours:
                neighbours[word] = max(frequencies.get(other, 0) for other in edit_word(word))
            if neighbours[word] >= 6 * frequencies[word]:
                misspelled += 1
            else:
                unknown += 1
    return [misspelled / len(words), unknown / len(words)]


def edit_word(word):
    """Yield all words that are one letter away."""
    for position in range(len(word) + 1):
        start, end = word[:position], word[position:]
        yield start + end[1:]
        yield start + end[1:2] + end[:1] + end[2:]
        for letter in LETTERS:
            yield start + letter + end
            yield start + letter + end[1:]


def measure_capitals(tokens, inner, capitals, size):
    """Measure how improbable the capitals and the small letters of words inside of sentences are."""
    wrong = {True: 0.0, False: 0.0}
    for token in inner_words(tokens):
        if len(token) > 1:
            word, capital = token.lower(), token[0].isupper()
            probability = (capitals[word] - capital + 0.1) / (max(inner[word] - 1, 0) + 0.4)
            wrong[capital] += 1 - probability if capital else probability
    return [wrong[True] / size, wrong[False] / size]


def measure_repetition(words, frequencies, max_frequency):
    """Measure repetition of long words, by how early in the text the repeated word was introduced."""
    long_words = [word for word in words if len(word) > 4]
    result = []
    for chosen in (long_words, [word for word in long_words if frequencies[word] < max_frequency]):
        introduced, repeated = {}, np.zeros(6)
        for word in chosen:
            if word in introduced:
                repeated[np.searchsorted([3, 6, 10, 20, 40], introduced[word], side="right")] += 1
            else:
                introduced[word] = len(introduced)
        count = max(len(chosen), 1)
        result += [*(repeated / len(words)), len(introduced) / count, len(introduced) / np.sqrt(count)]
    nearby = [
        word in long_words[max(0, position - 25) : position] for position, word in enumerate(long_words)
    ]
    return [
        *result,
        np.mean(nearby or [0]),
        np.mean([len(word) for word in words]),
        len(long_words) / len(words),
    ]


def measure_topics(texts):
    """Measure how similar the sentences of a text are in topic, to each other and to their neighbours."""
    sentences = [[part for part in SENTENCE_END.split(text) if len(part.split()) > 3] for text in texts]
    documents = np.repeat(np.arange(len(texts)), [len(parts) for parts in sentences])
    words = TfidfVectorizer(min_df=3, max_df=0.1, sublinear_tf=True, stop_words="english").fit_transform(
        [part for parts in sentences for part in parts]
    )
    membership = sparse.csr_array((np.ones(len(documents)), (documents, np.arange(len(documents)))))
    topics = TruncatedSVD(TOPICS, n_iter=3, random_state=0).fit(normalize(membership @ words))
    vectors = np.split(normalize(topics.transform(words)), np.flatnonzero(np.diff(documents)) + 1)
    rows = np.zeros((len(texts), 11))
    for row, own in zip(np.unique(documents), vectors, strict=True):
        if (count := len(own)) < 4:
            continue
        similarity = own @ own.T
        to_others = (similarity.sum(axis=1) - 1) / (count - 1)
        adjacent, second = np.diag(similarity, 1), np.diag(similarity, 2)
        nearest = np.maximum(np.r_[-1, adjacent], np.r_[adjacent, -1])
        rows[row] = [
            to_others.mean(),
            *np.sort(to_others)[:3],
            (to_others < 0.05).mean(),
            (to_others < 0.12).mean(),
            adjacent.mean(),
            adjacent.mean() - to_others.mean(),
            second.mean() - to_others.mean(),
            nearest.mean(),
            np.sort(nearest)[:3].mean(),
        ]
    return rows
