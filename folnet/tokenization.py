"""Text to word pieces as BERT has them (Devlin et al. 2018), which FOLNet's checkpoints were trained with.

    tokenizer = WordPieceTokenizer.from_vocabulary("vocab.txt")  # one of BERT's, or
    tokenizer = WordPieceTokenizer.train(texts, vocab_size=8000)  # one of the text at hand
    inputs = tokenizer(["Socrates is a man."], ["Socrates is mortal."], length=32)
    model.apply({"params": params}, inputs.input_ids, inputs.token_type_ids, inputs.attention_mask)

Nothing is downloaded: a vocabulary is a text file with a piece on each line, the line's number is its id.
"""

import functools
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tokenizers
from jaxtyping import Bool, Int32, Int64

from folnet.settings import at_least
from folnet.writing import write_whole

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""What every vocabulary has."""

CONTINUATION = "##"
"""Begins a piece that goes on with a word."""

_SPECIAL = re.compile("(" + "|".join(map(re.escape, SPECIAL_TOKENS)) + ")")
_REPEATED = 4096  # the same word in one string given to the trainer


class Pieces(NamedTuple):
    """One text, without special tokens. N pieces."""

    ids: Int32[np.ndarray, "N"]
    offsets: Int64[np.ndarray, "N 2"]
    """Where a piece begins and ends in the text, in characters: `text[start:end]`."""


class Inputs(NamedTuple):
    """What the model reads: [CLS] first [SEP], or [CLS] first [SEP] second [SEP]. B texts, T tokens."""

    input_ids: Int32[np.ndarray, "B T"]
    token_type_ids: Int32[np.ndarray, "B T"]
    """1 in the second segment with the [SEP] behind it, 0 elsewhere, so also in the padding, as released."""
    attention_mask: Bool[np.ndarray, "B T"]
    """True at tokens, False at padding."""


class WordPieceTokenizer:
    """BERT's tokenizer: text is cleaned, lowercased and stripped of accents, cut at spaces and punctuation,
    and each word is cut from the left into the longest pieces of the vocabulary.
    """

    def __init__(self, vocabulary: Sequence[str], *, lowercase: bool = True, name: str = "vocabulary"):
        """Takes the pieces in the order of their ids.

        Args:
            vocabulary: the pieces.
            lowercase: whether text is lowercased and stripped of accents ("uncased"), as for FOLNet.
            name: what an error calls the vocabulary.

        Raises:
            ValueError: a special token is not there, or a piece is empty, has a space or is there twice.
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
        """Reads a `vocab.txt`: UTF-8, a piece on each line.

        Raises:
            ValueError: there is no such file, or it is damaged: the file, the line and what is wrong.
        """
        path = Path(path).expanduser()
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ValueError(f"path must be a vocabulary file, got {path}: {error.strerror}") from error
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise ValueError(f"{path}, line {line}: not UTF-8 ({error.reason})") from error
        # Only "\n" ends a line: BERT's own file has other characters that `splitlines` would take for ends.
        return cls(
            text.replace("\r\n", "\n").removesuffix("\n").split("\n"), lowercase=lowercase, name=str(path)
        )

    load = from_vocabulary

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a `vocab.txt`, whole or not at all."""
        write_whole(path, "".join(f"{piece}\n" for piece in self.vocabulary))

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
        """Makes a vocabulary: the special tokens, the characters of the text, and pieces joined from them,
        the most frequent pair of neighbours first.

        This is how the `tokenizers` library does it; Google has not released the program that chose BERT's
        own vocabulary by likelihood. The same texts give the same vocabulary, in any process and with any
        number of threads.

        Args:
            texts: what to learn from; read once.
            vocab_size: pieces at most, with the special ones; fewer if the text does not have more.
            min_frequency: a pair that is there less often is not joined.
            max_alphabet: keeps the most frequent characters; the others become [UNK].
            lowercase: as above.

        Raises:
            ValueError: a number is too small, or the texts have no word.
        """
        at_least(1, min_frequency=min_frequency, max_alphabet=max_alphabet)
        words = _count_words(texts, lowercase)
        counts: Counter[str] = Counter()
        for word, count in words.items():
            for character in word:
                counts[character] += count
        if not counts:
            raise ValueError("texts must have at least one word, got none")
        kept = sorted(sorted(counts, key=lambda c: (-counts[c], c))[:max_alphabet])
        continued = {character for word in words for character in word[1:]}
        first = [*SPECIAL_TOKENS, *kept, *(CONTINUATION + c for c in kept if c in continued)]
        if vocab_size < len(first):
            raise ValueError(
                f"vocab_size must be at least {len(first)} for the special tokens and all characters, "
                f"got {vocab_size}; or take a smaller max_alphabet"
            )
        model = tokenizers.Tokenizer(tokenizers.models.WordPiece({}, unk_token=UNK))
        model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        trainer = tokenizers.trainers.WordPieceTrainer(
            vocab_size=vocab_size,
            min_frequency=min_frequency,
            show_progress=False,
            # The library would give characters their ids in the order of a hash table, which differs from
            # process to process, and ids decide between equally frequent pairs. Given as "special" tokens
            # they have theirs beforehand.
            special_tokens=first,
            limit_alphabet=len(kept),
            initial_alphabet=kept,
            continuing_subword_prefix=CONTINUATION,
        )
        keep = set(kept)
        known = ((word, count) for word, count in sorted(words.items()) if keep.issuperset(word))
        model.train_from_iterator(_repeated(known), trainer)
        ids = model.get_vocab()
        return cls(sorted(ids, key=ids.__getitem__), lowercase=lowercase)

    def __reduce__(self):
        """Sent to another process as its pieces."""
        return functools.partial(type(self), lowercase=self.lowercase), (self.vocabulary,)

    def __len__(self) -> int:
        return self.vocab_size

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the released embedding: the next multiple of 8 above the number of pieces."""
        return (self.vocab_size // 8 + 1) * 8

    @functools.cached_property
    def fingerprint(self) -> str:
        """A short name of the vocabulary and of how text is cut: ids of another one mean something else."""
        told = "\n".join((*self.vocabulary, f"lowercase={self.lowercase}"))
        return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @functools.cached_property
    def special_ids(self) -> Int32[np.ndarray, "5"]:
        """The ids of the special tokens."""
        return np.asarray([self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id], np.int32)

    @functools.cached_property
    def starts_word(self) -> Bool[np.ndarray, "V"]:
        """By id: whether a piece begins a word. Special tokens do."""
        return np.asarray(
            [not piece.startswith(CONTINUATION) or piece == CONTINUATION for piece in self.vocabulary]
        )

    @functools.cached_property
    def ordinary_ids(self) -> Int32[np.ndarray, "U"]:
        """The pieces of text: all but the special tokens and BERT's places in reserve, `[unused...]`."""
        special = set(self.special_ids.tolist())
        ordinary = [
            number
            for number, piece in enumerate(self.vocabulary)
            if number not in special and not (piece.startswith("[unused") and piece.endswith("]"))
        ]
        return np.asarray(ordinary, np.int32)

    def tokenize(self, text: str) -> list[str]:
        """The pieces of a text, to be looked at."""
        return self._model.encode(text, add_special_tokens=False).tokens

    def pieces(self, texts: Sequence[str]) -> list[Pieces]:
        """Pieces and where they stand, for tasks that answer with a part of the text; [MASK] is text."""
        return [
            Pieces(np.asarray(found.ids, np.int32), np.asarray(found.offsets, np.int64).reshape(-1, 2))
            for found in self._model.encode_batch(list(texts), add_special_tokens=False)
        ]

    def ids(self, texts: Sequence[str], *, special_tokens: bool = False) -> list[list[int]]:
        """The ids of some texts, without [CLS] and [SEP]; faster than `pieces`.

        With `special_tokens`, `[MASK]` and the like in a text mean the special token, as in a sentence to be
        filled in. In text from elsewhere they should not.
        """
        if not special_tokens:
            plain = self._model.encode_batch_fast(list(texts), add_special_tokens=False)
            return [found.ids for found in plain]
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
        """Texts, or pairs of texts, as the model reads them.

        Args:
            first: texts, B of them.
            second: what stands behind [SEP]; none for single texts.
            length: tokens with the special ones, T; by default those of the longest. Longer texts are cut
                at their ends, the longer of a pair first.
            special_tokens: whether `[MASK]` in a text is the special token; see `ids`.

        Raises:
            ValueError: a single string is given, there are not as many second texts as first ones, or
                `length` has no room for the special tokens.
        """
        if isinstance(first, str) or isinstance(second, str):
            raise ValueError("first and second must be sequences of strings, got a single string")
        if second is not None and len(second) != len(first):
            raise ValueError(f"second must have as many texts as first, got {len(second)} and {len(first)}")
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
        """Ids without special tokens as the model reads them, T = `length` tokens in all.

        Raises:
            ValueError: `length` has no room for the special tokens, or the numbers of rows differ.
        """
        special = 2 if second is None else 3
        if length < special:
            raise ValueError(f"length must be at least {special} for the special tokens, got {length}")
        if second is not None and len(second) != len(first):
            raise ValueError(f"second must have as many rows as first, got {len(second)} and {len(first)}")
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

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """Text again: words with a space between them; what was uppercase or had accents is so no more.

        `skip_special_tokens` leaves out [PAD], [CLS], [SEP] and [MASK]; an [UNK] stays, something was there.

        Raises:
            ValueError: an id is not in the vocabulary.
        """
        found = [int(number) for number in ids]
        if wrong := [number for number in found if not 0 <= number < self.vocab_size]:
            raise ValueError(f"ids must be in 0 .. {self.vocab_size - 1}, got {wrong[:5]}")
        if skip_special_tokens:
            left_out = {self.pad_id, self.cls_id, self.sep_id, self.mask_id}
            found = [number for number in found if number not in left_out]
        return self._model.decode(found, skip_special_tokens=False)


def truncated(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens of two segments are kept in a room when the longer one is cut first, one at a time.

    Of two equally long ones the second is cut first.
    """
    if first + second <= room:
        return first, second
    if first <= (room + 1) // 2:
        return first, room - first
    if second <= room // 2:
        return room - second, second
    return (room + 1) // 2, room // 2


def _check(vocabulary: Sequence[str], name: str) -> None:
    """All that can be wrong with a list of pieces, by line."""
    problems, seen = [], {}
    for line, piece in enumerate(vocabulary, start=1):
        if not piece.strip():
            problems.append(f"line {line} is empty")
        elif piece != "".join(piece.split()):
            problems.append(f"line {line}, {piece!r}, has a space")
        elif piece in seen:
            problems.append(f"line {line}, {piece!r}, is also line {seen[piece]}")
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


def _count_words(texts: Iterable[str], lowercase: bool) -> Counter[str]:
    """How often each word is there."""
    normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    splitter = tokenizers.pre_tokenizers.BertPreTokenizer()
    words: Counter[str] = Counter()
    for text in texts:
        words.update(word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    return words


def _repeated(words: Iterable[tuple[str, int]]) -> Iterator[str]:
    """Words as often as they were counted, some thousands in one string: the library takes no counts."""
    for word, count in words:
        while count > 0:
            yield f"{word} " * min(count, _REPEATED)
            count -= _REPEATED
