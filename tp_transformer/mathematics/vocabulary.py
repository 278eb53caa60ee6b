"""The characters of the Mathematics Dataset as token ids."""

import dataclasses
import functools
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Int32, UInt8

CHARACTERS = " !'()*+,-./0123456789:<=>?ACDEFGHILMPRSTWabcdefghijklmnopqrstuvwxyz{}"
"""The 69 characters that occur in questions and answers, in the order of their code points.

Every template and number format of the generator is covered; with padding, start and end they make the 72
symbols of the paper (appendix A and its footnote; Saxton et al. count all 95 printable ones).
"""

PAD, START, END = 0, 1, 2
"""Ids of padding, start and end in the vocabulary used by default."""

MAX_QUESTION = 160
"""Characters of the longest question (Saxton et al. 2019)."""

MAX_ANSWER = 30
"""Characters of the longest answer."""

_UNKNOWN = 255


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """A one-to-one map between characters and ids; padding, start and end have ids of their own.

    Sequences are written as in the paper's figure 2, questions too: start, the characters, end.
    """

    characters: str = CHARACTERS
    pad: int = PAD
    start: int = START
    end: int = END

    first: int = 3
    """Id of the first character; the others follow it."""

    def __post_init__(self):
        """Checks that no two symbols share an id."""
        if not self.characters or not self.characters.isascii() or "\n" in self.characters:
            raise ValueError(
                f"characters must be ASCII, without line breaks, and some; got {self.characters!r}"
            )
        if len(set(self.characters)) != len(self.characters):
            twice = sorted({c for c in self.characters if self.characters.count(c) > 1})
            raise ValueError(f"characters must differ; {twice} occur more than once")
        special = (self.pad, self.start, self.end)
        if len(set(special)) != 3 or min(special) < 0 or max(special) >= self.first:
            raise ValueError(
                f"pad, start and end must be three different ids below first={self.first}, got {special}"
            )
        if self.size > _UNKNOWN:
            raise ValueError(f"characters must leave all ids below {_UNKNOWN}, got {self.size} symbols")

    @classmethod
    def released(cls) -> "Vocabulary":
        """The 73 symbols of the authors' weights: an unknown symbol (0) that nothing is mapped to, then
        padding (1).

        The authors let torchtext number the symbols. It puts unknown, padding, start and end first and the
        characters after them by frequency; as their list names every character once, that is the order of
        code points. This follows from their code; the file with the numbers itself, `vocab.pt`, was not at
        hand.
        """
        return cls(CHARACTERS, pad=1, start=2, end=3, first=4)

    @property
    def size(self) -> int:
        """Number of ids, V."""
        return self.first + len(self.characters)

    @functools.cached_property
    def ids(self) -> UInt8[np.ndarray, "256"]:
        """The id of every byte; 255 for those outside the vocabulary."""
        table = np.full(256, _UNKNOWN, np.uint8)
        table[np.frombuffer(self.characters.encode("ascii"), np.uint8)] = np.arange(self.first, self.size)
        table.flags.writeable = False
        return table

    def encode(self, text: str) -> Int32[np.ndarray, "T"]:
        """A text as ids [len(text) + 2], with start before it and end behind.

        Raises:
            ValueError: a character is not in the vocabulary.
        """
        for position, character in enumerate(text):
            if character not in self.characters:
                raise ValueError(
                    f"text has {character!r} at position {position}, which is not in the vocabulary "
                    f"{self.characters!r}; text: {text[:80]!r}"
                )
        body = self.ids[np.frombuffer(text.encode("ascii"), np.uint8)]
        return np.concatenate([[self.start], body, [self.end]]).astype(np.int32)

    def encode_batch(self, texts: Sequence[str], length: int | None = None) -> Int32[np.ndarray, "B T"]:
        """Texts as rows of ids, padded behind their ends to a length T, by default the longest text's.

        Raises:
            ValueError: a text does not fit, or has a character outside the vocabulary.
        """
        lengths = np.fromiter(map(len, texts), np.int64, len(texts)) + 2
        longest = int(lengths.max(initial=2))
        length = longest if length is None else length
        if longest > length:
            raise ValueError(
                f"length must be at least {longest}, the longest text with its start and end, got {length}"
            )
        joined = "".join(texts)
        body = self.ids[np.frombuffer(joined.encode("ascii", "replace"), np.uint8)]
        if (body == _UNKNOWN).any() or not joined.isascii():
            for text in texts:
                self.encode(text)  # says which text and where
        ids = np.full((len(texts), length), self.pad, np.int32)
        ids[:, 0] = self.start
        place = np.arange(length)
        ids[place == lengths[:, None] - 1] = self.end
        # Rows one behind the other are in the order of the joined text.
        ids[(place > 0) & (place < lengths[:, None] - 1)] = body
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a row of ids [T]: from the start, if there is one, to the first end or padding.

        Raises:
            ValueError: an id stands for no character.
        """
        text = []
        for position, token in enumerate(map(int, ids)):
            if token == self.start and position == 0:
                continue
            if token in (self.end, self.pad):
                break
            if not 0 <= token < self.size:
                raise ValueError(f"ids has {token} at position {position}, expected 0 to {self.size - 1}")
            # What a model says need not be a text: a start symbol inside it is shown, never mistaken for one.
            text.append("\ufffd" if token < self.first else self.characters[token - self.first])
        return "".join(text)


DEFAULT = Vocabulary()
"""The paper's 72 symbols."""
