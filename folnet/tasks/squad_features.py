"""Windows over SQuAD paragraphs, as for BERT: [CLS] question [SEP] part of the paragraph [SEP].

A paragraph too long for one window gets several, each starting `stride` tokens after the previous one. A
window that does not contain the complete answer is labelled with [CLS], like one without an answer. A token
in several windows is answered in the one where the smaller of its left and right contexts is largest.

W windows, T tokens, N questions, P pieces of a paragraph.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32, Int64

from folnet.settings import at_least
from folnet.tasks import windows
from folnet.tasks.squad_questions import Gold, Question
from folnet.tokenization import WordPieceTokenizer

STRIDE = 128
"""Default number of tokens from the start of a window to the start of the next."""

QUERY_LENGTH = 64
"""Default maximum number of tokens in a question; longer ones are truncated."""


class SpanFeatures(NamedTuple):
    """Windows in the form the model reads, and their origins."""

    input_ids: Int32[np.ndarray, "W T"]
    token_type_ids: Int32[np.ndarray, "W T"]
    attention_mask: Bool[np.ndarray, "W T"]
    start_positions: Int32[np.ndarray, "W"]
    """The first token of the first answer; 0, [CLS], if the window does not contain all of it."""
    end_positions: Int32[np.ndarray, "W"]
    """The last token of that answer, or 0."""
    question: Int32[np.ndarray, "W"]
    """Index of the question."""
    column: Int32[np.ndarray, "W"]
    """Token at which the paragraph starts in the window."""
    first: Int32[np.ndarray, "W"]
    """Index of the first piece of the paragraph in the window."""
    count: Int32[np.ndarray, "W"]
    """Number of pieces of the paragraph in the window."""
    offsets: tuple[Int64[np.ndarray, "P 2"], ...]
    """For each question, start and end of its paragraph's pieces, in characters."""

    def best(self) -> Bool[np.ndarray, "W T"]:
        """Returns which tokens may be answered in each window: those with their best context in it."""
        return windows.best(self.question, self.first, self.count, self.column, self.input_ids.shape[1])


def span_features(
    questions: Sequence[Question],
    tokenizer: WordPieceTokenizer,
    *,
    length: int,
    stride: int = STRIDE,
    query_length: int = QUERY_LENGTH,
) -> SpanFeatures:
    """Splits questions and paragraphs into windows of T = `length` tokens.

    Questions are truncated to `query_length` tokens. Windows start `stride` tokens apart. A paragraph shared
    by several questions is tokenized once.

    Raises:
        ValueError: If a number is too small, or the stride would skip tokens between windows.
    """
    at_least(1, stride=stride, query_length=query_length)
    # With the longest question this many tokens of the paragraph fit; a larger stride would skip tokens.
    if (least := length - query_length - 3) < stride:
        raise ValueError(
            f"length: got {length}, expected at least query_length + stride + 3 = "
            f"{query_length + stride + 3} (a window has room for {max(least, 0)} tokens of the paragraph, "
            f"and the next starts {stride} later)"
        )
    contexts = list(dict.fromkeys(question.context for question in questions))
    pieces = dict(zip(contexts, tokenizer.pieces(contexts), strict=True))
    asked = tokenizer.ids([question.question for question in questions])
    left, right, labels, where = [], [], [], []
    for number, (question, ids) in enumerate(zip(questions, asked, strict=True)):
        ids = ids[:query_length]
        room, column = length - len(ids) - 3, len(ids) + 2
        context = pieces[question.context]
        answer = piece_span(context.offsets, question.golds[0]) if question.golds else None
        for first in windows.starts(len(context.ids), room, stride):
            count = min(room, len(context.ids) - first)
            left.append(ids)
            right.append(context.ids[first : first + count])
            where.append((number, column, first, count))
            inside = answer is not None and first <= answer[0] and answer[1] < first + count
            labels.append([column + piece - first for piece in answer] if inside and answer else [0, 0])
    inputs = tokenizer.assemble(left, right, length=length)
    starts, ends = np.asarray(labels, np.int32).reshape(-1, 2).T
    number, column, first, count = np.asarray(where, np.int32).reshape(-1, 4).T
    offsets = tuple(pieces[question.context].offsets for question in questions)
    return SpanFeatures(*inputs, starts, ends, number, column, first, count, offsets)


def piece_span(offsets: Int64[np.ndarray, "P 2"], gold: Gold) -> tuple[int, int] | None:
    """Returns the first and last piece of an answer without outer spaces; None if no piece is left of it."""
    start = gold.start + len(gold.text) - len(gold.text.lstrip())
    end = gold.start + len(gold.text.rstrip())
    first = int(np.searchsorted(offsets[:, 1], start, side="right"))
    last = int(np.searchsorted(offsets[:, 0], end, side="left")) - 1
    return (first, last) if first <= last else None
