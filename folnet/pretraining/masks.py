"""Masked language modelling: which tokens to predict, and what replaces them.

As in BERT (Devlin et al. 2018) and the released FOLNet, 15 % of the tokens are predicted. Of these, 80 % are
replaced by [MASK] and 10 % by a random piece; 10 % are left unchanged.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int32

from folnet.settings import at_least
from folnet.tokenization import WordPieceTokenizer

MASKED, KEPT = 0.8, 0.1
"""Fractions of the predicted tokens that become [MASK] and that stay; the others become a random piece."""


def max_predictions(length: int) -> int:
    """Returns the number of places for predictions in an example of T tokens, in proportion to 20 of 128.

    It is 20 T / 128 rounded, at least 1; 20 of 128 are the released setting. This is a maximum, not a target:
    15 % of 125 tokens are 19.
    """
    return max(1, round(20 * length / 128))


class Masked(NamedTuple):
    """Masked examples and their labels. B examples, T tokens, P places for predictions."""

    input_ids: Int32[np.ndarray, "B T"]
    positions: Int32[np.ndarray, "B P"]
    """Positions to predict, from left to right; 0 in unused places."""
    labels: Int32[np.ndarray, "B P"]
    """The original tokens there; -1 in unused places."""


@dataclasses.dataclass(frozen=True)
class Masking:
    """Settings of the masking, called with examples to mask."""

    rate: float = 0.15
    """Fraction of the tokens to predict."""

    places: int = 20
    """Maximum number of predictions per example, P."""

    whole_words: bool = False
    """Whether to mask all pieces of a word or none. Each piece is then replaced independently, as in BERT's
    later checkpoints. Words that would exceed the number of predictions are skipped."""

    def __post_init__(self):
        if not 0 < self.rate <= 1:
            raise ValueError(f"rate: got {self.rate}, expected above 0 and at most 1")
        at_least(1, places=self.places)

    def __call__(
        self,
        ids: Int32[np.ndarray, "B T"],
        draws: Float64[np.ndarray, "B 3 T"],
        tokenizer: WordPieceTokenizer,
    ) -> Masked:
        """Masks examples.

        Of n tokens that are not special, round(rate * n) are chosen, at least one and at most `places`.
        Unlike in the released code, [UNK] is never chosen, and tokens are only replaced by [MASK] or pieces
        of text, never by other special or reserved tokens.

        Args:
            ids: the examples, with special tokens.
            draws: uniform numbers in [0, 1) that decide the order in which tokens are chosen, what happens to
                them, and their replacements.
            tokenizer: knows which ids are special and which begin a word.
        """
        rows, length = ids.shape
        special = np.zeros(tokenizer.vocab_size, bool)
        special[tokenizer.special_ids] = True
        maskable = ~special[ids]
        counts = maskable.sum(axis=1)
        wanted = np.clip(np.rint(self.rate * counts).astype(np.int64), np.minimum(counts, 1), self.places)
        chosen = self._choose(ids, maskable, wanted, draws[:, 0], tokenizer)

        fate, other = draws[:, 1], draws[:, 2]
        ordinary = tokenizer.ordinary_ids
        replaced = np.where(
            fate < MASKED, tokenizer.mask_id, ordinary[(other * len(ordinary)).astype(np.int64)]
        )
        seen = np.where(chosen & ~((fate >= MASKED) & (fate < MASKED + KEPT)), replaced, ids)

        places = min(self.places, length)
        positions = np.argsort(~chosen, axis=1, kind="stable")[:, :places]
        there = np.arange(places) < chosen.sum(axis=1)[:, None]
        labels = np.full((rows, self.places), -1, np.int32)
        labels[:, :places] = np.where(there, np.take_along_axis(ids, positions, axis=1), -1)
        full = np.zeros((rows, self.places), np.int32)
        full[:, :places] = np.where(there, positions, 0)
        return Masked(seen.astype(np.int32), full, labels)

    def _choose(
        self,
        ids: Int32[np.ndarray, "B T"],
        maskable: Bool[np.ndarray, "B T"],
        wanted: np.ndarray,
        order: Float64[np.ndarray, "B T"],
        tokenizer: WordPieceTokenizer,
    ) -> Bool[np.ndarray, "B T"]:
        """Takes units (tokens or words) in random order, skipping those too long for the remaining number.

        All examples are processed in parallel, so the loop is over positions, not examples.
        """
        rows, length = ids.shape
        begins = np.ones_like(maskable)
        if self.whole_words:
            begins[:, 1:] = tokenizer.starts_word[ids[:, 1:]] | ~maskable[:, 1:] | ~maskable[:, :-1]
        first = np.maximum.accumulate(np.where(begins, np.arange(length), 0), axis=1)  # of the token's unit
        unit = first + np.arange(rows)[:, None] * length
        sizes = np.bincount(unit.ravel(), minlength=rows * length).reshape(rows, length)
        candidates = np.where(begins & maskable, order, 2.0)  # above every draw, so last in order
        sequence = np.argsort(candidates, axis=1)
        sizes = np.take_along_axis(sizes, sequence, axis=1)
        valid = np.take_along_axis(begins & maskable, sequence, axis=1)
        taken = np.zeros_like(maskable)
        left = wanted.copy()
        everyone = np.arange(rows)
        for column in range(length):
            if not left.any() or not valid[:, column].any():
                break
            fits = valid[:, column] & (sizes[:, column] <= left)
            left -= np.where(fits, sizes[:, column], 0)
            taken[everyone, sequence[:, column]] = fits
        return np.take_along_axis(taken, first, axis=1)
