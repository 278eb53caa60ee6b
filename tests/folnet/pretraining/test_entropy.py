"""The baseline for pretrained models."""

import numpy as np
import pytest
from scipy import optimize

from folnet.pretraining.batches import PretrainingBatches
from folnet.pretraining.documents import Document
from folnet.pretraining.entropy import label_counts, unigram_cross_entropy, unigram_entropy
from folnet.pretraining.windows import prepare
from folnet.tokenization import SPECIAL_TOKENS, WordPieceTokenizer


@pytest.fixture(scope="module")
def made():
    """Makes a text whose words have probabilities 1/2, 1/4, 1/8, ..., and its batches."""
    rng = np.random.default_rng(0)
    words = np.minimum(rng.geometric(0.5, 20_000), 8)
    texts = [" ".join(f"w{number}" for number in part) for part in np.split(words, 40)]
    # The id of a word may be 0, too.
    tokenizer = WordPieceTokenizer([*(f"w{number}" for number in range(1, 9)), *SPECIAL_TOKENS])
    windows = prepare(
        [Document(str(i), text) for i, text in enumerate(texts)], tokenizer, length=64, held_out=0
    ).train
    return PretrainingBatches(windows, tokenizer, 64), words


def test_counts_are_those_of_the_labels(made):
    """Counted piece by piece."""
    batches, _ = made
    expected = np.zeros(batches.tokenizer.vocab_size, int)
    for step in range(3):
        for label in batches(step).mlm_labels.ravel():
            if label >= 0:
                expected[label] += 1
    np.testing.assert_array_equal(label_counts(batches, 3), expected)
    assert label_counts(batches).sum() == sum((batch.mlm_labels >= 0).sum() for batch in batches)


def test_masks_ask_for_what_the_text_has(made):
    """Labels are distributed like the text, so their entropy is close to the source's."""
    batches, words = made
    counts = label_counts(batches, 60)
    assert counts.sum() > 20_000
    shares = np.bincount(words, minlength=9)[1:] / len(words)
    assert unigram_entropy(counts) == pytest.approx(-(shares * np.log(shares)).sum(), abs=0.02)


def test_entropy_is_the_best_constant_answer():
    """Compared with the loss of logits optimized without input."""
    counts = np.asarray([5, 0, 1, 30, 4])

    def loss(logits):
        return -(counts * (logits - np.log(np.exp(logits).sum()))).sum() / counts.sum()

    best = optimize.minimize(loss, np.zeros(5)).fun
    assert unigram_entropy(counts) == pytest.approx(best, abs=1e-3)
    assert unigram_entropy(np.full(16, 3)) == pytest.approx(np.log(16))
    assert unigram_entropy(np.asarray([0, 7])) == 0


def test_on_other_text_it_is_more():
    """Gibbs' inequality, with equality for equal frequencies; smoothing adds to the counts."""
    rng = np.random.default_rng(0)
    learned, measured = rng.integers(0, 9, (2, 50))
    assert unigram_cross_entropy(learned, measured) > unigram_entropy(measured)
    assert unigram_cross_entropy(measured, measured, smoothing=1e-9) == pytest.approx(
        unigram_entropy(measured)
    )
    expected = -(2 * np.log(2 / 5) + 1 * np.log(1 / 5)) / 3
    assert unigram_cross_entropy(np.asarray([1, 1, 0]), np.asarray([2, 0, 1])) == pytest.approx(expected)
    # A single prediction has a loss, too.
    assert unigram_cross_entropy(np.asarray([1, 1]), np.asarray([0, 1])) == pytest.approx(np.log(2))


def test_bad_arguments():
    """The error names the argument."""
    with pytest.raises(ValueError, match="counts: got no predictions"):
        unigram_entropy(np.zeros(3, int))
    with pytest.raises(ValueError, match=r"got shapes \(3,\) and \(4,\), expected the same shape"):
        unigram_cross_entropy(np.ones(3, int), np.ones(4, int))
    for smoothing, counts in ((0.0, np.ones(3, int)), (1.0, np.zeros(3, int))):
        with pytest.raises(ValueError, match=r"smoothing, counts: got .* expected both above 0"):
            unigram_cross_entropy(np.ones(3, int), counts, smoothing=smoothing)
