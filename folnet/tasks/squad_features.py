"""Windows of SQuAD paragraphs: [CLS] question [SEP] part of the paragraph [SEP], as BERT's are cut.

A paragraph too long for one window has several, the next beginning `stride` tokens after the one before. A
window that has not got the whole answer is labelled with [CLS], as one without an answer is. A token that is
in several windows is answered by the one where it has most context on its shorter side.

W windows, T tokens, N questions, P pieces of a paragraph.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32, Int64

from folnet.settings import at_least
from folnet.tasks.squad_questions import Gold, Question
from folnet.tokenization import WordPieceTokenizer

STRIDE = 128
"""Tokens from the beginning of a window to that of the next."""

QUERY_LENGTH = 64
"""Tokens of a question; longer ones are cut."""


class SpanFeatures(NamedTuple):
    """Windows as the model reads them, and where they are from."""

    input_ids: Int32[np.ndarray, "W T"]
    token_type_ids: Int32[np.ndarray, "W T"]
    attention_mask: Bool[np.ndarray, "W T"]
    start_positions: Int32[np.ndarray, "W"]
    """The token at which the first answer begins; 0, [CLS], if this window has not got it whole."""
    end_positions: Int32[np.ndarray, "W"]
    """The token with which it ends."""
    question: Int32[np.ndarray, "W"]
    """The place of the question."""
    column: Int32[np.ndarray, "W"]
    """Where the paragraph begins in the window."""
    first: Int32[np.ndarray, "W"]
    """Which piece of the paragraph stands there."""
    count: Int32[np.ndarray, "W"]
    """How many pieces of it the window has."""
    offsets: tuple[Int64[np.ndarray, "P 2"], ...]
    """For each question: where its paragraph's pieces begin and end, in characters."""

    def best(self) -> Bool[np.ndarray, "W T"]:
        """Which tokens may be answered here: pieces of the paragraph that have their best window in this."""
        best = np.zeros(self.input_ids.shape, bool)
        bounds = np.flatnonzero(np.diff(self.question, prepend=-1, append=-1))
        for begin, end in itertools.pairwise(bounds.tolist()):
            windows = range(begin, end)
            pieces = int((self.first[begin:end] + self.count[begin:end]).max())
            scores = np.full((len(windows), pieces), -np.inf)
            for row, window in enumerate(windows):
                first, count = int(self.first[window]), int(self.count[window])
                place = np.arange(count)
                # The context on the shorter side; BERT's tie-break: the longer window, then the earlier.
                scores[row, first : first + count] = np.minimum(place, count - 1 - place) + 0.01 * count
            chosen = np.argmax(scores, axis=0)
            for row, window in enumerate(windows):
                first, count, column = (int(x[window]) for x in (self.first, self.count, self.column))
                best[window, column : column + count] = chosen[first : first + count] == row
        return best


def span_features(
    questions: Sequence[Question],
    tokenizer: WordPieceTokenizer,
    *,
    length: int,
    stride: int = STRIDE,
    query_length: int = QUERY_LENGTH,
) -> SpanFeatures:
    """Cuts questions, of at most `query_length` tokens, and paragraphs into windows of T = `length` tokens.

    A paragraph that several questions are about is cut once; `stride` is the tokens from window to window.

    Raises:
        ValueError: a number is too small, or the stride leaves tokens out between windows.
    """
    at_least(1, stride=stride, query_length=query_length)
    # The longest question leaves this much to the paragraph; a longer step would leave tokens out.
    if (least := length - query_length - 3) < stride:
        raise ValueError(
            f"length must be at least query_length + stride + 3 = {query_length + stride + 3}, got {length}: "
            f"a window has room for {max(least, 0)} tokens of the paragraph and the next is {stride} further"
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
        for first in _starts(len(context.ids), room, stride):
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
    """The first and last piece of an answer without its spaces at the ends; None if it was cleaned away."""
    start = gold.start + len(gold.text) - len(gold.text.lstrip())
    end = gold.start + len(gold.text.rstrip())
    first = int(np.searchsorted(offsets[:, 1], start, side="right"))
    last = int(np.searchsorted(offsets[:, 0], end, side="left")) - 1
    return (first, last) if first <= last else None


def _starts(pieces: int, room: int, stride: int) -> range:
    """Where windows begin: as many as it takes to reach the end, one at least."""
    behind = max(0, pieces - room)
    return range(0, behind + stride if behind else 1, stride)
