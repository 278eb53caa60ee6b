"""Windows over documents: runs of tokens that fill an example, before anything random is applied.

Windows are prepared once. Where to split a window, what follows it, whether to swap its halves and which
tokens to mask is drawn when it is used, anew in each epoch.
"""

import abc
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Bool, UInt16

from folnet.pretraining.documents import Document, is_held_out, sentences
from folnet.tokenization import WordPieceTokenizer

Packing = Literal["document", "sentences", "corpus"]
"""How windows are filled.

- `document`: full windows of one document; a sentence that does not fit continues in the next window. Only a
  document's last window is shorter.
- `sentences`: as many whole sentences of one document as fit; the rest becomes padding. Only a sentence
  longer than a window is split.
- `corpus`: documents are concatenated, separated by [SEP], and every window is full, without padding.
"""

PACKINGS: tuple[Packing, ...] = get_args(Packing)

SPECIAL = 3
"""Number of special tokens in an example for which a window leaves room: [CLS] and two [SEP]."""

_SENTENCES = 1024  # sentences tokenized at a time, since a document may be huge

MAX_VOCABULARY = 2**16
"""Windows store ids in two bytes."""


class Window(NamedTuple):
    """N consecutive tokens, among which S sentences begin."""

    tokens: UInt16[np.ndarray, "N"]
    """Ids, without special tokens other than [UNK] and, between documents, [SEP]."""

    starts: UInt16[np.ndarray, "S"]
    """Indices at which sentences begin; the first need not be 0."""

    place: int
    """Index among its document's windows, which are stored consecutively."""

    count: int
    """Number of windows of its document; 0 if it may contain parts of several documents."""


class Windows(abc.ABC):
    """A sequence of windows with random access."""

    room: int
    """Maximum number of tokens in a window."""

    packing: str
    """How the windows were filled, one of `PACKINGS` (from a file, so not checked)."""

    vocabulary: str
    """The `fingerprint` of the tokenizer that produced the tokens."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def take(self, indices: Sequence[int]) -> list[Window]:
        """Reads some windows; raises ValueError with file, record and problem if one is damaged."""


class MemoryWindows(Windows):
    """Windows in memory, stored in a few arrays."""

    def __init__(self, windows: Iterable[Window], *, room: int, packing: Packing, vocabulary: str):
        """Takes windows in order, those of each document together."""
        self.room, self.packing, self.vocabulary = room, packing, vocabulary
        tokens, starts, places = [np.zeros(0, np.uint16)], [np.zeros(0, np.uint16)], []
        for window in windows:
            tokens.append(window.tokens)
            starts.append(window.starts)
            places.append((window.place, window.count))
        self._tokens, self._starts = np.concatenate(tokens), np.concatenate(starts)
        self._token_ends = np.cumsum([len(some) for some in tokens])
        self._start_ends = np.cumsum([len(some) for some in starts])
        self._places = np.asarray(places, np.int64).reshape(-1, 2)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def num_tokens(self) -> int:
        """Number of tokens in all windows."""
        return len(self._tokens)

    def take(self, indices: Sequence[int]) -> list[Window]:
        found = []
        for index in indices:
            tokens = self._tokens[self._token_ends[index] : self._token_ends[index + 1]]
            starts = self._starts[self._start_ends[index] : self._start_ends[index + 1]]
            place, count = self._places[index].tolist()
            found.append(Window(tokens, starts, place, count))
        return found


def check_packing(packing: str, length: int, short_fraction: float, vocab_size: int) -> None:
    """Raises ValueError for wrong arguments of `make_windows`."""
    if packing not in PACKINGS:
        raise ValueError(f"packing: got {packing!r}, expected one of {', '.join(map(repr, PACKINGS))}")
    if not SPECIAL + 2 <= length < 2**16:
        raise ValueError(f"length: got {length}, expected {SPECIAL + 2} to {2**16 - 1} tokens")
    if not 0 <= short_fraction <= 1:
        raise ValueError(f"short_fraction: got {short_fraction}, expected 0 to 1")
    if short_fraction and packing == "corpus":
        raise ValueError(f"short_fraction: got {short_fraction}, expected 0 (packing 'corpus' fills windows)")
    if vocab_size > MAX_VOCABULARY:
        raise ValueError(f"tokenizer: got {vocab_size} pieces, expected at most {MAX_VOCABULARY}")


def make_windows(
    documents: Iterable[Document],
    tokenizer: WordPieceTokenizer,
    *,
    length: int = 128,
    packing: Packing = "document",
    short_fraction: float = 0.0,
    seed: int = 0,
) -> Iterator[Window]:
    """Splits documents into windows.

    Args:
        documents: the texts.
        tokenizer: tokenizes them.
        length: T, the number of tokens in an example with its special tokens; a window has at most T - 3.
        packing: see `Packing`.
        short_fraction: fraction of windows with a shorter, uniformly drawn length (one in ten for BERT); a
            function of the seed and the text.
        seed: seed of these lengths.

    Yields:
        The windows, those of each document together. A remainder of a single token is dropped.

    Raises:
        ValueError: If an argument is wrong.
    """
    check_packing(packing, length, short_fraction, tokenizer.vocab_size)
    room = length - SPECIAL
    if packing == "corpus":
        yield from _running_on(documents, tokenizer, room)
        return
    for document in documents:
        tokens, begins = tokenize_document(document.text, tokenizer)
        digest = hashlib.blake2b(document.text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        rng = np.random.default_rng([seed, int.from_bytes(digest, "little")]) if short_fraction else None
        cuts, position = [], 0
        while len(tokens) - position >= 2:
            size = room
            if rng is not None and rng.random() < short_fraction:
                size = int(rng.integers(2, room + 1))
            end = position + size
            if packing == "sentences" and end < len(tokens):
                whole = np.flatnonzero(begins[position + 1 : end + 1])
                if len(whole):
                    end = position + 1 + int(whole[-1])
            cuts.append((position, min(end, len(tokens))))
            position = end
        cuts = [(start, end) for start, end in cuts if end - start >= 2]
        for place, (start, end) in enumerate(cuts):
            yield Window(tokens[start:end], _starts(begins[start:end]), place, len(cuts))


def tokenize_document(
    text: str, tokenizer: WordPieceTokenizer
) -> tuple[UInt16[np.ndarray, "N"], Bool[np.ndarray, "N"]]:
    """Returns a document's tokens, and whether a sentence begins at each."""
    tokens, sizes = [np.zeros(0, np.uint16)], [0]
    for part in itertools.batched(sentences(text), _SENTENCES):
        rows = [row for row in tokenizer.ids(part) if row]
        tokens.append(np.fromiter(itertools.chain.from_iterable(rows), np.uint16))
        sizes += map(len, rows)
    whole = np.concatenate(tokens)
    begins = np.zeros(len(whole), bool)
    begins[np.cumsum(sizes)[:-1]] = True
    return whole, begins


def _running_on(documents: Iterable[Document], tokenizer: WordPieceTokenizer, room: int) -> Iterator[Window]:
    """Yields full windows across documents; the last may be shorter."""
    separator = np.asarray([tokenizer.sep_id], np.uint16), np.zeros(1, bool)
    tokens, begins = np.zeros(0, np.uint16), np.zeros(0, bool)
    for document in documents:
        new = tokenize_document(document.text, tokenizer)
        if not len(new[0]):
            continue
        parts = [(tokens, begins), separator, new] if len(tokens) else [new]
        tokens = np.concatenate([part[0] for part in parts])
        begins = np.concatenate([part[1] for part in parts])
        full = len(tokens) // room * room
        for start in range(0, full, room):
            yield Window(tokens[start : start + room], _starts(begins[start : start + room]), 0, 0)
        tokens, begins = tokens[full:], begins[full:]
    if len(tokens) >= 2:
        yield Window(tokens, _starts(begins), 0, 0)


def _starts(begins: Bool[np.ndarray, "N"]) -> UInt16[np.ndarray, "S"]:
    return np.flatnonzero(begins).astype(np.uint16)


class Split(NamedTuple):
    """Windows to train on, and windows of other documents to measure with."""

    train: MemoryWindows
    held_out: MemoryWindows


def prepare(
    documents: Iterable[Document],
    tokenizer: WordPieceTokenizer,
    *,
    length: int = 128,
    packing: Packing = "document",
    short_fraction: float = 0.0,
    held_out: float = 0.05,
    seed: int = 0,
) -> Split:
    """Makes windows of documents in memory (a million tokens take two megabytes).

    `held_out` is the fraction of documents to hold out from training (see `is_held_out`); the other arguments
    are those of `make_windows`.

    Raises:
        ValueError: If an argument is wrong, or no document is left to train on.
    """
    if not 0 <= held_out < 1:
        raise ValueError(f"held_out: got {held_out}, expected at least 0 and below 1")
    parts: tuple[list[Document], list[Document]] = ([], [])
    for document in documents:
        parts[is_held_out(document.text, held_out)].append(document)
    how = {"length": length, "packing": packing, "short_fraction": short_fraction, "seed": seed}
    kept = {"room": length - SPECIAL, "packing": packing, "vocabulary": tokenizer.fingerprint}
    made = [MemoryWindows(make_windows(part, tokenizer, **how), **kept) for part in parts]
    if not len(made[0]):
        raise ValueError(f"documents: got {len(parts[0])} to train on, without text; expected some text")
    return Split(*made)
