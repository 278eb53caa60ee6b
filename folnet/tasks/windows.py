"""Windows over texts that are longer than a model reads: where they start, and which is best for a token.

W windows, T tokens.
"""

import itertools

import numpy as np
from jaxtyping import Bool, Int32


def starts(pieces: int, room: int, stride: int) -> range:
    """Returns the starts of as many windows as it takes to reach the end, at least one.

    Args:
        pieces: pieces of the text.
        room: pieces that fit into a window.
        stride: pieces from the start of a window to the start of the next, at most `room`.
    """
    behind = max(0, pieces - room)
    return range(0, behind + stride if behind else 1, stride)


def fitted(length: int, stride: int, query_length: int = 0) -> tuple[int, int]:
    """Returns a stride and a query's length as asked for, or less where windows are small.

    A query gets at most a third of the window, and windows overlap by at least half of what is left.
    """
    query_length = min(query_length, length // 3)
    return max(1, min(stride, (length - query_length - 3) // 2)), query_length


def best(
    owner: Int32[np.ndarray, "W"],
    first: Int32[np.ndarray, "W"],
    count: Int32[np.ndarray, "W"],
    column: Int32[np.ndarray, "W"],
    length: int,
) -> Bool[np.ndarray, "W T"]:
    """Returns for which tokens a window is the best of its text's: the smaller of their contexts is largest.

    Args:
        owner: the number of the text, in increasing order.
        first: the first piece in the window.
        count: the number of pieces in the window.
        column: the token of the first piece.
        length: T.
    """
    found = np.zeros((len(owner), length), bool)
    bounds = np.flatnonzero(np.diff(owner, prepend=-1, append=-1))
    for begin, end in itertools.pairwise(bounds.tolist()):
        windows = range(begin, end)
        pieces = int((first[begin:end] + count[begin:end]).max())
        scores = np.full((len(windows), pieces), -np.inf)
        for row, window in enumerate(windows):
            start, many = int(first[window]), int(count[window])
            place = np.arange(many)
            # The smaller context; BERT breaks ties by the longer window, then the earlier one.
            scores[row, start : start + many] = np.minimum(place, many - 1 - place) + 0.01 * many
        chosen = np.argmax(scores, axis=0)
        for row, window in enumerate(windows):
            start, many, at = (int(x[window]) for x in (first, count, column))
            found[window, at : at + many] = chosen[start : start + many] == row
    return found
