"""Training models that write: the loss, user errors, the record of a run, and continued runs."""

import dataclasses
import functools
import json
import math
import types
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import runtime
from experiments.folnet_language import train
from experiments.folnet_language.config import get_config
from experiments.folnet_language.figures import CURVE, PAGE
from tests.experiments.folnet_language.small import small, with_data, write_pairs
from tests.experiments.folnet_pretrain.small import write_text
from tests.folnet import small_decoders
from tests.folnet.small import quickly

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def by_hand(logits, labels):
    """Returns losses of the words in nats and whether each is the most probable one."""
    logits = np.asarray(logits, np.float64)
    logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return -np.take_along_axis(logits, labels[..., None], axis=-1)[..., 0], logits.argmax(-1) == labels


def test_the_loss_of_a_language_model_is_of_each_next_word():
    model, params = small_decoders.causal("j.a")
    ids = np.array([[2, 6, 7, 8, 3], [2, 5, 3, 0, 0]], np.int32)
    labels = np.where(ids > 0, ids, -1)
    losses_of = quickly(train.make_losses(model))
    words, texts = losses_of(params, {"input_ids": ids, "labels": labels})
    logits = np.asarray(small_decoders.method(model)(params, ids).logits)
    losses, right = by_hand(logits[:, :-1], ids[:, 1:])
    real = labels[:, 1:] > 0
    assert float(words.sum) == pytest.approx(losses[real].sum(), rel=1e-5)
    assert (int(words.count), int(words.correct)) == (6, (right & real).sum())
    assert (int(texts.count), float(texts.sum)) == (2, 0.0)
    # A text is right as a whole if every word is; the first one is given.
    mine = np.full_like(ids, -1)
    mine[:, 0], mine[:, 1] = ids[:, 0], logits[:, 0].argmax(-1)
    _, texts = losses_of(params, {"input_ids": np.maximum(mine, 0), "labels": mine})
    assert int(texts.correct) == 2
    mine[1, 1] = (mine[1, 1] + 1) % 5
    _, texts = losses_of(params, {"input_ids": np.maximum(mine, 0), "labels": mine})
    assert int(texts.correct) == 1


def test_the_loss_of_targets_is_of_their_words():
    """The model's parameters are its logits."""

    class Given:
        def apply(self, variables, *, input_ids, decoder_input_ids, attention_mask, deterministic, rngs):
            assert (input_ids.shape, attention_mask.shape, decoder_input_ids.shape) == (
                (2, 4),
                (2, 4),
                (2, 3),
            )
            assert (deterministic, rngs) == (True, None)
            return types.SimpleNamespace(logits=variables["params"])

    logits = np.random.default_rng(0).normal(size=(2, 3, 10)).astype(np.float32)
    batch: dict[str, Any] = {
        "input_ids": np.array([[2, 6, 7, 3], [2, 5, 3, 0]], np.int32),
        "decoder_input_ids": np.array([[2, 8, 9], [2, 6, 0]], np.int32),
        "labels": np.array([[8, 9, 3], [6, 3, -1]], np.int32),
    }
    batch["attention_mask"] = batch["input_ids"] > 0
    model: Any = Given()
    losses_of = quickly(train.make_losses(model))
    words, texts = losses_of(logits, batch)
    losses, right = by_hand(logits, batch["labels"])
    real = batch["labels"] > 0
    assert float(words.sum) == pytest.approx(losses[real].sum(), rel=1e-5)
    assert (int(words.count), int(words.correct), int(texts.count)) == (5, (right & real).sum(), 2)
    # Rows that fill up a batch count for nothing.
    batch["labels"][1] = -1
    one, texts = losses_of(logits, batch)
    assert float(one.sum) == pytest.approx(losses[0].sum(), rel=1e-5)
    assert (int(one.count), int(texts.count)) == (3, 1)


@functools.cache
def loss_with(dropout):
    """Returns the compiled loss of a model with dropout, by a config with some or none, and parameters."""
    model, params = small_decoders.causal("j.a")
    model = model.clone(config=model.config.replace(hidden_dropout_prob=0.5))
    config = small(Path("text.txt"))
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, hidden_dropout_prob=dropout))
    return quickly(train.make_loss(config, model)), params


LABELS = np.array([[2, 6, 7, 8], [2, 5, 3, -1], [2, 9, -1, -1], [2, 5, 6, 3]], np.int32)


def test_parts_of_a_batch_add_up_to_the_whole():
    """So several devices train as one, however many words each has."""
    loss, params = loss_with(0.0)
    first = np.arange(4)[:, None] < 2

    def of(labels):
        batch = {"input_ids": np.maximum(LABELS, 0), "labels": labels}
        return jax.device_get(loss(params, batch, jax.random.key(0)))

    whole, one, other = map(of, (LABELS, np.where(first, LABELS, -1), np.where(first, -1, LABELS)))
    np.testing.assert_allclose(one.numerator + other.numerator, whole.numerator, rtol=1e-5)
    assert (int(one.denominator), int(other.denominator), int(whole.denominator)) == (5, 4, 9)
    for name, (top, bottom) in whole.metrics.items():
        parts = one.metrics[name], other.metrics[name]
        assert (parts[0][0] + parts[1][0], parts[0][1] + parts[1][1]) == (top, bottom)


def test_dropout_needs_a_key_and_changes_the_loss():
    """The model's config alone drops nothing."""
    batch = {"input_ids": np.maximum(LABELS, 0), "labels": LABELS}

    def nats(dropout, seed):
        loss, params = loss_with(dropout)
        return float(loss(params, batch, jax.random.key(seed)).numerator)

    assert nats(0.5, 0) != pytest.approx(nats(0.0, 0), rel=1e-3)
    assert nats(0.5, 1) != pytest.approx(nats(0.5, 0), rel=1e-3)
    assert nats(0.0, 1) == nats(0.0, 0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"source": "none.txt"}, "none.txt, which does not exist"),
        ({"new_vocabulary": 120}, "model.vocab_size: got 104, expected at least"),
    ],
)
def test_text_that_does_not_fit_is_reported_before_anything_is_compiled(
    tmp_path, monkeypatch, fields, message
):
    monkeypatch.setattr(train.runtime, "fit", None)  # calling it would fail
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(f"{chr(97 + n % 26) * 3}{chr(97 + n // 26)} x" for n in range(300)) + "\n")
    with pytest.raises(runtime.WorkdirError, match=message):
        train.main(with_data(path, **fields), workdir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: the file is empty"),
        ('{"input": "a", "target": "b"}\n{"input": "a"}\n', r"line 2: .*missing 'target'"),
        ('{"question": "a", "target": "b"}\n', "input: got '', expected one of the columns"),
        ('{"input": "a", "target": 3}\n', "line 1"),
        ('{"input": "a", \n', "line 1"),
    ],
)
def test_files_of_pairs_that_are_damaged_are_named(tmp_path, monkeypatch, text, message):
    monkeypatch.setattr(train.runtime, "fit", None)
    path = tmp_path / "bad.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(runtime.WorkdirError, match=rf"(?s)bad\.jsonl.*{message}|{message}.*bad\.jsonl"):
        train.main(small(path), workdir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_language_model_leaves_its_record_and_a_page(text_run):
    config, workdir, result = text_run
    found, metrics = result.results, result.metrics
    assert metrics["eval/perplexity"] == pytest.approx(math.exp(metrics["eval/loss"]))
    assert 0 <= metrics["eval/accuracy"] <= 1
    assert "eval/exact_match" not in metrics
    assert json.loads((workdir / "summary.json").read_text())["results"]["samples"] == found["samples"]
    assert len(found["samples"]) == config.samples
    assert found["rows"]["train"] > found["rows"]["held_out"] > 0
    text = (workdir / PAGE).read_text(encoding="utf-8")
    assert found["samples"][0]["given"] in text
    assert f"{metrics['eval/perplexity']:.3g}" in text
    assert (workdir / CURVE).read_bytes()[1:4] == b"PNG"


def test_an_encoder_decoder_leaves_its_record_and_a_page(pairs_run):
    _, workdir, result = pairs_run
    assert 0 <= result.metrics["eval/exact_match"] <= 1
    assert result.results["truncated"] == {
        part: {"inputs": 0, "targets": 0} for part in ("train", "held_out")
    }
    assert result.results["samples"] == []
    assert "targets without error" in (workdir / PAGE).read_text(encoding="utf-8")


@pytest.mark.slow
def test_an_encoder_decoder_learns_to_turn_two_words_around(tmp_path):
    """Of sentences that it has not seen."""
    every = {"steps": 600, "log_every": 300, "checkpoint_every": 300, "eval_every": 300}
    config = small(write_pairs(tmp_path), lr=3e-3, **every)
    wider = {"hidden_size": 32, "head_size": 16, "intermediate_size": 64}
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, operators="j.at", **wider))
    result = train.main(config, workdir=None)
    assert result.metrics["eval/exact_match"] >= 0.9
    assert result.metrics["eval/perplexity"] < 1.3
    assert all(row["greedy"] == row["beam"] == row["target"] for row in result.results["samples"])


def test_figures_are_drawn_when_all_steps_are_made(tmp_path, monkeypatch):
    config, drawn = small(write_text(tmp_path)), []
    result = runtime.FitResult(
        state=None, params=None, summary={}, step=2, metrics={}, results={}, train_seconds=1.0
    )
    monkeypatch.setattr(train.runtime, "fit", lambda config, **given: result)
    monkeypatch.setattr(train.figures, "draw", lambda *given: drawn.append(given))
    assert train.main(config, workdir=tmp_path / "run") is result
    assert not drawn
    result = dataclasses.replace(result, step=4)
    train.main(config, workdir=None)
    assert not drawn
    train.main(config, workdir=tmp_path / "run")
    assert drawn == [(tmp_path / "run", config, result)]


@pytest.mark.slow  # that batches depend on the step alone, and when figures are drawn, have cheaper tests
def test_a_killed_run_continues_as_if_it_had_not_been(text_run, tmp_path):
    config, workdir, whole = text_run
    stopped = train.main(dataclasses.replace(config, session_seconds=1e-9), workdir=tmp_path)
    assert (stopped.step, (tmp_path / PAGE).exists()) == (2, False)
    continued = train.main(config, workdir=tmp_path)
    assert (tmp_path / PAGE).exists()
    assert continued.summary["params_sha256"] == whole.summary["params_sha256"]
    again = train.main(config, workdir=workdir)
    assert again.summary["params_sha256"] == whole.summary["params_sha256"]


def test_a_run_does_not_continue_with_another_vocabulary(text_run, tmp_path):
    config, _, _ = text_run
    source = write_text(tmp_path)
    own = dataclasses.replace(config, data=dataclasses.replace(config.data, source=str(source)))
    train.open_data(own, tmp_path / "run")
    text = source.read_text(encoding="utf-8")
    source.write_text(text.replace("likes", "meets"), encoding="utf-8")
    with pytest.raises(runtime.WorkdirError, match="the text has changed; choose another workdir"):
        train.open_data(own, tmp_path / "run")


def test_models_of_any_size_can_be_traced():
    for preset, texts in (("quick", 1), ("pairs", 2)):
        config = get_config(preset)
        params = jax.eval_shape(train.make_init(config.make_model()), jax.random.key(0))
        assert ("decoder" in params) == (texts == 2)
        state = train.abstract_state(config)
        assert jax.tree.map(jnp.shape, state.params) == jax.tree.map(jnp.shape, params)
