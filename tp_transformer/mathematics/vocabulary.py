"""The characters of the Mathematics Dataset as token ids."""

import dataclasses
import functools
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Int32, UInt8

CHARACTERS = " !'()*+,-./0123456789:<=>?ACDEFGHILMPRSTWabcdefghijklmnopqrstuvwxyz{}"
"""The 69 characters that occur in questions and answers, in the order of their code points.

They cover every template and number format of the generator; with padding, start and end they are the 72
symbols of the paper (appendix A and its footnote; Saxton et al. count all 95 printable characters).
"""

PAD, START, END = 0, 1, 2
"""Ids of padding, start and end in the default vocabulary."""

MAX_QUESTION = 160
"""Length of the longest question (Saxton et al. 2019)."""

MAX_ANSWER = 30
"""Length of the longest answer."""

_UNKNOWN = 255


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """One-to-one map between characters and ids, with separate ids for padding, start and end.

    Questions and answers are encoded as in the paper's figure 2: start, characters, end.
    """

    characters: str = CHARACTERS
    pad: int = PAD
    start: int = START
    end: int = END

    first: int = 3
    """Id of the first character; the other characters follow."""

    def __post_init__(self):
        """Raises ValueError unless all symbols have different ids."""
        if not self.characters or not self.characters.isascii() or "\n" in self.characters:
            raise ValueError(
                f"characters: got {self.characters!r}, expected one or more ASCII characters, no line breaks"
            )
        if len(set(self.characters)) != len(self.characters):
            twice = sorted({c for c in self.characters if self.characters.count(c) > 1})
            raise ValueError(f"characters: got {twice} more than once, expected different characters")
        special = (self.pad, self.start, self.end)
        if len(set(special)) != 3 or min(special) < 0 or max(special) >= self.first:
            raise ValueError(
                f"pad, start, end: got {special}, expected three different ids below first={self.first}"
            )
        if self.size > _UNKNOWN:
            raise ValueError(f"characters: got {self.size} symbols, expected all ids below {_UNKNOWN}")

    @classmethod
    def released(cls) -> "Vocabulary":
        """Returns the 73 symbols of the authors' weights; id 0 is an unused unknown symbol, 1 is padding.

        The authors let torchtext number the symbols. It puts unknown, padding, start and end first, followed
        by the characters by frequency; since their list contains every character once, the characters are in
        the order of code points. This is derived from their code; the file with the numbering, `vocab.pt`,
        was unavailable.
        """
        return cls(CHARACTERS, pad=1, start=2, end=3, first=4)

    @property
    def size(self) -> int:
        """Number of ids, V."""
        return self.first + len(self.characters)

    @functools.cached_property
    def ids(self) -> UInt8[np.ndarray, "256"]:
        """Id of every byte; 255 for bytes outside the vocabulary."""
        table = np.full(256, _UNKNOWN, np.uint8)
        table[np.frombuffer(self.characters.encode("ascii"), np.uint8)] = np.arange(self.first, self.size)
        table.flags.writeable = False
        return table

    def encode(self, text: str) -> Int32[np.ndarray, "T"]:
        """Encodes a text as T = len(text) + 2 ids: start, characters, end.

        Raises:
            ValueError: a character is not in the vocabulary.
        """
        for position, character in enumerate(text):
            if character not in self.characters:
                raise ValueError(
                    f"text: got {character!r} at position {position} of {text[:80]!r}, expected one of "
                    f"{self.characters!r}"
                )
        body = self.ids[np.frombuffer(text.encode("ascii"), np.uint8)]
        return np.concatenate([[self.start], body, [self.end]]).astype(np.int32)

    def encode_batch(self, texts: Sequence[str], length: int | None = None) -> Int32[np.ndarray, "B T"]:
        """Encodes texts as rows of ids, padded to length T, by default that of the longest text.

        Raises:
            ValueError: a text is too long, or has a character outside the vocabulary.
        """
        lengths = np.fromiter(map(len, texts), np.int64, len(texts)) + 2
        longest = int(lengths.max(initial=2))
        length = longest if length is None else length
        if longest > length:
            raise ValueError(
                f"length: got {length}, expected at least {longest}, the longest text with start and end"
            )
        joined = "".join(texts)
        body = self.ids[np.frombuffer(joined.encode("ascii", "replace"), np.uint8)]
        if (body == _UNKNOWN).any() or not joined.isascii():
            for text in texts:
                self.encode(text)  # raises with the text and position
        ids = np.full((len(texts), length), self.pad, np.int32)
        ids[:, 0] = self.start
        place = np.arange(length)
        ids[place == lengths[:, None] - 1] = self.end
        # Boolean indexing fills row by row, which is the order of the joined text.
        ids[(place > 0) & (place < lengths[:, None] - 1)] = body
        return ids

    def decode(self, ids: Iterable[int | np.integer]) -> str:
        """Decodes a row of ids [T], from an optional start symbol to the first end or padding symbol.

        Raises:
            ValueError: an id is out of range.
        """
        text = []
        for position, token in enumerate(map(int, ids)):
            if token == self.start and position == 0:
                continue
            if token in (self.end, self.pad):
                break
            if not 0 <= token < self.size:
                raise ValueError(f"ids: got {token} at position {position}, expected 0 to {self.size - 1}")
            # Models may output special symbols inside an answer; they are shown as U+FFFD, never as a
            # character.
            text.append("\ufffd" if token < self.first else self.characters[token - self.first])
        return "".join(text)


DEFAULT = Vocabulary()
"""The paper's 72 symbols."""
