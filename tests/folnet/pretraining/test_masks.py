"""Masks: their statistics and their invariants."""

import numpy as np
import pytest
from scipy import stats

from folnet.pretraining.masks import Masking, max_predictions
from folnet.tokenization import SPECIAL_TOKENS, WordPieceTokenizer

ROWS, LENGTH = 3000, 48
LEAST_P = 1e-4  # of a test of a true hypothesis; the draws are fixed, so it holds always or never


@pytest.fixture(scope="module")
def tokenizer():
    """Makes 300 pieces, a third of which continue a word, and two reserved ones."""
    pieces = [("##" if number % 3 == 2 else "") + f"p{number}" for number in range(300)]
    return WordPieceTokenizer([*SPECIAL_TOKENS, "[unused0]", "[unused1]", *pieces])


@pytest.fixture(scope="module")
def examples(tokenizer):
    """Makes examples of all lengths: [CLS], pieces with an occasional [UNK], [SEP], padding."""
    rng = np.random.default_rng(0)
    ids = np.full((ROWS, LENGTH), tokenizer.pad_id, np.int32)
    ids[:, 0] = tokenizer.cls_id
    for row in range(ROWS):
        size = rng.integers(0, LENGTH - 1)
        body = rng.choice(tokenizer.ordinary_ids, size)
        body[rng.random(size) < 0.05] = tokenizer.unk_id
        ids[row, 1 : 1 + size] = body
        ids[row, 1 + size] = tokenizer.sep_id
    return ids


@pytest.fixture(scope="module", params=[False, True], ids=["tokens", "words"])
def masked(request, tokenizer, examples):
    draws = np.random.default_rng(1).random((ROWS, 3, LENGTH))
    masking = Masking(0.15, 20, request.param)
    return masking, masking(examples, draws, tokenizer), draws


def chosen_tokens(result):
    """Returns row, position and label of all predictions."""
    rows, places = np.nonzero(result.labels >= 0)
    return rows, result.positions[rows, places], result.labels[rows, places]


def test_labels_are_the_text(masked, examples):
    """A label is the original token at its position; other tokens are unchanged; positions increase."""
    _, result, _ = masked
    rows, positions, labels = chosen_tokens(result)
    np.testing.assert_array_equal(labels, examples[rows, positions])
    elsewhere = np.ones_like(examples, bool)
    elsewhere[rows, positions] = False
    np.testing.assert_array_equal(result.input_ids[elsewhere], examples[elsewhere])
    same_row = rows[1:] == rows[:-1]
    assert (np.diff(positions)[same_row] > 0).all()
    unused = result.labels < 0
    assert (result.labels[unused] == -1).all()
    assert (result.positions[unused] == 0).all()
    counts = (~unused).sum(axis=1)
    assert all((~unused[row, :count]).all() for row, count in enumerate(counts))
    assert result.labels.shape == result.positions.shape == (ROWS, 20)
    assert {array.dtype for array in result} == {np.dtype(np.int32)}


def test_no_special_token_is_asked_for_or_put_in(masked, tokenizer, examples):
    """Nor a reserved one."""
    _, result, _ = masked
    rows, positions, labels = chosen_tokens(result)
    assert not np.isin(labels, tokenizer.special_ids).any()
    seen = result.input_ids[rows, positions]
    assert set(np.unique(seen)) <= {tokenizer.mask_id, *tokenizer.ordinary_ids.tolist()}


def test_how_many(masked, tokenizer, examples):
    """round(15 %) of each example's pieces, at least one; with whole words at most that."""
    masking, result, _ = masked
    pieces = (~np.isin(examples, tokenizer.special_ids)).sum(axis=1)
    wanted = np.where(pieces > 0, np.maximum(1, [round(0.15 * n) for n in pieces]), 0)
    found = (result.labels >= 0).sum(axis=1)
    if masking.whole_words:
        assert (found <= wanted).all()
        # Some word or other fits nearly always.
        assert (found == wanted)[pieces > 5].mean() > 0.95
    else:
        np.testing.assert_array_equal(found, wanted)


def test_80_10_10(masked, tokenizer):
    """A chi-squared test of the three cases; a random piece may equal the original."""
    _, result, _ = masked
    rows, positions, labels = chosen_tokens(result)
    seen = result.input_ids[rows, positions]
    observed = [(seen == tokenizer.mask_id).sum(), (seen == labels).sum()]
    observed.append(len(labels) - sum(observed))
    same = 0.1 / len(tokenizer.ordinary_ids)
    expected = np.asarray([0.8, 0.1 + same, 0.1 - same]) * len(labels)
    assert len(labels) > 8000
    assert stats.chisquare(observed, expected).pvalue > LEAST_P
    other = seen[(seen != tokenizer.mask_id) & (seen != labels)]
    counts = np.bincount(other, minlength=tokenizer.vocab_size)[tokenizer.ordinary_ids]
    assert stats.chisquare(counts).pvalue > LEAST_P


def test_what_replaces_a_token_is_any_piece(tokenizer):
    """All pieces occur, and the cases are separated at 0.8 and 0.9."""
    ids = np.full((1, 4), tokenizer.ordinary_ids[7], np.int32)
    below = np.nextafter([0.8, 0.9, 1.0], 0)
    ordinary = tokenizer.ordinary_ids
    for fate, other, expected in (
        (0.0, 0.5, tokenizer.mask_id),
        (below[0], 0.5, tokenizer.mask_id),
        (0.8, 0.5, ids[0, 0]),
        (0.9, 0.0, ordinary[0]),
        (below[2], below[2], ordinary[-1]),
    ):
        draws = np.broadcast_to(np.asarray([0.5, fate, other])[:, None], (1, 3, 4))
        assert (Masking(1.0, 4)(ids, draws, tokenizer).input_ids == expected).all()


def test_every_position_has_the_same_chance(tokenizer):
    """A chi-squared test over the positions of equal examples without multi-piece words."""
    ids = np.full((4000, 30), tokenizer.ordinary_ids[0], np.int32)
    ids[:, [0, 14, 29]] = tokenizer.sep_id
    draws = np.random.default_rng(2).random((4000, 3, 30))
    result = Masking(0.15, 20)(ids, draws, tokenizer)
    _, positions, _ = chosen_tokens(result)
    counts = np.delete(np.bincount(positions, minlength=30), [0, 14, 29])
    assert counts.sum() == 4000 * 4
    # Without replacement within an example, counts vary less than by a multinomial: both tails are looked at.
    statistic = ((counts - counts.mean()) ** 2 / counts.mean()).sum() / (1 - 4 / 27) * (26 / 27)
    assert 1e-3 < stats.chi2.sf(statistic, 26) < 1 - 1e-3


def words_of(row, tokenizer):
    """Lists the positions of each word, in plain Python."""
    words, special = [], set(tokenizer.special_ids.tolist())
    for position, number in enumerate(row.tolist()):
        if number in special:
            words.append(None)
        elif words and words[-1] is not None and not tokenizer.starts_word[number]:
            words[-1].append(position)
        else:
            words.append([position])
    return [word for word in words if word]


def test_whole_words_against_plain_python(tokenizer, examples):
    """Words are taken in the order of their first piece's draw; words that exceed the number are skipped."""
    draws = np.random.default_rng(3).random((300, 3, LENGTH))
    result = Masking(0.15, 20, True)(examples[:300], draws, tokenizer)
    several = 0
    for row in range(300):
        words = words_of(examples[row], tokenizer)
        total = sum(map(len, words))
        wanted = max(1, round(0.15 * total)) if total else 0
        expected = []
        for word in sorted(words, key=lambda word: draws[row, 0, word[0]]):
            if len(expected) + len(word) <= wanted:
                expected += word
                several += len(word) > 1
        count = (result.labels[row] >= 0).sum()
        assert result.positions[row, :count].tolist() == sorted(expected)
    assert several > 100
    # A word may also go on to the end of the last example.
    word = np.asarray([[tokenizer.cls_id, *tokenizer.ordinary_ids[1:3]]], np.int32)
    assert tokenizer.starts_word[word[0]].tolist() == [True, True, False]
    found = Masking(1.0, 2, True)(word, np.zeros((1, 3, 3)), tokenizer)
    assert found.positions.tolist() == [[1, 2]]


def test_places_are_a_bound(tokenizer):
    """20 of 128 as released, and in proportion; a higher rate is limited."""
    assert [max_predictions(length) for length in (128, 512, 64, 32, 5, 2)] == [20, 80, 10, 5, 1, 1]
    ids = np.full((5, 12), tokenizer.ordinary_ids[0], np.int32)
    draws = np.random.default_rng(0).random((5, 3, 12))
    assert (Masking(1.0, 3)(ids, draws, tokenizer).labels >= 0).sum() == 15
    wide = Masking(1.0, 20)(ids, draws, tokenizer)
    assert wide.labels.shape == (5, 20)
    assert ((wide.labels >= 0).sum(axis=1) == 12).all()


def test_nothing_to_mask(tokenizer):
    """An example of special tokens only, and an empty batch."""
    ids = np.full((2, 6), tokenizer.pad_id, np.int32)
    result = Masking()(ids, np.zeros((2, 3, 6)), tokenizer)
    np.testing.assert_array_equal(result.input_ids, ids)
    assert (result.labels == -1).all()
    assert Masking()(ids[:0], np.zeros((0, 3, 6)), tokenizer).labels.shape == (0, 20)


def test_bad_numbers():
    """The error names the argument."""
    for rate in (0.0, 1.5, -1.0):
        with pytest.raises(ValueError, match=r"rate: got .* expected above 0 and at most 1"):
            Masking(rate)
    with pytest.raises(ValueError, match="places: got 0, expected at least 1"):
        Masking(places=0)
