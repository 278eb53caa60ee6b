"""The characters of the Mathematics Dataset as token ids."""

import dataclasses
import functools
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from jaxtyping import Int32, UInt8

from logic_zoo import folders, hub
from logic_zoo.writing import write_whole

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

VOCABULARY_FILE = "vocabulary.json"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
"""What `Vocabulary.save_tokenizer` writes."""

INFERRED = (
    "The ids of the authors' weights are inferred, because vocab.pt, the file with their numbering, was "
    "unavailable. Evidence: their embedding has 73 rows (49,178,624 parameters in all), which are the 69 "
    "characters of the data, padding, start and end (the paper's 72 symbols, appendix A), and an unknown "
    "symbol; their code lets torchtext number the symbols, which puts unknown, padding, start and end first, "
    "then the characters by frequency; and their list has every character once, so that ties leave the order "
    "of code points. With another numbering hardly any answer would be right, which an evaluation shows."
)
"""What is known about `Vocabulary.released`."""

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

    note: str = dataclasses.field(default="", compare=False)
    """What is known about where the ids come from; "" for those of this package."""

    def __post_init__(self):
        """Raises ValueError unless all symbols have different ids."""
        if not self.characters or not self.characters.isascii() or "\n" in self.characters:
            raise ValueError(
                f"characters: got {self.characters!r}, expected one or more ASCII characters, no line breaks"
            )
        if len(set(self.characters)) != len(self.characters):
            twice = sorted({c for c in self.characters if self.characters.count(c) > 1})
            raise ValueError(f"characters: got {twice} more than once, expected different characters")
        special = tuple(self.special_ids.values())
        if len(set(special)) != 3 or min(special) < 0 or max(special) >= self.first:
            raise ValueError(
                f"pad, start, end: got {special}, expected three different ids below first={self.first}"
            )
        if self.size > _UNKNOWN:
            raise ValueError(f"characters: got {self.size} symbols, expected all ids below {_UNKNOWN}")

    @classmethod
    def released(cls) -> "Vocabulary":
        """Returns the 73 symbols of the authors' weights; id 0 is an unused unknown symbol, 1 is padding.

        The ids are inferred: `INFERRED`, which is also the `note` of the result, has the evidence.
        """
        return cls(CHARACTERS, pad=1, start=2, end=3, first=4, note=INFERRED)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes vocabulary.json; creates the directory if it does not exist."""
        write_whole(Path(directory) / VOCABULARY_FILE, json.dumps(dataclasses.asdict(self), indent=2) + "\n")

    def save_tokenizer(self, directory: str | os.PathLike[str]) -> None:
        """Writes the map as a tokenizer of `transformers`, and with which ids its models generate.

        The files are tokenizer.json, tokenizer_config.json and generation_config.json. A character without an
        id is an error there, too.
        """
        special = {"pad": "[PAD]", "start": "[START]", "end": "[END]"}
        ids = {special[name]: number for name, number in self.special_ids.items()}
        every = ids | {character: self.first + place for place, character in enumerate(self.characters)}
        tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(every))
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("."), "isolated")
        tokenizer.decoder = tokenizers.decoders.Fuse()
        tokenizer.add_special_tokens(list(ids))
        begin, finish = special["start"], special["end"]
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            f"{begin} $A {finish}", special_tokens=[(begin, ids[begin]), (finish, ids[finish])]
        )
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": begin,
            "eos_token": finish,
            "pad_token": special["pad"],
            "model_input_names": ["input_ids", "attention_mask"],
            "clean_up_tokenization_spaces": False,
        }
        generation = {
            "decoder_start_token_id": self.start,
            "eos_token_id": self.end,
            "pad_token_id": self.pad,
            "max_new_tokens": MAX_ANSWER + 1,
        }
        texts = (
            tokenizer.to_str(pretty=True),
            *(json.dumps(content, indent=2) + "\n" for content in (settings, generation)),
        )
        for name, text in zip(TOKENIZER_FILES, texts, strict=True):
            write_whole(Path(directory) / name, text)

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> "Vocabulary":
        """Reads vocabulary.json, which `save` wrote, in a directory or of "user/model" on a hub.

        Raises:
            ValueError: the file is missing, damaged, or has no valid vocabulary; names the file.
        """
        path = hub.directory_of(directory) / VOCABULARY_FILE
        with folders.naming(path, "a vocabulary"):
            found = json.loads(path.read_text(encoding="utf-8"))
        fields = {field.name: type(field.default) for field in dataclasses.fields(cls)}
        if not isinstance(found, dict) or {name: type(value) for name, value in found.items()} != fields:
            names = ", ".join(f"{name} ({kind.__name__})" for name, kind in fields.items())
            raise ValueError(f"{path}: got {found!r:.80}, expected an object with {names}")
        try:
            return cls(**found)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @property
    def special_ids(self) -> dict[str, Any]:
        """The ids of padding, start and end by name, which are also fields of the models."""
        return {"pad": self.pad, "start": self.start, "end": self.end}

    @property
    def size(self) -> int:
        """Number of ids, V."""
        return self.first + len(self.characters)

    def rows_in(self, other: "Vocabulary") -> Int32[np.ndarray, "V"]:
        """Returns, for each id, that of the same symbol in another vocabulary; -1 where it has none.

        `table[own.rows_in(other)]` is a table of the other's symbols in the order of ours, if it has all. Ids
        below `first` other than padding, start and end are no symbol.
        """
        rows = np.full(self.size, -1, np.int32)
        for name, symbol in self.special_ids.items():
            rows[symbol] = other.special_ids[name]
        for place, character in enumerate(self.characters):
            if (found := other.characters.find(character)) >= 0:
                rows[self.first + place] = other.first + found
        return rows

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
