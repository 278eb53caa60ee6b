"""Masked language modelling: which tokens are to be predicted, and what is seen in their place.

As in BERT (Devlin et al. 2018) and FOLNet as released: 15 % of the tokens, of which 80 % are replaced by
[MASK], 10 % by any other piece, and 10 % are left as they are.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int32

from folnet.settings import at_least
from folnet.tokenization import WordPieceTokenizer

MASKED, KEPT = 0.8, 0.1
"""Of the tokens to be predicted: how many become [MASK], and how many stay; the others become any piece."""


def max_predictions(length: int) -> int:
    """Places for predictions in an example of T tokens: 20 of 128 as released, and in proportion elsewhere.

    The nearest whole number to 20 T / 128, at least 1. It is a bound, not an aim: 15 % of 125 tokens are 19.
    """
    return max(1, round(20 * length / 128))


class Masked(NamedTuple):
    """What is seen and what is asked. B examples, T tokens, P places for predictions."""

    input_ids: Int32[np.ndarray, "B T"]
    positions: Int32[np.ndarray, "B P"]
    """Where predictions are asked for, from left to right; 0 in places that are not needed."""
    labels: Int32[np.ndarray, "B P"]
    """What stood there; -1 in places that are not needed."""


@dataclasses.dataclass(frozen=True)
class Masking:
    """How tokens are chosen."""

    rate: float = 0.15
    """Part of the tokens that is to be predicted."""

    places: int = 20
    """Predictions an example at most, P."""

    whole_words: bool = False
    """Whether a word is masked with all its pieces or not at all; each piece then has its own of the three
    fates, as in BERT's later checkpoints. A word that would bring more than 15 % is passed over."""

    def __post_init__(self):
        if not 0 < self.rate <= 1:
            raise ValueError(f"rate must be in 0 .. 1 and above 0, got {self.rate}")
        at_least(1, places=self.places)

    def __call__(
        self,
        ids: Int32[np.ndarray, "B T"],
        draws: Float64[np.ndarray, "B 3 T"],
        tokenizer: WordPieceTokenizer,
    ) -> Masked:
        """Masks examples.

        Of n tokens that are not special, round(rate * n) are chosen, at least one and at most `places`.
        Unlike the release, [UNK] is never one of them, and what replaces a token is always a piece of text:
        neither a special token nor one of the vocabulary's places in reserve.

        Args:
            ids: the examples, with special tokens.
            draws: numbers evenly from 0 to 1: for the order in which tokens are chosen, their fates, and what
                replaces them.
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
        """Takes units (tokens or words) in a random order, passing over those that are too long for what is
        left.

        All examples go through their units side by side, so that the loop is one over places, not examples.
        """
        rows, length = ids.shape
        begins = np.ones_like(maskable)
        if self.whole_words:
            begins[:, 1:] = tokenizer.starts_word[ids[:, 1:]] | ~maskable[:, 1:] | ~maskable[:, :-1]
        first = np.maximum.accumulate(np.where(begins, np.arange(length), 0), axis=1)  # of the token's unit
        unit = first + np.arange(rows)[:, None] * length
        sizes = np.bincount(unit.ravel(), minlength=rows * length).reshape(rows, length)
        candidates = np.where(begins & maskable, order, 2.0)  # above every draw: last in order
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
