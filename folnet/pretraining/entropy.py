"""What a model that knows only how frequent the pieces are would lose: the line a pretrained one must get
below.
"""

import numpy as np
from jaxtyping import Int64

from folnet.pretraining.batches import PretrainingBatches


def label_counts(batches: PretrainingBatches, steps: int | None = None) -> Int64[np.ndarray, "V"]:
    """How often each piece is asked for in so many first batches, by default an epoch's, on this host."""
    counts = np.zeros(batches.tokenizer.vocab_size, np.int64)
    for step in range(len(batches) if steps is None else steps):
        labels = batches(step).mlm_labels
        counts += np.bincount(labels[labels >= 0], minlength=len(counts))
    return counts


def unigram_entropy(counts: Int64[np.ndarray, "V"]) -> float:
    """The entropy -sum_v p_v ln p_v of the pieces asked for, p_v = n_v / n, in nats a masked token.

    It is the least masked-LM loss, averaged over those very n predictions, of all models that give the same
    answer everywhere, so ones that see nothing of the text around a mask nor the tokens that were left as
    they were. As it is fitted to the predictions it is measured on, it is a little lower than such a model
    would reach on other text: a loss below it is no accident of that.

    Raises:
        ValueError: there is no prediction.
    """
    total = counts.sum()
    if total <= 0:
        raise ValueError("counts must have at least one prediction, got none")
    shares = counts[counts > 0] / total
    return float(-(shares * np.log(shares)).sum())


def unigram_cross_entropy(
    learned: Int64[np.ndarray, "V"], counts: Int64[np.ndarray, "V"], *, smoothing: float = 1.0
) -> float:
    """The loss of frequencies learned on one part of the text and measured on another, in nats a masked
    token.

    -sum_v (n_v / n) ln q_v, with q_v proportional to the count learned plus `smoothing`, so that a new piece
    has a chance: the fair line for held-out text.

    Raises:
        ValueError: the vocabularies differ, or there is no prediction.
    """
    if learned.shape != counts.shape:
        raise ValueError(
            f"learned and counts must have the same shape, got {learned.shape} and {counts.shape}"
        )
    if smoothing <= 0 or counts.sum() <= 0:
        raise ValueError(
            f"smoothing and counts must be above 0, got {smoothing} and {counts.sum()} predictions"
        )
    chances = (learned + smoothing) / (learned + smoothing).sum()
    return float(-(counts / counts.sum() * np.log(chances)).sum())
