"""BERT's word pieces (Devlin et al. 2018), with which FOLNet's checkpoints were trained.

    tokenizer = WordPieceTokenizer.from_vocabulary("vocab.txt")  # one of BERT's, or
    tokenizer = WordPieceTokenizer.train(texts, vocab_size=8000)  # learned from text
    inputs = tokenizer(["Socrates is a man."], ["Socrates is mortal."], length=32)
    model.apply({"params": params}, inputs.input_ids, inputs.token_type_ids, inputs.attention_mask)

Nothing is downloaded. A vocabulary is a text file with one piece per line; its id is the line number from 0.
"""

import functools
import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tokenizers
from jaxtyping import Bool, Int, Int32, Int64

from folnet import wordpieces
from folnet.wordpieces import CLS, CONTINUATION, SEP, SPECIAL_TOKENS, UNK, several
from logic_zoo import folders, hub
from logic_zoo.writing import write_whole

VOCABULARY_FILE, SETTINGS_FILE = "vocab.txt", "tokenizer_config.json"
"""Files of a tokenizer in a model's directory."""

_SPECIAL = re.compile("(" + "|".join(map(re.escape, SPECIAL_TOKENS)) + ")")


class Pieces(NamedTuple):
    """The pieces of one text without special tokens; N pieces."""

    ids: Int32[np.ndarray, "N"]
    offsets: Int64[np.ndarray, "N 2"]
    """Start and end of each piece in the text, in characters: `text[start:end]`."""


class Inputs(NamedTuple):
    """Model inputs: [CLS] first [SEP], or [CLS] first [SEP] second [SEP]; B texts, T tokens."""

    input_ids: Int32[np.ndarray, "B T"]
    token_type_ids: Int32[np.ndarray, "B T"]
    """1 in the second segment including its [SEP], 0 elsewhere, also at padding, as released."""
    attention_mask: Bool[np.ndarray, "B T"]
    """True at tokens, False at padding."""


class WordPieceTokenizer:
    """BERT's tokenizer.

    It cleans text, lowercases it and strips accents, splits it at spaces and punctuation, and splits each
    word from the left into the longest pieces of the vocabulary. V pieces, U of them ordinary.
    """

    def __init__(self, vocabulary: Sequence[str], *, lowercase: bool = True, name: str = "vocabulary"):
        """Builds a tokenizer from the pieces in the order of their ids.

        Args:
            vocabulary: the pieces.
            lowercase: whether to lowercase text and strip accents ("uncased"), as for FOLNet.
            name: name of the vocabulary in errors.

        Raises:
            ValueError: If a special token is missing, or a piece is empty, contains a space or is duplicated.
        """
        _check(vocabulary, name)
        self.vocabulary: tuple[str, ...] = tuple(vocabulary)
        """All pieces, by id."""
        self.lowercase = lowercase
        ids = {piece: number for number, piece in enumerate(self.vocabulary)}
        self.vocab_size = len(ids)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (ids[s] for s in SPECIAL_TOKENS)
        self._model = _model(ids, lowercase)

    @classmethod
    def from_vocabulary(cls, path: str | os.PathLike[str], *, lowercase: bool = True) -> "WordPieceTokenizer":
        """Reads a `vocab.txt`: UTF-8, one piece per line.

        Raises:
            ValueError: If the file is missing or damaged; names the file, the line and the problem.
        """
        path = Path(path).expanduser()
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ValueError(f"path: got {path} ({error.strerror}), expected a vocabulary file") from error
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            raise ValueError(f"{path}, line {line}: not UTF-8 ({error.reason})") from error
        # Only "\n" ends a line: BERT's own file contains other characters at which `splitlines` would split.
        return cls(
            text.replace("\r\n", "\n").removesuffix("\n").split("\n"), lowercase=lowercase, name=str(path)
        )

    load = from_vocabulary

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a `vocab.txt` atomically."""
        write_whole(path, "".join(f"{piece}\n" for piece in self.vocabulary))

    @classmethod
    def from_pretrained(
        cls, directory: str | os.PathLike[str], *, revision: str | None = None
    ) -> "WordPieceTokenizer":
        """Reads vocab.txt and the casing in tokenizer_config.json; without this file text is lowercased.

        The directory may be "user/model" on a hub, at a revision of it; see `logic_zoo.hub`.

        Raises:
            ValueError: If a file is missing or damaged; names the file and the problem.
        """
        path = hub.directory_of(directory, revision) / SETTINGS_FILE
        lowercase = True
        if path.exists():
            with folders.naming(path, "the settings of a tokenizer"):
                found = json.loads(path.read_text(encoding="utf-8"))
            lowercase = found.get("do_lower_case", True) if isinstance(found, dict) else None
            if not isinstance(lowercase, bool):
                raise ValueError(f"{path}: got do_lower_case {lowercase!r}, expected true or false")
        return cls.from_vocabulary(path.with_name(VOCABULARY_FILE), lowercase=lowercase)

    def save_pretrained(self, directory: str | os.PathLike[str], *, closes: bool = True) -> None:
        """Writes vocab.txt, tokenizer_config.json with the casing, and tokenizer.json.

        `transformers.AutoTokenizer` reads them, too. There, texts end with [SEP] if `closes`; those of a
        language model do not, since it continues them, and are padded at the start.
        """
        names = {f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS}
        settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": self.lowercase, **names}
        whole = tokenizers.Tokenizer.from_str(self._model.to_str())
        whole.add_special_tokens(list(SPECIAL_TOKENS))
        begin = (CLS, self.cls_id)
        whole.post_processor = tokenizers.processors.BertProcessing((SEP, self.sep_id), begin)
        if not closes:
            # Of BERT's own class, `transformers` would close them whatever tokenizer.json says.
            settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "padding_side": "left"}
            # `transformers` generates from all that a tokenizer returns; such a model then reads no segments.
            settings |= {"model_input_names": ["input_ids", "attention_mask"]}
            whole.post_processor = tokenizers.processors.TemplateProcessing(
                f"{CLS} $A", special_tokens=[begin]
            )
        self.save(Path(directory) / VOCABULARY_FILE)
        write_whole(Path(directory) / SETTINGS_FILE, json.dumps(settings, indent=2) + "\n")
        write_whole(Path(directory) / "tokenizer.json", whole.to_str(pretty=True))

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int,
        *,
        min_frequency: int = 2,
        max_alphabet: int = 1000,
        lowercase: bool = True,
    ) -> "WordPieceTokenizer":
        """Learns a vocabulary: special tokens, characters of the text, and merged pieces.

        The most frequent pair of neighbors is merged first, as in the `tokenizers` library; Google has not
        released the program that chose BERT's vocabulary by likelihood. The same texts give the same
        vocabulary, in any process and with any number of threads.

        Args:
            texts: training text; read once.
            vocab_size: maximum number of pieces, including special tokens.
            min_frequency: minimum frequency of a pair to be merged.
            max_alphabet: number of most frequent characters to keep; others become [UNK].
            lowercase: see `__init__`.

        Raises:
            ValueError: If a number is too small or the texts contain no word.
        """
        pieces = wordpieces.learned(
            texts, vocab_size, min_frequency=min_frequency, max_alphabet=max_alphabet, lowercase=lowercase
        )
        return cls(pieces, lowercase=lowercase)

    def __reduce__(self):
        """Pickles the pieces, from which another process rebuilds the tokenizer."""
        return functools.partial(type(self), lowercase=self.lowercase), (self.vocabulary,)

    def __len__(self) -> int:
        return self.vocab_size

    @property
    def padded_vocab_size(self) -> int:
        """Number of rows in the released embedding: the next multiple of 8 above the number of pieces."""
        return (self.vocab_size // 8 + 1) * 8

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of the vocabulary and the casing; ids of tokenizers with different hashes are unrelated."""
        content = "\n".join((*self.vocabulary, f"lowercase={self.lowercase}"))
        return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @functools.cached_property
    def special_ids(self) -> Int32[np.ndarray, "5"]:
        """The ids of the five special tokens."""
        return np.asarray([self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id], np.int32)

    @functools.cached_property
    def starts_word(self) -> Bool[np.ndarray, "V"]:
        """For each id, whether the piece begins a word; True for special tokens."""
        return np.asarray(
            [not piece.startswith(CONTINUATION) or piece == CONTINUATION for piece in self.vocabulary]
        )

    @functools.cached_property
    def ordinary_ids(self) -> Int32[np.ndarray, "U"]:
        """Ids that occur in text: all but special tokens and BERT's reserved `[unused...]`."""
        special = set(self.special_ids.tolist())
        ordinary = [
            number
            for number, piece in enumerate(self.vocabulary)
            if number not in special and not (piece.startswith("[unused") and piece.endswith("]"))
        ]
        return np.asarray(ordinary, np.int32)

    def tokenize(self, text: str) -> list[str]:
        """Returns the pieces of a text as strings, for inspection."""
        return self._model.encode(text).tokens

    def pieces(self, texts: Sequence[str]) -> list[Pieces]:
        """Returns pieces with their offsets, for tasks whose answers are spans; [MASK] is read as text.

        Raises:
            ValueError: If a single string is given.
        """
        several(texts=texts)
        return [
            Pieces(np.asarray(found.ids, np.int32), np.asarray(found.offsets, np.int64).reshape(-1, 2))
            for found in self._model.encode_batch(list(texts))
        ]

    def ids(self, texts: Sequence[str], *, special_tokens: bool = False) -> list[list[int]]:
        """Returns the ids of texts, without [CLS] and [SEP]; faster than `pieces`.

        With `special_tokens`, `[MASK]` and the like stand for special tokens, as in a sentence to complete.
        Do not set it for text from elsewhere.

        Raises:
            ValueError: If a single string is given.
        """
        several(texts=texts)
        if not special_tokens:
            return [found.ids for found in self._model.encode_batch_fast(list(texts))]
        parts = [_SPECIAL.split(text) for text in texts]  # text, token, text, token, ..., text
        between = iter(self.ids([part for some in parts for part in some[::2]]))
        rows = []
        for some in parts:
            row = list(next(between))
            for token in some[1::2]:
                row += [int(self.special_ids[SPECIAL_TOKENS.index(token)]), *next(between)]
            rows.append(row)
        return rows

    def __call__(
        self,
        first: Sequence[str],
        second: Sequence[str] | None = None,
        *,
        length: int | None = None,
        special_tokens: bool = False,
    ) -> Inputs:
        """Tokenizes texts or pairs of texts for the model.

        Args:
            first: B texts.
            second: texts that follow [SEP]; None for single texts.
            length: T, including special tokens; defaults to the longest text. Longer texts are truncated at
                their ends, the longer of a pair first.
            special_tokens: whether `[MASK]` in a text is the special token; see `ids`.

        Raises:
            ValueError: If a single string is given, `first` and `second` differ in number, or `length` is too
                small for the special tokens.
        """
        several(first=first, second=second)
        if second is not None and len(second) != len(first):
            raise ValueError(f"second: got {len(second)} texts, expected {len(first)} as in first")
        left = self.ids(first, special_tokens=special_tokens)
        right = None if second is None else self.ids(second, special_tokens=special_tokens)
        if length is None:
            behind = [0] * len(left) if right is None else [len(row) + 1 for row in right]
            length = 2 + max((len(row) + more for row, more in zip(left, behind, strict=True)), default=0)
        return self.assemble(left, right, length=length)

    def assemble(
        self,
        first: Sequence[Sequence[int] | np.ndarray],
        second: Sequence[Sequence[int] | np.ndarray] | None = None,
        *,
        length: int,
    ) -> Inputs:
        """Adds special tokens and padding to rows of ids; T = `length`.

        Raises:
            ValueError: If `length` is too small for the special tokens, or the numbers of rows differ.
        """
        special = 2 if second is None else 3
        if length < special:
            raise ValueError(f"length: got {length}, expected at least {special} for the special tokens")
        if second is not None and len(second) != len(first):
            raise ValueError(f"second: got {len(second)} rows, expected {len(first)} as in first")
        ids = np.full((len(first), length), self.pad_id, np.int32)
        segments = np.zeros_like(ids)
        mask = np.zeros(ids.shape, bool)
        for row, left in enumerate(first):
            right = () if second is None else second[row]
            keep = truncated(len(left), len(right), length - special)
            middle, end = keep[0] + 2, sum(keep) + special
            ids[row, 0], ids[row, middle - 1], ids[row, end - 1] = self.cls_id, self.sep_id, self.sep_id
            ids[row, 1 : middle - 1] = left[: keep[0]]
            ids[row, middle : middle + keep[1]] = right[: keep[1]]
            segments[row, middle:end] = 1
            mask[row, :end] = True
        return Inputs(ids, segments, mask)

    def decode(self, ids: Iterable[int] | Int[np.ndarray, "N"], *, skip_special_tokens: bool = True) -> str:
        """Converts ids to text: words separated by spaces, without the original case and accents.

        `skip_special_tokens` omits [PAD], [CLS], [SEP] and [MASK]; [UNK] remains, since it stands for a word.

        Raises:
            ValueError: If an id is not in the vocabulary.
        """
        found = [int(number) for number in ids]
        if wrong := [number for number in found if not 0 <= number < self.vocab_size]:
            raise ValueError(f"ids: got {wrong[:5]}, expected 0 to {self.vocab_size - 1}")
        if skip_special_tokens:
            left_out = {self.pad_id, self.cls_id, self.sep_id, self.mask_id}
            found = [number for number in found if number not in left_out]
        return self._model.decode(found, skip_special_tokens=False)


def truncated(first: int, second: int, room: int) -> tuple[int, int]:
    """Returns how many tokens of two segments to keep, truncating the longer one first, one token at a time.

    If both are equally long, the second is truncated first.
    """
    if first + second <= room:
        return first, second
    if first <= (room + 1) // 2:
        return first, room - first
    if second <= room // 2:
        return room - second, second
    return (room + 1) // 2, room // 2


def _check(vocabulary: Sequence[str], name: str) -> None:
    """Raises ValueError listing, by line, what is wrong with a list of pieces."""
    problems, seen = [], {}
    for line, piece in enumerate(vocabulary, start=1):
        if not piece.strip():
            problems.append(f"line {line} is empty")
        elif piece != "".join(piece.split()):
            problems.append(f"line {line}, {piece!r}, contains a space")
        elif piece in seen:
            problems.append(f"line {line}, {piece!r}, duplicates line {seen[piece]}")
        seen.setdefault(piece, line)
    if missing := [token for token in SPECIAL_TOKENS if token not in seen]:
        problems.append(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    if problems:
        more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise ValueError(f"{name}: {'; '.join(problems[:5])}{more}; expected a different piece on each line")


def _model(ids: dict[str, int], lowercase: bool) -> tokenizers.Tokenizer:
    model = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(
            ids, unk_token=UNK, max_input_chars_per_word=100, continuing_subword_prefix=CONTINUATION
        )
    )
    model.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    model.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    model.decoder = tokenizers.decoders.WordPiece(prefix=CONTINUATION)
    return model
