"""Held-out measurements against plain Python; blanks and guesses."""

import dataclasses
import json
import platform
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from experiments import runtime
from experiments.folnet_pretrain import measures, train
from experiments.folnet_pretrain.config import get_config
from folnet.heads import PreTrainingOutput
from tests.experiments.folnet_pretrain.small import small, with_data, write_text

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("text"))


class Uniform(nn.Module):
    """A model with equally likely words, except that one logit is larger by `more`."""

    favourite: int
    more: float
    words: int = 104

    def __call__(self, ids, segments, mask, deterministic, *, mlm_positions):
        """Accepts the arguments of the real models."""
        logits = self.more * jax.nn.one_hot(self.favourite, self.words)
        logits = jnp.broadcast_to(logits, (*mlm_positions.shape, self.words))
        return PreTrainingOutput(logits, jnp.zeros((len(ids), 2)))


def evaluation(config, model, text):
    return measures.make_evaluate(config, train.make_losses(config, model), text)


def test_evaluation_is_the_mean_over_all_held_out_predictions(source):
    """With incomplete batches and several masks, compared with counts."""
    config = small(source, eval_batch_size=7, eval_masks=2)
    text = config.data.open()
    labels = np.concatenate([batch.mlm_labels.ravel() for batch in measures.held_out_batches(config, text)])
    labels = labels[labels >= 0]
    windows = -(-len(text.held_out) // 7) * 2
    assert len(list(measures.held_out_batches(config, text))) == windows
    favourite, count = Counter(labels.tolist()).most_common(1)[0]
    found = evaluation(config, Uniform(favourite, 1.0), text)({})
    total = np.log(np.e + 103)
    assert found["mlm_loss"] == pytest.approx(total - count / len(labels), rel=1e-5)
    assert found["mlm_accuracy"] == pytest.approx(count / len(labels))
    orders = np.concatenate([b.next_sentence_label for b in measures.held_out_batches(config, text)])
    assert set(orders.tolist()) == {-1, 0, 1}  # -1 fills the last batch
    assert found["sentence_accuracy"] == pytest.approx((orders == 0).sum() / (orders >= 0).sum())


@pytest.mark.parametrize(("size", "spec"), [(8, ("data",)), (6, ())])
def test_batches_are_split_over_devices_where_they_divide_evenly(source, monkeypatch, size, spec):
    """As for four devices; otherwise every device has the whole batch."""

    class Four(runtime.Layout):
        def mesh_to_measure(self) -> Any:
            return jax.sharding.AbstractMesh((4,), ("data",))

    config, seen = small(source, eval_batch_size=size, eval_batches=2), []
    text = config.data.open()

    def put(batch, where):
        seen.append(tuple(where.spec))
        return batch

    evaluate = measures.make_evaluate(config, train.make_losses(config, Uniform(0, 0.0)), text, Four())
    monkeypatch.setattr(measures.jax, "device_put", put)
    evaluate({})
    assert seen == [spec] * 2


def test_evaluations_may_have_fewer_batches_and_ask_nothing_about_sentences(source):
    config = with_data(source, objective="single")
    config.eval_batches, config.eval_masks = 1, 3
    text = config.data.open()
    batches = list(measures.held_out_batches(config, text))
    assert [len(batch.input_ids) for batch in batches] == [config.eval_batch_size] * 3
    # Masks differ between passes and are the same for each call.
    assert len({batch.mlm_labels.tobytes() for batch in batches}) == 3
    again = list(measures.held_out_batches(config, text))
    np.testing.assert_array_equal(batches[1].input_ids, again[1].input_ids)
    assert set(evaluation(config, Uniform(0, 0.0), text)({})) == {"mlm_loss", "mlm_accuracy"}
    counts = []
    for config.eval_batches in (0, 1000):
        counts.append(len(list(measures.held_out_batches(config, text))))
    assert counts[0] == counts[1] > 3


def test_held_out_text_is_not_trained_on(source):
    config = small(source)
    text = config.data.open()
    learned = {window.tokens.tobytes() for window in text.train.take(range(len(text.train)))}
    assert len(text.train) > len(text.held_out) > 0
    documents = [w for w in text.held_out.take(range(len(text.held_out))) if w.place == 0 and w.count > 1]
    assert documents
    assert not learned & {window.tokens.tobytes() for window in documents}


def test_unigram_lines_are_entropies(source, monkeypatch):
    """No constant answer has a lower loss than the frequencies themselves."""
    config = small(source)
    text = config.data.open()
    found = measures.lines(config, text)
    batches = train.training_batches(config, text)
    parts = {
        "train": [batches(step) for step in range(len(batches))],
        "held_out": measures.held_out_batches(config, text),
    }
    counts = {
        part: Counter(label for batch in of for label in batch.mlm_labels.ravel().tolist() if label >= 0)
        for part, of in parts.items()
    }
    share = len(text.held_out) / (len(text.train) + len(text.held_out))
    chances: dict[int, float] = defaultdict(float)
    for part, weight in (("train", 1 - share), ("held_out", share)):
        for piece, count in counts[part].items():
            chances[piece] += weight * count / sum(counts[part].values())
    entropy = -sum(chance * np.log(chance) for chance in chances.values())
    assert found["unigram_entropy"] == pytest.approx(entropy, rel=1e-6)
    pieces, total = text.tokenizer.vocab_size, sum(counts["held_out"].values())
    likely = {  # with one more of every piece, so that none is impossible
        piece: (counts["train"][piece] + 1) / (sum(counts["train"].values()) + pieces)
        for piece in counts["held_out"]
    }
    cross = -sum(count / total * np.log(likely[piece]) for piece, count in counts["held_out"].items())
    assert found["unigram_held_out"] == pytest.approx(cross, rel=1e-6)
    assert found["vocabulary"] == text.tokenizer.fingerprint
    assert found["held_out_predictions"] == sum(counts["held_out"].values())
    assert found["windows"] == {"train": len(text.train), "held_out": len(text.held_out)}
    asked, count = [], measures.pretraining.label_counts
    monkeypatch.setattr(measures, "COUNTED", 2)
    monkeypatch.setattr(
        measures.pretraining, "label_counts", lambda of, most: asked.append(most) or count(of, most)
    )
    measures.lines(config, text)
    assert asked == [2]


def test_the_quick_presets_text_is_that_of_the_published_runs():
    """Their entropy follows from the documents, the split, the vocabulary, the windows and the masks."""
    lines = (ROOT / "results" / "folnet" / "learning.jsonl").read_text().splitlines()
    published, config = json.loads(lines[2]), dataclasses.replace(get_config("quick"), seed=1)
    assert published["seed"] == 1
    found = measures.lines(config, config.data.open())["unigram_entropy"]
    same = published["versions"]["python"] == platform.python_version()  # which includes the text
    assert found == pytest.approx(published["unigram_entropy"], rel=1e-6 if same else 0.03)


def test_blanks_are_held_out_text_with_one_piece_missing(source):
    config = small(source)
    text, tokenizer = config.data.open(), config.data.open().tokenizer
    asked = measures.blanks(config, text, 6)
    assert len(asked) == 6
    assert [b.word for b in measures.blanks(config, text, 6)] == [b.word for b in asked]
    windows = text.held_out.take(range(len(text.held_out)))
    whole = {tokenizer.decode(window.tokens) for window in windows}
    places, count = [], len(text.held_out)
    assert count > 12
    for number, blank in enumerate(asked):
        (window,) = text.held_out.take([number * count // 6])  # evenly spaced
        tokens, middle = window.tokens.tolist(), len(window.tokens) // 2
        at = blank.place - 1 - (blank.place > middle)
        places.append(at < middle)
        assert (blank.before, blank.word, blank.after) == (
            tokenizer.decode(tokens[:at]),
            tokenizer.vocabulary[tokens[at]],
            tokenizer.decode(tokens[at + 1 :]),
        )
        assert blank.segments.tolist() == (
            [0] * (middle + 2) + [1] * (len(tokens) - middle + 1) + [0] * (16 - len(tokens) - 3)
        )
        assert blank.ids[blank.place] == tokenizer.mask_id
        assert (blank.ids == tokenizer.mask_id).sum() == 1
        restored = blank.ids.copy()
        restored[blank.place] = tokenizer.vocabulary.index(blank.word)
        assert tokenizer.decode(restored) in whole
        for part in (blank.before, blank.after):
            assert part in tokenizer.decode(restored)
    assert set(places) == {True, False}  # in either half
    assert measures.blanks(config, text, 0) == []
    other = measures.blanks(dataclasses.replace(config, seed=1), text, 6)
    assert [blank.place for blank in other] != [blank.place for blank in asked]
    everything = measures.blanks(config, text, 10_000)
    assert len(everything) == count


def test_separators_are_never_blanks(source):
    """Where documents run on, a window has separators."""
    config = with_data(source, packing="corpus")
    text = config.data.open()
    windows = text.held_out.take(range(len(text.held_out)))
    sep = text.tokenizer.sep_id
    assert sum(sep in window.tokens for window in windows) > 5
    for seed in range(5):
        asked = measures.blanks(dataclasses.replace(config, seed=seed), text, len(windows))
        assert len(asked) == len(windows)
        assert "[SEP]" not in {blank.word for blank in asked}


class Reading(nn.Module):
    """A model that predicts the piece two before the mask, and for whose padding counts segment and mask."""

    pad: int

    def __call__(self, ids, segments, mask, deterministic, *, mlm_positions):
        """Accepts the arguments of the real models."""
        assert deterministic
        before = jnp.take_along_axis(ids, mlm_positions - 2, axis=1)
        strength = 1 + segments.sum(axis=1) + (0 if mask is None else 100 * (~mask).sum(axis=1))
        logits = 0.01 * strength[:, None, None] * jax.nn.one_hot(before, 104)
        return PreTrainingOutput(logits, jnp.zeros((len(ids), 2)))


@pytest.mark.parametrize("padding", [False, True])
def test_a_guess_is_the_models_at_the_mask_of_its_own_text(source, padding):
    config = small(source, mask_padding=padding)
    config.data.packing = "sentences"  # windows that are not full
    text = config.data.open()
    pad, pieces = text.tokenizer.pad_id, text.tokenizer.vocab_size
    asked = [blank for blank in measures.blanks(config, text, 8) if blank.place > 2]
    assert len({blank.place for blank in asked}) > 1
    assert any(pad in blank.ids for blank in asked)
    for blank, found in zip(asked, measures.fill(config, Reading(pad), {}, text, asked), strict=True):
        assert found["guess"] == text.tokenizer.vocabulary[blank.ids[blank.place - 2]]
        empty = int((blank.ids == pad).sum()) if padding else 0
        odds = np.exp(0.01 * (1 + blank.segments.sum() + 100 * empty))
        assert found["probability"] == pytest.approx(odds / (odds + pieces - 1), rel=1e-5)


@pytest.mark.parametrize("padding", [False, True])
def test_a_guess_is_the_likeliest_piece_of_the_vocabulary(source, padding):
    """Rows of the embeddings beyond the vocabulary are never guessed."""
    config = small(source, mask_padding=padding)
    text = config.data.open()
    asked = measures.blanks(config, text, 3)
    the, pieces = text.tokenizer.vocabulary.index("the"), text.tokenizer.vocab_size
    guesses = measures.fill(config, Uniform(the, 2.0), {}, text, asked)
    for blank, guess in zip(asked, guesses, strict=True):
        assert (guess["guess"], guess["right"]) == ("the", blank.word == "the")
        assert guess["probability"] == pytest.approx(np.exp(2) / (np.exp(2) + pieces - 1), rel=1e-5)
    beyond = measures.fill(config, Uniform(103, 9.0), {}, text, asked)
    assert all(guess["probability"] == pytest.approx(1 / pieces, rel=1e-5) for guess in beyond)
    assert measures.fill(config, Uniform(the, 1.0), {}, text, []) == []
    keys = {"before", "word", "after", "guess", "probability", "right"}
    assert all(
        set(guess) == keys and guess["word"] == b.word for guess, b in zip(guesses, asked, strict=True)
    )


def test_what_a_record_says(folnet_run):
    _, workdir, results = folnet_run
    curve = measures.held_out_curve(workdir)
    assert [step for step, _, _ in curve] == [2, 4]
    assert measures.recorded(workdir, 4) == results["folnet"].metrics["eval/mlm_loss"] == curve[-1][2]
    assert measures.recorded(workdir, 3) is None
    assert measures.first_below(workdir, curve[0][2] + 1) == 2
    assert measures.first_below(workdir, 0.0) is None
    assert measures.first_below(workdir, curve[0][2]) != 2
