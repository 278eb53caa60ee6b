"""Writing with trained models: from text to text, whatever their folder is."""

import json
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.exporting.writers import Words, words_of
from experiments.folnet_language.writing import Writer, open_writer
from folnet import generate, generate_from
from folnet.tokenization import WordPieceTokenizer
from tests.folnet import small_decoders

pytestmark = pytest.mark.usefixtures("compiled_quickly")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
TOKENIZER = WordPieceTokenizer(WORDS[: small_decoders.VOCAB - 2])
TEXTS = ["a b c", "d"]


@pytest.fixture(scope="module")
def continuing():
    return Writer(*small_decoders.causal("j.a"), TOKENIZER)


@pytest.fixture(scope="module")
def answering():
    return Writer(*small_decoders.conditional("j.a"), TOKENIZER)


@pytest.fixture(scope="module")
def continued(continuing):
    """What is written after the texts."""
    return continuing(TEXTS, 8)


def test_texts_are_continued(continuing, continued):
    """With their padding at the end, and by the words that are allowed."""
    ids: Any = np.array([[2, 5, 6, 7], [2, 8, 0, 0]])
    allowed = Words(small_decoders.VOCAB, len(TOKENIZER), (0, 2, 4))
    found = generate(
        continuing.model, continuing.params, ids, attention_mask=ids > 0, max_new_tokens=8, pad_token_id=0,
        eos_token_id=3, allowed=allowed,
    )  # fmt: skip
    sequences, ends = map(np.asarray, (found.sequences, found.lengths))
    for [text], sequence, start, end in zip(continued, sequences, (4, 2), ends, strict=True):
        new = sequence[start:end]
        assert (text.text, text.ended, text.score) == (TOKENIZER.decode(new), new[-1] == 3, None)


def test_inputs_are_answered(answering):
    written = answering(TEXTS, 5, num_beams=2, num_return_sequences=2)
    inputs = TOKENIZER(TEXTS)
    ids: Any = np.asarray(inputs.input_ids)
    mask: Any = np.asarray(inputs.attention_mask)
    found = generate_from(
        answering.model, answering.params, ids, max_new_tokens=5, pad_token_id=0,
        attention_mask=mask, eos_token_id=3, decoder_start_token_id=2,
        num_beams=2, num_return_sequences=2, allowed=Words(small_decoders.VOCAB, len(TOKENIZER), (0, 2, 4)),
    )  # fmt: skip
    assert [len(texts) for texts in written] == [2, 2]
    assert found.scores is not None
    flat = [text for texts in written for text in texts]
    arrays = map(np.asarray, (found.sequences, found.lengths, found.scores))
    for text, sequence, end, score in zip(flat, *arrays, strict=True):
        new = sequence[1:end]
        assert text.text == TOKENIZER.decode(new)
        assert text.ended == (new[-1] == 3)
        assert text.score == pytest.approx(float(score), rel=1e-5)
    assert written[0][0].score >= written[0][1].score


def test_only_words_of_the_vocabulary_are_written(continuing):
    """Nor are tokens without text: each is forbidden."""
    rows, words = small_decoders.VOCAB, words_of(continuing.model, TOKENIZER)
    assert words == Words(rows, len(TOKENIZER), (0, 2, 4))
    allowed = np.asarray(words(jnp.zeros((3, 2), jnp.int32), jnp.int32(0)))
    expected = ~np.isin(np.arange(rows), [0, 2, 4, rows - 2, rows - 1])
    np.testing.assert_array_equal(allowed, np.broadcast_to(expected, (3, rows)))


def test_what_is_written_ends_at_a_stop(continuing, continued):
    words = continued[0][0].text.split()
    stop = " ".join(words[1:3])
    [found], _ = continuing(TEXTS, 8, stop=[stop])
    until = next(n for n in range(len(words)) if words[n : n + 2] == words[1:3])
    assert found.text.split() == words[: until + 2]
    assert not found.ended
    with pytest.raises(ValueError, match=r"stop: got \[' '\], expected texts with at least one token"):
        continuing(["a"], 2, stop=[" "])
    assert continuing([], 3) == []


def test_what_does_not_write_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"config\.json: got no such file"):
        open_writer(tmp_path)
    settings = {"model_type": "folnet", "architectures": ["FOLNetForMaskedLM"]}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match="got a 'FOLNetForMaskedLM', expected one of 'FOLNetForCausalLM'"):
        open_writer(tmp_path)
