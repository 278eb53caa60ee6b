"""A small run on the language reference: its text, its measure, and its files."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.reasoning import EXPERIMENT, language, suite, text, train
from experiments.reasoning.config import get_config
from experiments.reasoning.tasks import TASKS
from tests.experiments.reasoning.small import SMALL
from tests.simplicial.small import parameters, quickly

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
    assert [len(text.windows(np.arange(size, dtype=np.uint8), 5)) for size in (5, 20, 21)] == [0, 3, 4]


def test_drawn_windows_are_from_the_text_and_reach_its_ends():
    source = np.arange(10, dtype=np.uint8)
    rows = quickly(lambda key: text.draw(key, source, 200, 3))(jax.random.key(0))
    np.testing.assert_array_equal(np.diff(rows, axis=1), 1)
    assert (rows.min(), rows.max()) == (0, 9)


TWO_LETTERS = np.frombuffer(b"abab" * 60, np.uint8)


def test_bits_per_byte_are_the_mean_over_all_windows(monkeypatch):
    """Whatever the batches are; and the loss is a sum over the bytes of a batch."""
    monkeypatch.setattr(text, "parts", lambda: (TWO_LETTERS, TWO_LETTERS[:50]))
    config = dataclasses.replace(SMALL, every=0)
    params = parameters(config.make_model(), np.zeros((1, 2), np.int32))["params"]
    rows = jnp.asarray(text.windows(TWO_LETTERS[:50], 12))
    problem = train.problem(config)

    @quickly
    def all_of(params):
        return language.nats(config.make_model(), params, rows), problem["loss"](
            params, {"bytes": rows}, None
        )

    losses, sums = all_of(params)
    assert losses.shape == (4, 12)
    assert (sums.numerator, sums.denominator) == (pytest.approx(losses.sum(), rel=1e-5), 48)
    found = language.make_evaluate(dataclasses.replace(config, batch_size=9))(params)
    assert found == {"bits_per_byte": pytest.approx(losses.mean() / np.log(2), rel=1e-5)}
    batch = jax.eval_shape(problem["sample"], jax.random.key(0), 0)
    assert batch["bytes"].shape == (4, 13)


@pytest.mark.parametrize(
    ("preset", "fields", "title"),
    [
        ("quick", {}, "a byte-level language model whose every 4th layer attends to pairs"),
        ("dot_product", {}, "a byte-level language model of dot-product attention"),
        ("distances", {"operators": "j.a"}, "a FOLNet with the operators j.a for distances in graphs"),
        ("published_composition", {}, "a Transformer that composes relations, in a published setting"),
        ("bridges", {}, "the trunk of a simplicial agent that finds the bridge on a board"),
        ("bridges", {"virtual_entities": 0}, "the trunk of a relational agent that finds the bridge on"),
    ],
)
def test_the_card_says_which_model_it_is(preset, fields, title):
    assert EXPERIMENT.card is not None
    assert EXPERIMENT.card.title(dataclasses.replace(get_config(preset), **fields)).startswith(title)


@pytest.mark.parametrize("logit", ["trilinear", "signed"])
def test_the_language_model_has_the_logit_of_its_config(logit):
    assert dataclasses.replace(SMALL, logit=logit).make_model().logit == logit


@pytest.mark.parametrize("task", ["language", "distances"])
def test_what_a_run_trains_measures_and_reports(tmp_path, monkeypatch, task):
    """The text is counted where it is learned."""
    config = SMALL if task == "language" else dataclasses.replace(get_config(task), schedule_steps=1200)
    monkeypatch.setattr(text, "parts", lambda: (TWO_LETTERS, TWO_LETTERS[:50]))
    monkeypatch.setattr(train.PROBLEMS[task], "make_evaluate", lambda config: config.task)
    monkeypatch.setattr(train, "problem", lambda config: {"loss": config})
    given = []
    monkeypatch.setattr(train.runtime, "fit", lambda *of, **settings: given.append((of, settings)))
    train.main(config, workdir=tmp_path, parallel="pmap")
    (((of,), settings),) = given
    conclude = settings.pop("conclude")
    assert of == config
    assert settings == {"loss": config, "evaluate": task, "workdir": tmp_path, "parallel": "pmap"}
    held_out = {"held_out_bytes": 50} if task == "language" else {}
    assert conclude({"a": np.zeros((2, 3)), "b": np.zeros(5)}) == {"parameters": 11, **held_out}
    with pytest.raises(ValueError, match="loops: got 0, expected at least 1"):
        train.main(dataclasses.replace(config, loops=0), workdir=None)


def test_what_is_reported_of_the_suite_is_of_the_tests_problems(monkeypatch):
    """And not of those that choose settings, nor of the curve's."""
    config, given = dataclasses.replace(get_config("suite"), task="paths"), {}

    def make_evaluate(config, seed=suite.CURVE, tests=()):
        return lambda params: {f"right/{test}": seed for test in tests or (TASKS[config.task].measure,)}

    monkeypatch.setattr(suite, "make_evaluate", make_evaluate)
    monkeypatch.setattr(train.runtime, "fit", lambda *of, **settings: given.update(settings))
    train.main(config, workdir=None)
    assert given["evaluate"](None) == {"right/graphs_of_12": suite.CURVE}
    results = given["conclude"]({"a": np.zeros(3)})
    assert results["tests"] == {"right/graphs_of_8": suite.TEST, "right/graphs_of_12": suite.TEST}
    assert (results["validated"], results["parameters"]) == (suite.VALIDATION, 3)


@pytest.mark.slow  # its measure and the model have cheaper tests
def test_a_run_learns_and_measures(tmp_path, monkeypatch):
    """Text of two letters is soon learned."""
    monkeypatch.setattr(text, "parts", lambda: (TWO_LETTERS, TWO_LETTERS[:50]))
    result = train.main(SMALL, workdir=tmp_path)
    assert result.metrics["eval/bits_per_byte"] < 4
    assert result.results["held_out_bytes"] == 50
    count = sum(leaf.size for leaf in jax.tree.leaves(result.params))
    assert result.results["parameters"] == count
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["results"] == result.results
    shapes = jax.tree.map(lambda leaf: leaf.shape, train.abstract_state(SMALL).params)
    assert shapes == jax.tree.map(lambda leaf: leaf.shape, result.params)
