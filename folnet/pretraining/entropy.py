"""The loss of a model that only knows how frequent pieces are: the baseline for pretrained models."""

import numpy as np
from jaxtyping import Int64

from folnet.pretraining.batches import PretrainingBatches


def label_counts(batches: PretrainingBatches, steps: int | None = None) -> Int64[np.ndarray, "V"]:
    """Counts how often each piece is a label in the first batches (by default an epoch) on this host."""
    counts = np.zeros(batches.tokenizer.vocab_size, np.int64)
    for step in range(len(batches) if steps is None else steps):
        labels = batches(step).mlm_labels
        counts += np.bincount(labels[labels >= 0], minlength=len(counts))
    return counts


def unigram_entropy(counts: Int64[np.ndarray, "V"]) -> float:
    """Returns the entropy -sum_v p_v ln p_v of the labels, p_v = n_v / n, in nats per masked token.

    It is the least masked-LM loss over these n predictions of any model that gives the same answer
    everywhere, and thus ignores both the text around a mask and the tokens left unchanged. Since it is fitted
    to the predictions it is measured on, it is slightly lower than such a model would reach on other text, so
    a loss below it is not an artifact of the fit.

    Raises:
        ValueError: If there are no predictions.
    """
    total = counts.sum()
    if total <= 0:
        raise ValueError("counts: got no predictions, expected at least one")
    shares = counts[counts > 0] / total
    return float(-(shares * np.log(shares)).sum())


def unigram_cross_entropy(
    learned: Int64[np.ndarray, "V"], counts: Int64[np.ndarray, "V"], *, smoothing: float = 1.0
) -> float:
    """Returns the loss of frequencies learned on one text and measured on another, in nats per masked token.

    It is -sum_v (n_v / n) ln q_v, with q_v proportional to the learned count plus `smoothing`, so that new
    pieces have a nonzero probability: a fair baseline for held-out text.

    Raises:
        ValueError: If the vocabularies differ or there are no predictions.
    """
    if learned.shape != counts.shape:
        raise ValueError(
            f"learned, counts: got shapes {learned.shape} and {counts.shape}, expected the same shape"
        )
    if smoothing <= 0 or counts.sum() <= 0:
        raise ValueError(
            f"smoothing, counts: got {smoothing} and {counts.sum()} predictions, expected both above 0"
        )
    chances = (learned + smoothing) / (learned + smoothing).sum()
    return float(-(counts / counts.sum() * np.log(chances)).sum())
