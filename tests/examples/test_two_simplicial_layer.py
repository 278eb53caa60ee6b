"""The example of attention to pairs: its labels, a short run, and the result of a full run."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples import two_simplicial_layer as example
from tests.examples import small_example


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
    x, labels = example.draw(jax.random.key(3), 20)
    for row, answers in zip(np.asarray(x), np.asarray(labels), strict=True):
        for i, answer in enumerate(answers):
            others = itertools.combinations([n for place, n in enumerate(row) if place != i], 2)
            assert answer == any((row[i] + a + b) % example.MODULUS == 0 for a, b in others)


@pytest.mark.slow
def test_trilinear_attention_learns_more_of_it_than_the_other_two(tmp_path):
    numbers = small_example.run("two_simplicial_layer", tmp_path)
    reached = {kind: numbers[kind]["curve"][-1][1] for kind in example.KINDS}
    assert reached["trilinear"] > 0.9
    assert reached["trilinear"] > reached["ordinary"] + 0.08
    assert reached["ordinary"] > numbers["always_the_commoner"] + 0.1
