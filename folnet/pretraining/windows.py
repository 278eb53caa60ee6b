"""Documents to windows: runs of tokens that fill an example, before anything random is done to them.

A window is what is prepared once. Where it is cut in two, what follows it, whether the halves are swapped and
which tokens are masked is drawn when it is used, anew in each epoch.
"""

import abc
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, UInt16

from folnet.pretraining.documents import Document, is_held_out, sentences
from folnet.tokenization import WordPieceTokenizer

PACKINGS = ("document", "sentences", "corpus")
"""How windows are filled.

- `document`: full windows of one document; a sentence that does not fit goes on in the next one; only a
  document's last window is shorter.
- `sentences`: whole sentences of one document, as many as fit; the rest will be padding. Only a sentence
  longer than a window is cut.
- `corpus`: documents run on one after the other, [SEP] between them, and every window is full: no padding.
"""

SPECIAL = 3
"""Special tokens of an example, for which a window leaves room: [CLS] and two [SEP]."""

_SENTENCES = 1024  # tokenized at once: a document may be a library

MAX_VOCABULARY = 2**16
"""Windows keep ids in two bytes."""


class Window(NamedTuple):
    """Consecutive tokens. N of them, S sentences begin among them."""

    tokens: UInt16[np.ndarray, "N"]
    """Ids; without special tokens, but for the [SEP] between documents and [UNK]."""

    starts: UInt16[np.ndarray, "S"]
    """Where sentences begin; the first need not be 0."""

    place: int
    """Which of its document's windows it is; they stand one after the other."""

    count: int
    """How many windows its document has; 0 if it may have parts of several documents."""


class Windows(abc.ABC):
    """Windows that can be read in any order."""

    room: int
    """Tokens of the longest possible one."""

    packing: str
    """How they were filled; one of `PACKINGS`."""

    vocabulary: str
    """The `fingerprint` of the tokenizer that made the tokens."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Number of windows."""

    @abc.abstractmethod
    def take(self, indices: Sequence[int]) -> list[Window]:
        """Some of them; raises ValueError if one is damaged: the file, the record and what is wrong."""


class MemoryWindows(Windows):
    """Windows in memory, in a few arrays."""

    def __init__(self, windows: Iterable[Window], *, room: int, packing: str, vocabulary: str):
        """Takes them, all of a document together and in their order."""
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
        """Tokens of all windows."""
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
    """Raises ValueError, with what was expected, for wrong arguments of `make_windows`."""
    if packing not in PACKINGS:
        raise ValueError(f"packing must be one of {', '.join(PACKINGS)}, got {packing!r}")
    if not SPECIAL + 2 <= length < 2**16:
        raise ValueError(f"length must be in {SPECIAL + 2} .. {2**16 - 1} tokens, got {length}")
    if not 0 <= short_fraction <= 1:
        raise ValueError(f"short_fraction must be in 0 .. 1, got {short_fraction}")
    if short_fraction and packing == "corpus":
        raise ValueError("short_fraction must be 0 where packing is 'corpus', whose windows are all full")
    if vocab_size > MAX_VOCABULARY:
        raise ValueError(f"tokenizer must have at most {MAX_VOCABULARY} pieces, got {vocab_size}")


def make_windows(
    documents: Iterable[Document],
    tokenizer: WordPieceTokenizer,
    *,
    length: int = 128,
    packing: str = "document",
    short_fraction: float = 0.0,
    seed: int = 0,
) -> Iterator[Window]:
    """Cuts documents into windows.

    Args:
        documents: the texts.
        tokenizer: makes tokens of them.
        length: tokens of an example with its special tokens, T; a window has at most T - 3.
        packing: see `PACKINGS`.
        short_fraction: of the windows, how many are made shorter, of a length drawn evenly, as BERT's are in
            one case of ten; a function of the seed and the text.
        seed: of those.

    Yields:
        The windows, all of a document together. A rest of a single token is dropped.

    Raises:
        ValueError: an argument is wrong.
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
    """A document's tokens, and whether a sentence begins at each."""
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
    """Full windows across documents; the last may be shorter."""
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
    """Windows to learn from, and windows of other documents to measure with."""

    train: MemoryWindows
    held_out: MemoryWindows


def prepare(
    documents: Iterable[Document],
    tokenizer: WordPieceTokenizer,
    *,
    length: int = 128,
    packing: str = "document",
    short_fraction: float = 0.0,
    held_out: float = 0.05,
    seed: int = 0,
) -> Split:
    """Makes windows of documents in memory, for what fits there (a million tokens take two megabytes).

    `held_out` is how many of the documents are kept from training (see `is_held_out`); the other arguments
    are those of `make_windows`.

    Raises:
        ValueError: an argument is wrong, or no document is left to train on.
    """
    if not 0 <= held_out < 1:
        raise ValueError(f"held_out must be a fraction in 0 .. 1, got {held_out}")
    parts: tuple[list[Document], list[Document]] = ([], [])
    for document in documents:
        parts[is_held_out(document.text, held_out)].append(document)
    how = {"length": length, "packing": packing, "short_fraction": short_fraction, "seed": seed}
    kept = {"room": length - SPECIAL, "packing": packing, "vocabulary": tokenizer.fingerprint}
    made = [MemoryWindows(make_windows(part, tokenizer, **how), **kept) for part in parts]
    if not len(made[0]):
        raise ValueError(f"documents must have some text to train on, got {len(parts[0])} documents for that")
    return Split(*made)
