"""Tests the sequence model: output equations, cells by name, recorded values, one scan per sequence."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from llrnn import cells, memory, model
from tests import jaxprs

pytestmark = pytest.mark.usefixtures("compiled_quickly")

OPTIONS = {
    "higher_order": {"max_power": 2},
    "operator_ntm": {"memory_size": 3},
    "pattern_ntm": {"memory_size": 8, "memory_width": 4, "program_size": 3, "sharpen": True},
    "multiple_pattern_ntm": {"memory_size": 8, "memory_width": 4, "program_size": 3},
    "polynomial_ntm": {"memory_size": 8, "memory_width": 4, "program_size": 3},
    "ntm": {"memory_size": 8, "memory_width": 4, "erase": True, "sharpen": True},
    "dihedral_ntm": {"memory_size": 8, "memory_width": 4},
}


def quickly(function: Any) -> Any:
    """Compiles a function without optimisation, since compilation dominates the time of these tests."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def apply(module: Any, variables: Any, *args: Any) -> Any:
    return quickly(module.apply)(variables, *args)


def initialised(module: Any, x: Any) -> Any:
    """Returns random variables of the right shapes, without compiling the initialisation."""
    shapes = jax.eval_shape(module.init, jax.random.key(0), x)
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: jnp.asarray(0.4 * rng.normal(size=leaf.shape), leaf.dtype), shapes)


def normal(*shape: int) -> Any:
    """Returns normal inputs in float32."""
    return jnp.asarray(np.random.default_rng(1).normal(size=shape), jnp.float32)


def made(name):
    return model.make_cell(name, features=6, **OPTIONS.get(name, {}))


def scans(closed):
    """Returns the loops that are not in the body of another."""
    outside = jaxprs.equations(closed.jaxpr, closed=("scan", "while"))
    return [equation for equation in outside if equation.primitive.name == "scan"]


@pytest.mark.parametrize("name", model.CELLS)
def test_every_cell_runs_in_one_scan(name):
    net = model.RecurrentModel(made(name), num_outputs=4)
    x = jax.ShapeDtypeStruct((2, 6, 5), jnp.float32)
    variables = jax.eval_shape(net.init, jax.random.key(0), x)
    assert set(variables) == {"params"}
    jaxpr, output = jax.make_jaxpr(net.apply, return_shape=True)(variables, x)
    assert len(scans(jaxpr)) == 1
    assert (output.logits.shape, output.hidden.shape) == ((2, 6, 4), (2, 6, 6))


def test_a_cell_trains_and_its_past_is_its_past():
    net = model.RecurrentModel(made("ntm"), num_outputs=4)
    x = normal(2, 6, 5)
    variables = initialised(net, x)

    def loss(variables, x):
        logits = cast(Any, net.apply(variables, x)).logits
        return (logits[:, :3] ** 2).sum()  # a loss of the first three steps

    grads, to_x = jax.device_get(quickly(jax.grad(loss, argnums=(0, 1)))(variables, x))
    leaves = jax.tree.leaves(grads)
    assert all(np.isfinite(leaf).all() and np.abs(leaf).max() > 0 for leaf in leaves)
    # Later inputs do not affect the first three steps.
    assert np.abs(to_x[:, :3]).max() > 0
    assert np.abs(to_x[:, 3:]).max() == 0


def test_output_equations():
    x = np.asarray(normal(2, 3, 5))
    for hidden_outputs in (None, 7):
        net = model.RecurrentModel(cells.ElmanCell(6), num_outputs=4, hidden_outputs=hidden_outputs)
        variables = initialised(net, x)
        p = jax.tree.map(
            lambda leaf: (
                np.asarray(leaf) + np.linspace(-0.4, 0.5, leaf.size).reshape(leaf.shape).astype("f4")
            ),
            variables["params"],
        )
        output = apply(net, {"params": p}, x)
        y = np.asarray(output.hidden)
        if hidden_outputs:
            y = np.maximum(y @ p["hidden_outputs"]["kernel"] + p["hidden_outputs"]["bias"], 0)  # (2.2)
        want = y @ p["outputs"]["kernel"] + p["outputs"]["bias"]
        np.testing.assert_allclose(output.logits, want, rtol=1e-4, atol=1e-5)
        assert output.intermediates is None


def test_flax_lstm_is_flax_lstm():
    x = normal(2, 5, 3)
    net = model.RecurrentModel(model.make_cell("lstm", features=6), num_outputs=2)
    variables = initialised(net, x)
    alone = apply(nn.RNN(nn.OptimizedLSTMCell(6)), {"params": {"cell": variables["params"]["cell"]}}, x)
    np.testing.assert_allclose(apply(net, variables, x).hidden, alone, rtol=1e-6)


def test_intermediates_are_the_addresses_by_step():
    cell = made("multiple_pattern_ntm")
    net = model.RecurrentModel(cell, num_outputs=2)
    x = normal(3, 5, 4)
    variables = initialised(net, x)
    run = quickly(lambda variables, x: model.run_with_intermediates(net, variables, x))
    output = jax.device_get(run(variables, x))
    assert output.intermediates is not None
    assert set(output.intermediates) == {
        *(f"{kind}_address{suffix}" for kind in ("read", "write") for suffix in ("", "_2", "_3", "_4")),
        "gate",
    }
    assert output.intermediates["read_address"].shape == (3, 5, 8)
    # The same without a scan: the cell step by step.
    step = quickly(cell.apply)
    params = {"params": variables["params"]["cell"]}
    carry = quickly(lambda: cell.initialize_carry(jax.random.key(0), (3, 4)))()
    for t in range(5):
        carry, hidden = step(params, carry, np.asarray(x)[:, t])
        np.testing.assert_allclose(output.hidden[:, t], hidden, rtol=1e-4, atol=1e-6)
        for suffix, ring in zip(("", "_2", "_3", "_4"), carry.rings, strict=True):
            for kind in ("read_address", "write_address"):
                np.testing.assert_allclose(
                    output.intermediates[kind + suffix][:, t], getattr(ring, kind), rtol=1e-4, atol=1e-6
                )


def test_a_cell_that_records_nothing():
    net = model.RecurrentModel(cells.ElmanCell(3), num_outputs=2)
    x = jnp.ones((1, 2, 2))
    assert model.run_with_intermediates(net, initialised(net, x), x).intermediates == {}


def test_unrolling_changes_no_value():
    x = normal(2, 7, 3)
    once, often = (model.RecurrentModel(made("elman"), num_outputs=2, unroll=unroll) for unroll in (1, 4))
    variables = initialised(once, x)
    np.testing.assert_allclose(
        apply(once, variables, x).logits, apply(often, variables, x).logits, rtol=1e-5, atol=1e-6
    )
    for net, unroll in ((once, 1), (often, 4)):
        (scan,) = scans(jax.make_jaxpr(net.apply)(variables, x))
        assert (scan.params["unroll"], scan.params["reverse"]) == (unroll, False)


def test_logits_are_float32_in_a_bfloat16_model():
    """The output layers compute in bfloat16, which shows in their values."""
    cell = cells.ElmanCell(8, dtype=jnp.bfloat16)
    x = normal(2, 3, 4)
    for dtype in (jnp.bfloat16, None):
        net = model.RecurrentModel(cell, num_outputs=3, hidden_outputs=5, dtype=dtype)
        output = jax.device_get(cast(Any, net.apply(initialised(net, x), x)))
        assert output.logits.dtype == output.hidden.dtype == jnp.float32
        assert (output.logits.astype(jnp.bfloat16) == output.logits).all() == (dtype is not None)


def test_parameters_and_logits_may_be_float64():
    with jax.enable_x64(True):
        cell = cells.ElmanCell(8, param_dtype=jnp.float64)
        net = model.RecurrentModel(cell, num_outputs=3, hidden_outputs=5, param_dtype=jnp.float64)
        shapes = jax.eval_shape(net.init_with_output, jax.random.key(0), jnp.ones((1, 3, 2)))
        assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype("float64")}


def test_one_output_will_do():
    net = model.RecurrentModel(cells.ElmanCell(3), num_outputs=1, hidden_outputs=1)
    output, _ = jax.eval_shape(net.init_with_output, jax.random.key(0), jnp.ones((1, 3, 2)))
    assert output.logits.shape == (1, 3, 1)


def test_a_model_gets_room_where_its_cell_can_have_it():
    cell = memory.StackRNNCell(4, memory_size=6, memory_width=2)
    grown = model.with_room(model.RecurrentModel(cell, num_outputs=2), 40)
    assert grown == model.RecurrentModel(cell.with_room(40), num_outputs=2)
    net = model.RecurrentModel(cells.ElmanCell(3), num_outputs=2)
    assert model.with_room(net, 40) is net


def test_names():
    assert isinstance(model.make_cell("ntm", features=3, powers=(0, 1)), memory.NTMCell)
    with pytest.raises(
        ValueError, match="name: got 'gru', expected one of 'dihedral_ntm', 'elman', 'higher_order'"
    ):
        model.make_cell("gru", features=3)
    with pytest.raises(
        ValueError, match="options of elman: got 'memory_size', 'words', expected a subset of 'features'"
    ):
        model.make_cell("elman", features=3, words=(), memory_size=2)


@pytest.mark.parametrize(
    ("options", "shape", "message"),
    [
        ({"num_outputs": 2}, (2, 3), r"inputs: got shape \(2, 3\), expected \[B, T, I\]"),
        ({"num_outputs": 0}, (2, 3, 4), "num_outputs: got 0, expected at least 1"),
        (
            {"num_outputs": 2, "hidden_outputs": 0},
            (2, 3, 4),
            "hidden_outputs: got 0, expected None or at least 1",
        ),
    ],
)
def test_bad_arguments_are_named(options, shape, message):
    with pytest.raises(ValueError, match=message):
        model.RecurrentModel(cells.ElmanCell(3), **options).init(jax.random.key(0), jnp.ones(shape))
