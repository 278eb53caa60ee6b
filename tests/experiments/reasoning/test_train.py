"""A small run on the language reference: its text, its measure, and its files."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from experiments.reasoning import text, train
from experiments.reasoning.config import Config

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_held_out_text_is_a_tenth_and_is_not_learned():
    learned, held_out = (part.tobytes() for part in text.parts())
    assert 0.07 < len(held_out) / len(learned) < 0.15
    paragraphs = [line for line in held_out.splitlines() if len(line) > 80]
    assert len(paragraphs) > 50
    assert not [line for line in paragraphs if line in learned]


def test_windows_predict_every_byte_once():
    rows = text.windows(np.arange(23, dtype=np.uint8), 5)
    np.testing.assert_array_equal(rows[:, 1:].ravel(), np.arange(1, 21))
    np.testing.assert_array_equal(rows[1:, 0], rows[:-1, -1])


def test_drawn_windows_are_from_the_text_and_reach_its_ends():
    source = np.arange(10, dtype=np.uint8)
    rows = np.asarray(text.draw(jax.random.key(0), source, 200, 3))
    np.testing.assert_array_equal(np.diff(rows, axis=1), 1)
    assert (rows.min(), rows.max()) == (0, 9)


def test_a_run_learns_and_measures(tmp_path, monkeypatch):
    """Held-out bits per byte are the mean loss over all windows; text of two letters is soon learned."""
    letters = np.frombuffer(b"abab" * 60, np.uint8)
    monkeypatch.setattr(text, "parts", lambda: (letters, letters[:50]))
    config = Config(
        steps=20, log_every=10, checkpoint_every=20, eval_every=10, batch_size=4, every=1, features=8,
        num_layers=1, num_heads=2, hidden=8, window1=2, window2=3, length=12, lr=0.05, warmup_steps=1,
        schedule_steps=20,
    )  # fmt: skip
    result = train.main(config, workdir=tmp_path)
    rows = text.windows(letters[:50], 12)
    losses = train.nats(config.make_model(), result.params, rows)
    assert result.metrics["eval/bits_per_byte"] == pytest.approx(float(losses.mean()) / np.log(2), rel=1e-5)
    assert result.metrics["eval/bits_per_byte"] < 4 < 8
    assert result.results["held_out_bytes"] == 50
    count = sum(leaf.size for leaf in jax.tree.leaves(result.params))
    assert result.results["parameters"] == count
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["results"] == result.results
    shapes = jax.tree.map(lambda leaf: leaf.shape, train.abstract_state(dataclasses.replace(config)).params)
    assert shapes == jax.tree.map(lambda leaf: leaf.shape, result.params)
