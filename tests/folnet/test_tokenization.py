"""WordPiece compared with its definition in plain Python, and invalid vocabularies."""

import itertools
import json
import pickle
import unicodedata
from collections import Counter
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import pytest
import tokenizers

from folnet.tokenization import WordPieceTokenizer, truncated
from folnet.wordpieces import MASK, SPECIAL_TOKENS, _repeated
from tests.folnet import small_tasks

TEXTS = [
    "The unaffable man doesn't RUN; he unaffably walks.",
    "naïve Ångström café — “quoted” … (brackets) [MASK] under_score a-b",
    "世界 says hello, and 東京 too",
    "tabs\tand\nlines\r\n and  no-break\u00a0space, soft\u00adhyphen, nul\x00 and \ufffd gone",
    "",
    "   ",
    "a" * 101 + " " + "a" * 100,
    "ﬁne ligature, İstanbul, Straße, ½ price $5 + 3^2 ~ `code` =|<>",
]


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer.train([*TEXTS, *TEXTS], 160)


def plain_words(text: str, lowercase: bool = True) -> list[str]:
    """Splits a text into words and punctuation marks, as BERT's paper and documentation define them."""
    cleaned = ""
    for c in text:
        category = unicodedata.category(c)
        if ord(c) in (0, 0xFFFD) or (category.startswith("C") and c not in "\t\n\r"):
            continue
        if 0x4E00 <= ord(c) <= 0x9FFF:
            cleaned += f" {c} "
        else:
            cleaned += " " if c in "\t\n\r" or category == "Zs" else c
    if lowercase:
        # The library strips accents first and lowercases then, so that a dotted capital I is an i.
        cleaned = "".join(c for c in unicodedata.normalize("NFD", cleaned) if unicodedata.category(c) != "Mn")
        cleaned = cleaned.lower()
    words = []
    for word in cleaned.split():
        current = ""
        for c in word:
            ascii_mark = (
                33 <= ord(c) <= 47 or 58 <= ord(c) <= 64 or 91 <= ord(c) <= 96 or 123 <= ord(c) <= 126
            )
            if ascii_mark or unicodedata.category(c).startswith("P"):
                words += [current, c] if current else [c]
                current = ""
            else:
                current += c
        words += [current] if current else []
    return words


def plain(text: str, vocabulary: set[str], lowercase: bool) -> list[str]:
    """Splits a text into pieces, as BERT's paper and documentation define them."""
    pieces = []
    for word in plain_words(text, lowercase):
        found, start = [], 0
        while start < len(word) and len(word) <= 100:
            for end in range(len(word), start, -1):
                if (piece := ("##" if start else "") + word[start:end]) in vocabulary:
                    break
            else:
                break
            found.append(piece)
            start = end
        pieces += found if start == len(word) else ["[UNK]"]
    return pieces


@pytest.mark.parametrize("lowercase", [True, False])
def test_pieces_are_those_of_the_definition(tokenizer, lowercase):
    """Greedy from the left, word by word; for training texts and others."""
    tokenizer = WordPieceTokenizer(tokenizer.vocabulary, lowercase=lowercase)
    rng = np.random.default_rng(0)
    letters = np.asarray(list("aehlnorstu  .,-'ABÉ世☃\t"))
    texts = [*TEXTS, *("".join(rng.choice(letters, 40)) for _ in range(50))]
    known = set(tokenizer.vocabulary)
    for text in texts:
        assert tokenizer.tokenize(text) == plain(text, known, lowercase), text
    assert any("[UNK]" in tokenizer.tokenize(text) for text in texts)
    ids = tokenizer.ids(texts)
    for text, row, found in zip(texts, ids, tokenizer.pieces(texts), strict=True):
        assert [tokenizer.vocabulary[number] for number in row] == tokenizer.tokenize(text)
        assert found.ids.tolist() == row


def test_offsets_are_characters_of_the_text(tokenizer):
    """Accents and characters outside the first plane do not shift them."""
    text = "Ångström 😀 unaffable, 世界"
    (found,) = tokenizer.pieces([text])
    assert found.offsets.shape == (len(found.ids), 2)
    previous = 0
    for number, (start, end) in zip(found.ids.tolist(), found.offsets.tolist(), strict=True):
        assert previous <= start < end <= len(text)
        piece = tokenizer.vocabulary[number].removeprefix("##")
        covered = unicodedata.normalize("NFD", text[start:end]).lower()
        covered = "".join(c for c in covered if unicodedata.category(c) != "Mn")
        assert piece in (covered, "[UNK]")
        previous = end
    empty = tokenizer.pieces([""])[0]
    assert empty.ids.shape == (0,)
    assert empty.offsets.shape == (0, 2)


def joined(texts, vocab_size: int) -> list[str]:
    """Learns a vocabulary by its definition, repeatedly merging the most frequent pair of neighbors.

    Among equally frequent pairs it takes the one whose pieces were added first.
    """
    counts = Counter(word for text in texts for word in plain_words(text))
    letters = sorted({c for word in counts for c in word})
    inside = sorted({c for word in counts for c in word[1:]})
    pieces = [*SPECIAL_TOKENS, *letters, *("##" + c for c in inside)]
    words = {word: [word[0], *("##" + c for c in word[1:])] for word in counts}
    while len(pieces) < vocab_size:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in counts.items():
            for pair in itertools.pairwise(words[word]):
                pairs[pair] += count
        rank = {piece: number for number, piece in enumerate(pieces)}
        best = min(pairs, key=lambda pair: (-pairs[pair], rank[pair[0]], rank[pair[1]]))
        if pairs[best] < 2:
            break
        new = best[0] + best[1].removeprefix("##")
        pieces += [] if new in rank else [new]
        for word, parts in words.items():
            place = 0
            while place + 1 < len(parts):
                if (parts[place], parts[place + 1]) == best:
                    parts[place : place + 2] = [new]
                place += 1
            words[word] = parts
    return pieces


def test_training_joins_the_most_frequent_pairs():
    """Compared with the definition in plain Python, piece by piece, for any order of the texts.

    The library alone gives a different vocabulary each time, since its hash tables have random seeds.
    """
    texts = [topics["assert"], topics["pass"], topics["break"]]
    expected = joined(texts, 220)
    assert len(expected) == 220
    for order in (texts, texts, texts[::-1]):
        assert list(WordPieceTokenizer.train(order, 220).vocabulary) == expected


def test_a_trained_vocabulary():
    """Special tokens, then characters, then pieces; the most frequent pair is merged first."""
    trained = WordPieceTokenizer.train(["abab abab ab", "abc"], 12)
    #  a: begins words; b, c continue them; then a + ##b is the most frequent pair (8 times).
    assert trained.vocabulary[:5] == SPECIAL_TOKENS
    assert trained.vocabulary[5:11] == ("a", "b", "c", "##a", "##b", "##c")
    assert trained.vocabulary[11] == "ab"
    assert trained.tokenize("ABAB abc") == ["ab", "##a", "##b", "ab", "##c"]
    rare = WordPieceTokenizer.train(["a bb cccc"], 20, max_alphabet=2)
    assert rare.tokenize("a") == ["[UNK]"]
    assert set(rare.vocabulary) >= {"b", "c"}
    equal = WordPieceTokenizer.train(["c a b"], 20, max_alphabet=2)  # the first of equally frequent ones
    assert set(equal.vocabulary) - set(SPECIAL_TOKENS) == {"a", "b"}
    with pytest.raises(ValueError, match=r"vocab_size: got 10, expected at least 11 .*"):
        WordPieceTokenizer.train(["abab abab ab", "abc"], 10)
    with pytest.raises(ValueError, match="texts: got no word"):
        WordPieceTokenizer.train(["  ", ""], 100)
    bad: dict[str, Any]
    for bad in ({"min_frequency": 0}, {"max_alphabet": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(bad))}: got 0, expected at least 1"):
            WordPieceTokenizer.train(["a"], 100, **bad)
    assert len(WordPieceTokenizer.train(["abab abab ab", "abc"], 11)) == 11
    assert "ab" in WordPieceTokenizer.train(["ab ab"], 50).vocabulary
    assert "ab" not in WordPieceTokenizer.train(["ab ab"], 50, min_frequency=3).vocabulary
    cased = WordPieceTokenizer.train(["Ab Ab"], 50, lowercase=False)
    assert "Ab" in cased.vocabulary
    assert not cased.lowercase


def test_words_are_passed_on_in_short_texts():
    """As often as counted, but never in one string that grows with the count."""
    texts = list(_repeated([("ab", 10_000), ("c", 1), ("d", 4096)]))
    assert " ".join(texts).split() == ["ab"] * 10_000 + ["c"] + ["d"] * 4096
    assert [len(text.split()) for text in texts] == [4096, 4096, 1808, 1, 4096]


def test_attributes(tokenizer):
    """Ids by name, starts of words, and the padded size."""
    for name in ("pad", "unk", "cls", "sep", "mask"):
        assert tokenizer.vocabulary[getattr(tokenizer, f"{name}_id")] == f"[{name.upper()}]"
    expected = [not piece.startswith("##") for piece in tokenizer.vocabulary]
    np.testing.assert_array_equal(tokenizer.starts_word, expected)
    ordinary = set(tokenizer.ordinary_ids.tolist())
    assert ordinary == set(range(len(tokenizer))) - set(tokenizer.special_ids.tolist())
    reserved = WordPieceTokenizer([*SPECIAL_TOKENS, "[unused0]", "a", "[unused", "##a"])
    assert reserved.ordinary_ids.tolist() == [6, 7, 8]
    marks = WordPieceTokenizer([*SPECIAL_TOKENS, "##", "##a", "#"])
    assert marks.starts_word.tolist() == [True] * 6 + [False, True]


@pytest.mark.parametrize(("size", "padded"), [(30522, 30528), (8, 16), (15, 16), (16, 24)])
def test_padded_size_is_the_released_one(size, padded):
    """(V // 8 + 1) * 8: a multiple of 8 grows by 8."""
    pieces = [*SPECIAL_TOKENS, *(f"p{number}" for number in range(size - len(SPECIAL_TOKENS)))]
    assert WordPieceTokenizer(pieces).padded_vocab_size == padded


def test_pairs_as_the_model_reads_them(tokenizer):
    """[CLS] A [SEP] B [SEP]; segment 1 for B and its [SEP]; padding has segment 0."""
    inputs = tokenizer(["the man", ""], ["he walks.", "run"], length=16)
    assert {array.shape for array in inputs} == {(2, 16)}
    for row, (first, second) in enumerate([("the man", "he walks."), ("", "run")]):
        pieces = ["[CLS]", *tokenizer.tokenize(first), "[SEP]", *tokenizer.tokenize(second), "[SEP]"]
        left = len(tokenizer.tokenize(first)) + 2
        assert len(pieces) < 16
        found = [tokenizer.vocabulary[number] for number in inputs.input_ids[row]]
        assert found == pieces + ["[PAD]"] * (16 - len(pieces))
        segments = [0] * left + [1] * (len(pieces) - left) + [0] * (16 - len(pieces))
        assert inputs.token_type_ids[row].tolist() == segments
        assert inputs.attention_mask[row].tolist() == [place < len(pieces) for place in range(16)]
    single = tokenizer(["the man", "he"])
    assert single.input_ids.shape == (2, 2 + len(tokenizer.tokenize("the man")))
    assert not single.token_type_ids.any()
    assert tokenizer([], length=5).input_ids.shape == (0, 5)
    assert tokenizer([]).input_ids.shape == (0, 2)
    # There is room for the special tokens alone, and for nothing else.
    for second, length in ((None, 2), (["he"], 3)):
        (row,) = tokenizer(["the man"], second, length=length).input_ids.tolist()
        assert row == [tokenizer.cls_id, *[tokenizer.sep_id] * (length - 1)]


def test_masks_in_a_text_are_special_only_when_asked_for(tokenizer):
    """A document about [MASK] must not contain masks."""
    text = f"the {MASK} walks{MASK}."
    assert tokenizer.mask_id not in tokenizer.ids([text])[0]
    (found,) = tokenizer.ids([text], special_tokens=True)
    (before, middle, after) = tokenizer.ids(["the", "walks", "."])
    assert found == [*before, tokenizer.mask_id, *middle, tokenizer.mask_id, *after]
    assert tokenizer([text], special_tokens=True).input_ids[0, 1:-1].tolist() == found
    second = tokenizer([""], [text], special_tokens=True)
    assert second.input_ids[0, 2:-1].tolist() == found


def test_the_longer_one_is_cut_first():
    """Compared with removing one token at a time."""
    for first, second, room in itertools.product(range(12), range(12), range(14)):
        a, b = first, second
        while a + b > room:
            if a > b:
                a -= 1
            else:
                b -= 1
        assert truncated(first, second, room) == (a, b)


def test_cut_texts_keep_their_beginnings(tokenizer):
    """The shape is the requested one."""
    inputs = tokenizer(["the man walks the man walks"], ["he"], length=8)
    pieces = tokenizer.tokenize("the man walks the man walks")
    kept = 8 - 3 - len(tokenizer.tokenize("he"))
    expected = ["[CLS]", *pieces[:kept], "[SEP]", *tokenizer.tokenize("he"), "[SEP]"]
    assert [tokenizer.vocabulary[number] for number in inputs.input_ids[0]] == expected
    assert inputs.attention_mask.all()


def test_decoding(tokenizer):
    """Ids become words, without special tokens."""
    inputs = tokenizer(["Hello, and the man"], ["he walks"], length=30)
    assert tokenizer.decode(inputs.input_ids[0]) == "hello, and the man he walks"
    shown = tokenizer.decode(inputs.input_ids[0], skip_special_tokens=False)
    assert shown.startswith("[CLS] hello, and the man [SEP] he walks [SEP] [PAD]")
    assert tokenizer.decode([tokenizer.unk_id, tokenizer.mask_id]) == "[UNK]"
    with pytest.raises(ValueError, match=rf"ids: got .{len(tokenizer)}., expected 0 to {len(tokenizer) - 1}"):
        tokenizer.decode([1, len(tokenizer)])


def test_saved_read_and_sent_to_another_process(tokenizer, tmp_path, monkeypatch):
    """The pieces are the same, and fingerprints distinguish vocabularies."""
    tokenizer.save(tmp_path / "vocab.txt")
    cased = WordPieceTokenizer.load(tmp_path / "vocab.txt", lowercase=False)
    for other in (WordPieceTokenizer.load(tmp_path / "vocab.txt"), pickle.loads(pickle.dumps(tokenizer))):
        assert other.vocabulary == tokenizer.vocabulary
        assert other.fingerprint == tokenizer.fingerprint
        assert other.ids(TEXTS) == tokenizer.ids(TEXTS)
    assert cased.fingerprint != tokenizer.fingerprint
    assert pickle.loads(pickle.dumps(cased)).fingerprint == cased.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["vocab.txt"]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert WordPieceTokenizer.load("~/vocab.txt").vocabulary == tokenizer.vocabulary


def test_lines_end_only_where_lines_end(tmp_path):
    """BERT's file has pieces that `splitlines` would split; Windows line ends are understood."""
    (tmp_path / "vocab.txt").write_bytes("\r\n".join([*SPECIAL_TOKENS, "a\x1cb", "ok", ""]).encode())
    # \x1c is a line end for `splitlines`, and white space for `split`: the file is refused for that, in its
    # line.
    with pytest.raises(ValueError, match=r"vocab.txt: line 6, 'a\\x1cb', contains a space"):
        WordPieceTokenizer.load(tmp_path / "vocab.txt")
    (tmp_path / "vocab.txt").write_bytes("\r\n".join([*SPECIAL_TOKENS, "ok", ""]).encode())
    assert WordPieceTokenizer.load(tmp_path / "vocab.txt").vocabulary == (*SPECIAL_TOKENS, "ok")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", r"vocab.txt: \[MASK\] is missing"),
        (b"[PAD]\na\n", r"\[UNK\], \[CLS\], \[SEP\], \[MASK\] are missing"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\na\n", r"vocab.txt: line 8, 'a', duplicates line 6"),
        (b"[PAD]\n[UNK]\n\n[CLS]\n[SEP]\n[MASK]\n", r"vocab.txt: line 3 is empty"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na b\n", r"vocab.txt: line 6, 'a b', contains a space"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n\xff\n", r"vocab.txt, line 6: not UTF-8"),
        (b"\n[PAD]\n\xff\n", r"vocab.txt, line 3: not UTF-8"),
        (b"\n" * 4, r"line 4 is empty; \[PAD\], .* are missing; expected a different piece"),
        (b"\n" * 5, r"line 5 is empty and 1 more; expected a different piece"),
        (b"", "line 1 is empty"),
    ],
)
def test_damaged_vocabularies(tmp_path, data, message):
    """The error gives the file, the line and the problem."""
    (tmp_path / "vocab.txt").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        WordPieceTokenizer.from_vocabulary(tmp_path / "vocab.txt")


def test_bad_arguments(tokenizer, tmp_path):
    """The error names the argument."""
    with pytest.raises(ValueError, match=r"path: got .*nothing.txt \(No such file.*\), expected a voc"):
        WordPieceTokenizer.from_vocabulary(tmp_path / "nothing.txt")
    with pytest.raises(ValueError, match="got a single string"):
        tokenizer("the man")
    for read in (tokenizer.ids, tokenizer.pieces, lambda text: WordPieceTokenizer.train(text, 100)):
        with pytest.raises(ValueError, match="texts: got a single string, expected a sequence of strings"):
            read("the man")
    with pytest.raises(ValueError, match="second: got 1 texts, expected 2 as in first"):
        tokenizer(["a", "b"], ["c"])
    with pytest.raises(ValueError, match="length: got 2, expected at least 3 for the special tokens"):
        tokenizer(["a"], ["c"], length=2)
    with pytest.raises(ValueError, match="second: got 0 rows, expected 1 as in first"):
        tokenizer.assemble([[7]], [], length=9)


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_directory_keeps_the_casing(lowercase, tmp_path):
    """So does a vocabulary alone, whose text is lowercased."""
    own = small_tasks.tokenizer(lowercase)
    own.save_pretrained(tmp_path)
    found = WordPieceTokenizer.from_pretrained(tmp_path)
    assert found.fingerprint == own.fingerprint
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert WordPieceTokenizer.from_pretrained(tmp_path).lowercase
    (tmp_path / "tokenizer_config.json").unlink()
    assert WordPieceTokenizer.from_pretrained(tmp_path).lowercase


def test_the_file_of_the_tokenizers_library_has_the_same_ids(tmp_path):
    """With the special tokens around one text and two."""
    own = small_tasks.tokenizer()
    own.save_pretrained(tmp_path)
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for first, second in (("The dog sat.", None), ("A cat ran", "She saw [MASK].")):
        found = library.encode(first, second)
        # A user's own "[MASK]" is text to the tokenizer here, and a special token to the library.
        inputs = own([first], second and [second.replace("[MASK]", "")], length=12)
        kept = [token for token in found.ids if token != own.mask_id]
        assert kept == inputs.input_ids[0][inputs.attention_mask[0]].tolist()
        assert found.ids.count(own.mask_id) == (second or first).count("[MASK]")


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "got a damaged file"), ('{"do_lower_case": 1}', "got do_lower_case 1, expected true or false")],
)
def test_damaged_settings_of_a_tokenizer(text, message, tmp_path):
    small_tasks.tokenizer().save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(text)
    with pytest.raises(ValueError, match=f"tokenizer_config.json: {message}"):
        WordPieceTokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize("closes", [True, False])
def test_texts_to_be_continued_have_no_segments_elsewhere(closes, tmp_path):
    """`transformers` takes the inputs of generation from the names here; other models read all three."""
    small_tasks.tokenizer().save_pretrained(tmp_path, closes=closes)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    names = None if closes else ["input_ids", "attention_mask"]
    assert settings.get("model_input_names") == names
