"""Learns a vocabulary of word pieces from text, for `tokenization.WordPieceTokenizer.train`."""

from collections import Counter
from collections.abc import Iterable, Iterator

import tokenizers

from folnet.settings import at_least

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""Tokens that every vocabulary contains."""

CONTINUATION = "##"
"""Prefix of a piece that continues a word."""

_REPEATED = 4096  # repetitions of a word in one string passed to the trainer


def several(**texts: Iterable[str] | None) -> None:
    """Raises ValueError, with its name, for a single string, which is a sequence of characters."""
    for name, given in texts.items():
        if isinstance(given, str):
            raise ValueError(f"{name}: got a single string, expected a sequence of strings")


def learned(
    texts: Iterable[str], vocab_size: int, *, min_frequency: int, max_alphabet: int, lowercase: bool
) -> list[str]:
    """Returns the pieces by id; `WordPieceTokenizer.train` documents the arguments and errors."""
    at_least(1, min_frequency=min_frequency, max_alphabet=max_alphabet)
    several(texts=texts)
    words = _count_words(texts, lowercase)
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    if not counts:
        raise ValueError("texts: got no word, expected at least one")
    kept = sorted(sorted(counts, key=lambda c: (-counts[c], c))[:max_alphabet])
    continued = {character for word in words for character in word[1:]}
    first = [*SPECIAL_TOKENS, *kept, *(CONTINUATION + c for c in kept if c in continued)]
    if vocab_size < len(first):
        raise ValueError(
            f"vocab_size: got {vocab_size}, expected at least {len(first)} for the special tokens and "
            "all characters (or a smaller max_alphabet)"
        )
    model = tokenizers.Tokenizer(tokenizers.models.WordPiece({}))
    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        show_progress=False,
        # Left to the library, the ids of characters follow a hash table, which differs between processes,
        # and ids break ties between equally frequent pairs. "Special" tokens have fixed ids.
        special_tokens=first,
        limit_alphabet=len(kept),
        initial_alphabet=kept,
        continuing_subword_prefix=CONTINUATION,
    )
    keep = set(kept)
    known = ((word, count) for word, count in sorted(words.items()) if keep.issuperset(word))
    model.train_from_iterator(_repeated(known), trainer)
    ids = model.get_vocab()
    return sorted(ids, key=ids.__getitem__)


def _count_words(texts: Iterable[str], lowercase: bool) -> Counter[str]:
    """Counts the words of texts."""
    normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    splitter = tokenizers.pre_tokenizers.BertPreTokenizer()
    words: Counter[str] = Counter()
    for text in texts:
        words.update(word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    return words


def _repeated(words: Iterable[tuple[str, int]]) -> Iterator[str]:
    """Yields words as often as counted, thousands per string, since the library does not accept counts."""
    for word, count in words:
        while count > 0:
            yield f"{word} " * min(count, _REPEATED)
            count -= _REPEATED
