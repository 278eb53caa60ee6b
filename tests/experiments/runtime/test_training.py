"""Gradients in parts: those of the whole batch, for sums over rows with masks and draws."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments import runtime
from experiments.runtime import mesh, training

pytestmark = pytest.mark.usefixtures("compiled_quickly")

ROWS = 12


def loss(params, batch, key):
    """Squares of a network with dropout, masked unevenly, over a mean that needs the whole batch's count."""
    kept = jax.random.bernoulli(key, 0.6, batch["x"].shape)
    error = jnp.tanh(batch["x"] * kept @ params["w"]) @ params["v"] - batch["y"]
    count = jnp.sum(batch["mask"])
    total = jnp.sum(error**2 * batch["mask"]) / batch["shown"]
    return runtime.Sums(total, count, {"kept": (jnp.sum(kept), kept.size)})


def batch():
    random = np.random.default_rng(0)
    mask = random.uniform(size=(ROWS, 3)) < np.linspace(1, 0.1, ROWS)[:, None]
    return {
        "x": jnp.asarray(random.normal(size=(ROWS, 5)), jnp.float32),
        "y": jnp.asarray(random.normal(size=(ROWS, 3)), jnp.float32),
        "mask": jnp.asarray(mask),
        "shown": jnp.float32(mask.sum()),
    }


def gradient(parts):
    random = np.random.default_rng(1)
    params = {"w": random.normal(size=(5, 8)), "v": random.normal(size=(8, 3))}
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), params)
    task = training.Task(0, ROWS, lambda key: params, loss, optax.sgd(1.0), accumulate=parts)
    compute = jax.jit(lambda: training.accumulated_gradient(task, params, batch(), jax.random.key(2), rows))
    rows = jnp.arange(ROWS)
    return compute(), compute()


def test_the_gradient_in_parts_is_that_of_the_whole():
    """Also the metrics, exactly where they count; the same number of parts gives the same bits."""
    (expected, sums), _ = gradient(1)
    assert 0.4 < float(sums.metrics["kept"][0] / sums.metrics["kept"][1]) < 0.8
    for parts in (2, 3, 12):
        (found, of_parts), again = gradient(parts)
        for name, array in expected.items():
            rounding = 2e-6 * np.abs(array).max()
            np.testing.assert_allclose(found[name], array, rtol=0, atol=rounding, err_msg=name)
            np.testing.assert_array_equal(found[name], again[0][name])
        np.testing.assert_allclose(of_parts.numerator, sums.numerator, rtol=1e-6)
        assert of_parts.denominator == sums.denominator
        assert of_parts.metrics == sums.metrics


@pytest.mark.parametrize(("parts", "rows"), [(5, 12), (0, 12), (24, 12)])
def test_uneven_parts_are_refused(parts, rows):
    with pytest.raises(ValueError, match=f"accumulate: got {parts}, expected a divisor of 12, the rows of"):
        training.check_parts(parts, rows)
    task = training.Task(0, 12, lambda key: {}, loss, optax.sgd(1.0), accumulate=parts)
    with pytest.raises(ValueError, match=f"accumulate: got {parts}"):
        training.Program(task, "jit")


def test_a_batch_is_divided_among_the_devices_before_it_is_in_parts(monkeypatch):
    task = training.Task(0, 12, lambda key: {}, loss, optax.sgd(1.0), accumulate=4)
    with pytest.raises(ValueError, match="mesh: got data:3,model:1 for 3 devices"):
        training.Program(task, mesh.Layout("jit", data=3))
    monkeypatch.setattr(jax, "device_count", lambda: 2)
    monkeypatch.setattr(mesh.Layout, "mesh", lambda self: jax.sharding.AbstractMesh((2,), ("data",)))
    with pytest.raises(ValueError, match="accumulate: got 4, expected a divisor of 6, the rows of"):
        training.Program(task, "jit")


def sampled(sample, **others):
    """Returns a program whose batches are drawn by `sample`, and its state without numbers."""
    params = {"w": jnp.ones((5, 8)), "v": jnp.ones((8, 3))}
    task = training.Task(0, ROWS, lambda key: params, loss, optax.sgd(1.0), sample, **others)
    program = training.Program(task, "jit")
    return program, program.abstract_state()


def test_a_batch_is_drawn_and_has_its_size():
    """Also where the program is compiled without having been checked."""
    for sample, message in (
        (None, "sample: got None, expected a function when there is no batch"),
        (lambda key, step: jax.tree.map(lambda leaf: leaf[:6] if leaf.ndim else leaf, batch()), "got shape"),
    ):
        program, state = sampled(sample)
        with pytest.raises(ValueError, match=message):
            program.compile_chunk(state, 2)


def test_totals_are_there_when_the_loss_is_checked():
    """They are computed from the drawn batch."""
    parts = batch()
    del parts["shown"]
    given = []

    def totals(drawn):
        given.append(sorted(drawn))
        return {"shown": jnp.float32(1)}

    program, state = sampled(lambda key, step: parts, totals=totals)
    program.check(state)
    assert given == [["mask", "x", "y"]]


def test_runs_of_several_seeds_share_their_programs():
    """A seed in a program would have each run of a comparison compile it again."""

    def lowered(seed):
        task = training.Task(
            seed, ROWS, lambda key: {"w": jax.random.normal(key, (5, 8)), "v": jnp.ones((8, 3))}, loss,
            optax.sgd(1.0), lambda key, step: batch() | {"y": jax.random.normal(key, (ROWS, 3))},
        )  # fmt: skip
        program = training.Program(task, "jit")
        state = program.initial()
        chunk: Any = program.compile_chunk(state, 2)
        initial = np.asarray(state.params["w"])  # before the state is donated
        # What a compilation cache looks at: the instructions without where they were traced.
        operations = re.sub(r", metadata={.*?}", "", chunk.as_text().partition("ENTRY")[2])
        return operations, initial, chunk(state, program.key)[0].params["w"]

    (operations, *numbers), (of_other, *others) = map(lowered, (0, 1))
    assert operations
    assert operations == of_other
    for one, other in zip(numbers, others, strict=True):
        assert np.abs(np.asarray(one) - np.asarray(other)).min() > 0
