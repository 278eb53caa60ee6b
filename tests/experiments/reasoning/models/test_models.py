"""Every model on every kind of task that it fits: shapes, what it may not depend on, and what it must."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.reasoning.models import MODELS, Sizes, edges, tp_transformer, transformers
from experiments.reasoning.models.base import kinds_of
from experiments.reasoning.tasks import TASKS, Problems
from tests.simplicial.small import parameters, quickly
from tp_transformer.layers import sinusoids

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SIZES = Sizes(features=12, num_layers=2, num_heads=2, hidden=6)
OF_KIND = {"set": "match3", "sequence": "modular_arithmetic", "graph": "paths"}
FITTING = [(name, kind) for name, model in MODELS.items() for kind in model.kinds]


def drawn(kind: str) -> Problems:
    """Two small problems, of 5 elements."""
    tokens = jnp.asarray([[0, 1, 2, 3, 4], [4, 1, 0, 2, 3]])
    if kind != "graph":
        return Problems(tokens, tokens)
    edges = np.random.default_rng(0).random((2, 5, 5)) < 0.4
    return Problems(tokens, jnp.zeros((2, 5, 5), jnp.int32), jnp.where(edges, 0, -1))


def permuted(problems: Problems, order: np.ndarray) -> Problems:
    relations = problems.relations
    if relations is not None:
        relations = relations[:, order][:, :, order]
    return dataclasses.replace(problems, tokens=problems.tokens[:, order], relations=relations)


@pytest.fixture(scope="module")
def computed() -> Any:
    """Returns logits of a model on problems; each model is made and compiled once."""
    made: dict[tuple[str, str], Any] = {}

    def compute(name: str, kind: str, problems: Problems) -> np.ndarray:
        if (name, kind) not in made:
            model = MODELS[name].build(TASKS[OF_KIND[kind]], SIZES)
            made[name, kind] = quickly(model.apply), parameters(model, drawn(kind))
        apply, variables = made[name, kind]
        return np.asarray(apply(variables, problems))

    return compute


@pytest.mark.parametrize(("name", "kind"), FITTING)
def test_logits_are_of_what_is_asked(computed, name, kind):
    """And depend on every token and, in a graph, on every relation."""
    problems, task = drawn(kind), TASKS[OF_KIND[kind]]
    logits = computed(name, kind, problems)
    assert logits.shape == ((2, 5, 5, task.classes) if task.asks_pairs else (2, 5, task.classes))
    assert logits.dtype == np.float32
    others = dataclasses.replace(problems, tokens=problems.tokens.at[0, 0].set(4))
    assert np.abs(computed(name, kind, others)[0] - logits[0]).max() > 1e-4
    if problems.relations is not None:
        turned = -1 - problems.relations[0, 3, 1]
        others = dataclasses.replace(problems, relations=problems.relations.at[0, 3, 1].set(turned))
        assert np.abs(computed(name, kind, others)[0] - logits[0]).max() > 1e-4
    np.testing.assert_allclose(computed(name, kind, others)[1], logits[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "kind"), FITTING)
def test_logits_depend_on_all_parameters_but_those_that_are_called_unread(name, kind):
    """Models are given equal numbers of the others."""
    task = TASKS[OF_KIND[kind]]
    model = MODELS[name].build(task, SIZES)
    params = parameters(model, drawn(kind))["params"]
    shape = (2, 5, 5, task.classes) if task.asks_pairs else (2, 5, task.classes)
    weights = np.random.default_rng(1).normal(size=shape)

    def weighted(params):
        logits: Any = model.apply({"params": params}, drawn(kind))
        return jnp.sum(logits * weights)

    slopes = jax.tree_util.tree_leaves_with_path(quickly(jax.grad(weighted))(params))
    pattern = MODELS[name].unread(task, SIZES)
    for path, slope in slopes:
        shown = jax.tree_util.keystr(path, simple=True, separator="/")
        assert bool(pattern and re.search(pattern, shown)) == (not np.any(slope)), shown


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kind in FITTING if kind != "sequence"])
def test_sets_and_graphs_have_no_order(computed, name, kind):
    problems, order = drawn(kind), np.array([3, 0, 4, 1, 2])
    logits, turned = computed(name, kind, problems), computed(name, kind, permuted(problems, order))
    expected = logits[:, order] if kind == "set" else logits[:, order][:, :, order]
    np.testing.assert_allclose(turned, expected, rtol=1e-3, atol=1e-4)
    assert np.abs(expected - logits).max() > 1e-3


BOTH_WAYS = {"tp_transformer", "folnet", "folnet_without_trans"}
"""Encoders as published, which see a sequence from both sides."""


@pytest.mark.parametrize("name", [name for name, kind in FITTING if kind == "sequence"])
def test_sequences_have_an_order(computed, name):
    """And an answer depends on the symbols up to it."""
    problems = drawn("sequence")
    logits = computed(name, "sequence", problems)
    swapped = computed(name, "sequence", permuted(problems, np.array([1, 0, 2, 3, 4])))
    assert np.abs(swapped[:, 2:] - logits[:, 2:]).max() > 1e-4
    later = dataclasses.replace(problems, tokens=problems.tokens.at[:, 3].set(8))
    same = np.allclose(computed(name, "sequence", later)[:, :3], logits[:, :3], rtol=1e-4, atol=1e-5)
    assert same == (name not in BOTH_WAYS)


def test_pairs_are_numbered_by_relation_and_by_being_one_node():
    relations = jnp.asarray([[[-1, 0], [1, 0]]])
    problems = Problems(jnp.zeros((1, 2), jnp.int32), relations, relations)
    assert kinds_of(problems).tolist() == [[[1, 2], [4, 3]]]


@pytest.mark.parametrize("name", ["simplicial", "transformer", "looped_transformer"])
def test_a_layer_sees_the_order_of_what_precedes(name):
    """By its rotary positions: the causal mask alone would let the last of three see a set."""
    model: Any = MODELS[name].build(TASKS["modular_arithmetic"], dataclasses.replace(SIZES, num_layers=1))
    if name == "looped_transformer":
        model = dataclasses.replace(model, encoder=dataclasses.replace(model.encoder, num_loops=1))
    first, second = (jnp.asarray([tokens]) for tokens in ([1, 2, 3], [2, 1, 3]))
    variables = parameters(model, Problems(first, first))
    logits = [quickly(model.apply)(variables, Problems(tokens, tokens))[0, -1] for tokens in (first, second)]
    assert jnp.abs(logits[0] - logits[1]).max() > 1e-3


def test_tokens_are_not_buried_under_positions():
    """The TP-Transformer multiplies embeddings by sqrt(D) before it adds sinusoids, as in equation (2)."""
    encoder: Any = tp_transformer.TPEncoder(0, 2, 6, is_ordered=True)
    inputs = jnp.full((1, 3, 16), 0.25)
    found = encoder.apply({}, inputs) - sinusoids(3, 16)[None]
    np.testing.assert_allclose(found, 1.0, rtol=1e-6)
    assert TASKS["s5"].kind == "sequence"
    np.testing.assert_array_equal(
        tp_transformer.TPEncoder(0, 2, 6, is_ordered=False).apply({}, inputs), inputs
    )


def test_loops_rounds_and_the_cell_are_those_that_are_described():
    """Numbers that change no parameter, and are in no config."""
    page = (Path(__file__).parents[4] / "docs/how_to/reasoning_suite.md").read_text(encoding="utf-8")
    assert f"one layer, applied {transformers.LOOPS} times |" in page
    assert f"one layer, applied {edges.ROUNDS} times (8 in" in page
    cell: Any = MODELS["second_order"].build(TASKS["s5"], SIZES).cell
    assert cell.normalize
