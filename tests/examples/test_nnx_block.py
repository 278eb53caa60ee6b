"""The example of a module in NNX: its answers, a short run, and the result of a full run."""

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from examples import nnx_block as example
from tests.examples import small_example
from tests.simplicial.small import quickly


@pytest.mark.slow  # seconds of compiling
@pytest.mark.usefixtures("compiled_quickly")
def test_a_short_run_is_complete(tmp_path, monkeypatch):
    monkeypatch.setattr(example, "KINDS", ("TP attention",))  # all three are compiled by the slow test
    numbers = example.main(["--steps=2", f"--out={tmp_path}"])
    small_example.complete(numbers, tmp_path, "accuracy.png")


def test_answers_are_looked_up_and_shifted():
    fields, answers, held_out = quickly(lambda key: example.draw(key, 20))(jax.random.key(3))
    for cells, right, left_out in zip(fields, answers, held_out, strict=True):
        number_of = {name: number for name, number, _, _ in cells}
        assert len(number_of) == example.CELLS
        for (_, _, asked, shift), answer, out in zip(cells, right, left_out, strict=True):
            assert answer == (number_of[asked] + shift) % example.MODULUS
            assert out == example.HELD_OUT[number_of[asked], shift]
    assert 0.1 < held_out.mean() < 0.3
    assert fields.max(axis=(0, 1)).tolist() == [size - 1 for size in example.FIELDS]


def test_kinds_have_the_parameters_that_the_text_says():
    counts = []
    for kind in example.KINDS:
        model = nnx.eval_shape(lambda kind=kind: example.Model(kind, nnx.Rngs(0)))
        counts.append(sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model, nnx.Param))))
        fields = jnp.zeros((2, example.CELLS, 4), int)
        logits = nnx.eval_shape(lambda model, fields: model(fields), model, fields)
        assert logits.shape == (2, example.CELLS, example.MODULUS)
    plain, with_mlp, with_roles = counts
    assert plain < with_roles <= with_mlp < 1.01 * with_roles


@pytest.mark.slow
def test_roles_answer_for_pairs_that_were_held_out(tmp_path):
    numbers = small_example.run("nnx_block", tmp_path)
    reached = {kind: numbers[kind]["curve"][-1] for kind in example.KINDS}
    assert min(trained for _, trained, _ in reached.values()) > 0.9
    assert reached["TP attention"][2] > 0.25
    assert max(reached[kind][2] for kind in example.KINDS[:2]) < 0.15
