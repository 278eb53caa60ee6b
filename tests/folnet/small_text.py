"""A small text in which every token occurs once, so that a token says where it is from."""

import functools

import numpy as np

from folnet.pretraining.documents import Listed
from folnet.pretraining.windows import Packing, Split, prepare
from folnet.tokenization import CONTINUATION, SPECIAL_TOKENS, WordPieceTokenizer

LENGTHS = (400, 37, 230, 118, 5, 700, 61, 333, 129, 250)
"""Tokens of the documents."""


def piece(document: int, place: int) -> str:
    """The text of a token; no token but a shorter number's begins as another does."""
    return f"d{document}t{place}"


@functools.cache
def corpus() -> tuple[Listed, WordPieceTokenizer, dict[int, tuple[int, int]], list[list[int]]]:
    """The documents, their tokenizer, document and place of each id, and where sentences begin in each
    document.

    A third of the tokens go on with a word.
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
    """Its windows."""
    documents, tokenizer, *_ = corpus()
    return prepare(
        documents,
        tokenizer,
        length=length,
        packing=packing,
        short_fraction=short_fraction,
        held_out=held_out,
    )
