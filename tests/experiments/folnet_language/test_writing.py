"""Writing with trained models: from text to text, whatever their folder is."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.folnet_language import load
from experiments.folnet_language.writing import Words, Writer, open_writer
from folnet import generate, generate_from
from folnet.tokenization import WordPieceTokenizer
from kernels.decoding import Sampling
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


def test_texts_are_continued_as_each_alone(continuing):
    written = continuing(TEXTS, 5)
    allowed = Words(small_decoders.VOCAB, TOKENIZER.vocab_size, (0, 2, 4))
    for text, [found] in zip(TEXTS, written, strict=True):
        ids = [2, *TOKENIZER.ids([text])[0]]
        alone = generate(
            continuing.model, continuing.params, jnp.asarray([ids]), max_new_tokens=5, pad_token_id=0,
            eos_token_id=3, allowed=allowed,
        )  # fmt: skip
        new = np.asarray(alone.sequences[0, len(ids) : int(alone.lengths[0])])
        assert (found.text, found.ended, found.score) == (TOKENIZER.decode(new), new[-1] == 3, None)


def test_inputs_are_answered(answering):
    written = answering(TEXTS, 5, num_beams=2, num_return_sequences=2)
    inputs = TOKENIZER(TEXTS)
    found = generate_from(
        answering.model, answering.params, jnp.asarray(inputs.input_ids), max_new_tokens=5, pad_token_id=0,
        attention_mask=jnp.asarray(inputs.attention_mask), eos_token_id=3, decoder_start_token_id=2,
        num_beams=2, num_return_sequences=2, allowed=Words(small_decoders.VOCAB, len(TOKENIZER), (0, 2, 4)),
    )  # fmt: skip
    assert [len(texts) for texts in written] == [2, 2]
    assert found.scores is not None
    flat = [text for texts in written for text in texts]
    for row, text in enumerate(flat):
        new = np.asarray(found.sequences[row, 1 : int(found.lengths[row])])
        assert text.text == TOKENIZER.decode(new)
        assert text.ended == (new[-1] == 3)
        assert text.score == pytest.approx(float(found.scores[row]), rel=1e-5)
    assert written[0][0].score >= written[0][1].score


def test_only_words_of_the_vocabulary_are_written(continuing):
    """Nor are tokens without text: each is forbidden, whatever its logit."""
    rows = small_decoders.VOCAB
    allowed = np.asarray(Words(rows, len(TOKENIZER), (0, 2, 4))(jnp.zeros((3, 2), jnp.int32), jnp.int32(0)))
    expected = ~np.isin(np.arange(rows), [0, 2, 4, rows - 2, rows - 1])
    np.testing.assert_array_equal(allowed, np.broadcast_to(expected, (3, rows)))
    sampling = Sampling(temperature=50.0)
    for seed in range(3):
        [[found]] = continuing(["a"], 20, sampling=sampling, key=jax.random.key(seed))
        assert found.text  # `decode` raises for what is not in the vocabulary


def test_what_is_written_ends_at_a_stop(continuing):
    [[free]] = continuing(["a b c"], 8)
    words = free.text.split()
    stop = " ".join(words[1:3])
    [[found]] = continuing(["a b c"], 8, stop=[stop])
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


@pytest.mark.parametrize("kind", ["text_run", "pairs_run"])
def test_a_run_and_its_folder_write_the_same(kind, request, tmp_path):
    _, workdir, _ = request.getfixturevalue(kind)
    load.load(workdir).save_pretrained(tmp_path / "model")
    texts = ["the cat sees the dog .", "the bird"]
    found = open_writer(workdir)(texts, 4)
    assert open_writer(tmp_path / "model")(texts, 4) == found
