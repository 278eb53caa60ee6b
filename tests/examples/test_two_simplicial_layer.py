"""The example of attention to pairs: its labels, a short run, and the result of a full run."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples import two_simplicial_layer as example
from tests.examples import small_example
from tests.simplicial.small import draw, parameters, quickly


@pytest.mark.slow  # ten seconds of compiling
@pytest.mark.usefixtures("compiled_quickly")
def test_a_short_run_is_complete(tmp_path, monkeypatch):
    monkeypatch.setattr(example, "KINDS", ("trilinear",))  # all three are compiled by the slow test
    numbers = example.main(["--steps=2", f"--out={tmp_path}"])
    small_example.complete(numbers, tmp_path, "accuracy.png")


def test_all_kinds_have_about_as_many_parameters():
    x = jnp.zeros((1, example.NUMBERS), int)
    counts = []
    for kind in example.KINDS:
        params = jax.eval_shape(example.Transformer(kind).init, jax.random.key(0), x)
        counts.append(sum(leaf.size for leaf in jax.tree.leaves(params)))
    assert max(counts) < 1.03 * min(counts)


def test_labels_are_those_of_the_definition():
    for row, answers in zip(*quickly(lambda key: example.draw(key, 20))(jax.random.key(3)), strict=True):
        for i, answer in enumerate(answers):
            others = itertools.combinations([n for place, n in enumerate(row) if place != i], 2)
            assert answer == any((row[i] + a + b) % example.MODULUS == 0 for a, b in others)


def test_the_trilinear_layer_is_its_formula():
    """Softmax of sum_d q k1 k2 over the pairs that the mask allows, of two heads side by side."""
    layer, x = example.TrilinearAttention(num_heads=2, features=6), draw(0, 2, example.NUMBERS, 5)
    variables = parameters(layer, x, example.DISTINCT)
    kernel, bilinear = variables["params"]["Dense_0"]["kernel"], variables["params"]["bilinear"]
    query, key1, key2, value = np.split((x @ kernel).reshape(2, example.NUMBERS, 2, 12), 4, axis=-1)
    logits = np.einsum("bihd,bjhd,bkhd->bhijk", query, key1, key2)
    weights = np.where(example.DISTINCT, np.exp(logits), 0)
    weights /= weights.sum((-1, -2), keepdims=True)
    wanted = np.einsum("bhijk,hfrs,bjhr,bkhs->bihf", weights, bilinear, value, value)
    got = quickly(layer.apply)(variables, x, example.DISTINCT)
    np.testing.assert_allclose(got, wanted.reshape(2, example.NUMBERS, 6), rtol=1e-4, atol=1e-5)
    for i, j, k in np.ndindex(example.DISTINCT.shape):
        assert example.DISTINCT[i, j, k] == (len({i, j, k}) == 3)


@pytest.mark.slow
def test_trilinear_attention_learns_more_of_it_than_the_other_two(tmp_path):
    numbers = small_example.run("two_simplicial_layer", tmp_path)
    reached = {kind: numbers[kind]["curve"][-1][1] for kind in example.KINDS}
    assert reached["trilinear"] > 0.9
    assert reached["trilinear"] > reached["ordinary"] + 0.08
    assert reached["ordinary"] > numbers["always_the_commoner"] + 0.1
