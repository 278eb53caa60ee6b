"""A small text in which every token occurs once, so that a token identifies its position."""

import functools

import numpy as np

from folnet.pretraining.documents import Listed
from folnet.pretraining.windows import Packing, Split, prepare
from folnet.tokenization import CONTINUATION, SPECIAL_TOKENS, WordPieceTokenizer

LENGTHS = (400, 37, 230, 118, 5, 700, 61, 333, 129, 250)
"""Tokens of the documents."""


def piece(document: int, place: int) -> str:
    """Returns the text of a token; no token is a prefix of another except for shorter numbers."""
    return f"d{document}t{place}"


@functools.cache
def corpus() -> tuple[Listed, WordPieceTokenizer, dict[int, tuple[int, int]], list[list[int]]]:
    """Returns documents, tokenizer, document and place of each id, and the starts of sentences by document.

    A third of the tokens continue a word.
    """
    rng = np.random.default_rng(0)
    vocabulary, documents, where, begins = list(SPECIAL_TOKENS), [], {}, []
    for document, length in enumerate(LENGTHS):
        starts = np.cumsum([0, *rng.integers(3, 20, length)])
        starts = [int(start) for start in starts if start < length]
        text = ""
        for place in range(length):
            token = piece(document, place)
            goes_on = place not in starts and rng.random() < 1 / 3
            where[len(vocabulary)] = document, place
            vocabulary.append((CONTINUATION if goes_on else "") + token)
            text += token if goes_on else ("\n" if place in starts else " ") + token
        documents.append((f"document {document}", text.strip()))
        begins.append(starts)
    return Listed(documents), WordPieceTokenizer(vocabulary), where, begins


@functools.cache
def split(
    length: int = 32, packing: Packing = "document", short_fraction: float = 0.0, held_out: float = 0.0
) -> Split:
    """Returns the windows of both parts of the corpus."""
    documents, tokenizer, *_ = corpus()
    return prepare(
        documents,
        tokenizer,
        length=length,
        packing=packing,
        short_fraction=short_fraction,
        held_out=held_out,
    )
