"""Operators with their projections compared with the released code's layout and order, in float64.

The released code has predicates last and projects pairs before summing; `modules` uses another order and must
give the same results.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folnet import modules, parameters
from tests.folnet import known_dropout, small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

CONFIG = small.config(operators="jmc.atp")
D1, D2, H, S = CONFIG.hidden_size, CONFIG.relation_size, CONFIG.num_attention_heads, CONFIG.head_size
BATCH, LENGTH = 2, 5
RNG = np.random.default_rng(2)
U = RNG.normal(size=(BATCH, LENGTH, D1))
R = RNG.normal(size=(BATCH, LENGTH, LENGTH, D2))  # predicates last


def softmax(z, axis):
    powers = np.exp(z - z.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def drawn(name, config=CONFIG):
    """Returns a module, its parameters, and these in float64."""
    module = modules.MIXERS[name](config) if name in modules.MIXERS else getattr(modules, name)(config)
    shapes = jax.eval_shape(module.init, jax.random.key(0), *arguments(name))["params"]
    rng = np.random.default_rng(3)
    table = {key: 0.5 * rng.normal(size=leaf.shape) for key, leaf in parameters.flatten(shapes).items()}
    params = parameters.nest({key: jnp.asarray(leaf, jnp.float32) for key, leaf in table.items()})
    return module, params, table


def arguments(name, rows=slice(None)) -> Any:
    """Returns atoms of some tokens x, and of all tokens summed over."""
    u, r = U.astype(np.float32), np.moveaxis(R, -1, 1).astype(np.float32)
    return {
        "join": (r[:, :, rows], u),
        "mu": (r[:, :, rows],),
        "cjoin": (r[:, :, rows], u),
        "assoc": (u[:, rows], u),
        "trans": (r[:, :, rows], r),
        "prod": (u[:, rows], r[:, :, rows]),
        "Boolean": (u[:, rows],),
        "BooleanPairs": (r[:, :, rows], r.swapaxes(2, 3)[:, :, rows]),
    }[name]


def run(module, params, name):
    """Returns the module's conclusions, compiled."""
    return small.quickly(functools.partial(small.apply, module))(params, *arguments(name))


def heads(features):
    return features.reshape(*features.shape[:-1], H, S)


def released(name, p, dropped=1.0):
    """Computes the released operators by the notes' table.

    Unary atoms are [B, T, D1], binary atoms [B, T, T, D2]. `dropped` multiplies the kernel, which is
    [B, X, A, H] for join, [B, A, S, H] for cjoin and [B, X, A, C] for trans.
    """

    def write(conclusion):
        flat = conclusion.reshape(BATCH, LENGTH, -1) if name in ("join", "mu", "cjoin") else conclusion
        return flat @ p["writer.weight"] + p["writer.bias"]

    def linear(part, inputs):
        return inputs @ p[f"{part}.weight"] + p[f"{part}.bias"]

    match name:
        case "join":
            kernel = dropped * softmax(R @ p["kernel.weight"], 2)
            return write(np.einsum("bxah,bahs->bxhs", kernel, heads(linear("premise", U))))
        case "mu":
            read = R @ p["reader.weight"]
            return write(np.einsum("bxah,bxas->bxhs", softmax(read[..., :H], 2), read[..., H:]))
        case "cjoin":
            kernel = dropped * softmax((U @ p["kernel.weight"]).reshape(BATCH, LENGTH, S, H), 1)
            return write(np.einsum("bxsh,bxys->bysh", kernel, linear("premise", R)))
        case "assoc":
            q, k = np.split(linear("reader", U) / S**0.25, 2, axis=-1)
            return write(np.einsum("bxhs,byhs->bxyh", heads(q), heads(k)))
        case "trans":
            kernel, premise = np.split(R @ p["reader.weight"], 2, axis=-1)
            return write(np.einsum("bxac,bayc->bxyc", dropped * softmax(kernel, 2), premise))
        case "prod":
            q, k = heads(linear("kernel", U)) / S**0.25, linear("premise", R) / S**0.25
            return write(np.einsum("bxhs,bxys->bxyh", q, k))
        case "Boolean":
            return linear("clause_out", np.maximum(linear("clause_in", U), 0))
    converse = R.swapaxes(1, 2)
    hidden = np.maximum(linear("clause_in", np.concatenate((R, converse), axis=-1)), 0)
    return linear("clause_out", hidden) + linear("clause_skip", converse)


NAMES = (*modules.MIXERS, "Boolean", "BooleanPairs")


@pytest.mark.parametrize("name", NAMES)
def test_some_rows_are_those_of_all_as_released(name):
    """Conclusions about two tokens from all tokens, with all biases.

    The paper's cjoin, which alone can do so, is the released one of the converse.
    """
    module, params, table = drawn(name, CONFIG.replace(activation="relu", cjoin="paper"))
    rows = slice(1, 3)
    given = arguments(name, rows)
    if name == "cjoin":
        given = (arguments(name)[0].swapaxes(2, 3)[:, :, rows], given[1])
    got = np.asarray(small.quickly(functools.partial(small.apply, module))(params, *given))
    want = released(name, table)[:, rows]
    np.testing.assert_allclose(got if got.ndim == 3 else np.moveaxis(got, 1, -1), want, atol=2e-5)


def test_cjoin_as_released():
    module, params, table = drawn("cjoin")
    np.testing.assert_allclose(run(module, params, "cjoin"), released("cjoin", table), atol=2e-5)


@pytest.mark.parametrize("name", ["Boolean", "BooleanPairs"])
def test_reglu(name):
    """relu(gate) times the other map, without another activation."""
    module, params, table = drawn(name, CONFIG.replace(activation="reglu"))
    inputs = U if name == "Boolean" else np.concatenate((R, R.swapaxes(1, 2)), axis=-1)
    gate, direct = (inputs @ table[f"{k}.weight"] + table[f"{k}.bias"] for k in ("gate", "clause_in"))
    want = (np.maximum(gate, 0) * direct) @ table["clause_out.weight"] + table["clause_out.bias"]
    if name == "BooleanPairs":
        want += R.swapaxes(1, 2) @ table["clause_skip.weight"] + table["clause_skip.bias"]
    got = np.asarray(run(module, params, name))
    np.testing.assert_allclose(got if got.ndim == 3 else np.moveaxis(got, 1, -1), want, atol=5e-5)


@pytest.mark.parametrize(
    ("name", "shape", "order"),
    [
        ("join", (BATCH, H, LENGTH, LENGTH), (0, 2, 3, 1)),
        ("cjoin", (BATCH, S, H, LENGTH), (0, 3, 1, 2)),
        ("trans", (BATCH, D2, LENGTH, LENGTH), (0, 2, 3, 1)),
    ],
)
def test_kernels_drop(name, shape, order):
    """After the softmax, once, at the rate of kernels."""
    config = CONFIG.replace(attention_probs_dropout_prob=0.3, hidden_dropout_prob=0.7)
    module, params, table = drawn(name, config)
    apply = functools.partial(small.apply, module, deterministic=False, rngs={"dropout": small.key()})
    with known_dropout.known() as drop:
        got = np.asarray(small.quickly(apply)(params, *arguments(name)))
    assert drop.places() == {(0.3, shape): 1}
    want = released(name, table, np.asarray(known_dropout.weights(0.3, shape)).transpose(order))
    np.testing.assert_allclose(got if got.ndim == 3 else np.moveaxis(got, 1, -1), want, atol=2e-5)


@pytest.mark.parametrize("name", ["join", "cjoin", "trans"])
def test_nothing_is_drawn_at_a_rate_of_0(name):
    """There need be no key then."""
    module, params, _ = drawn(name, CONFIG.replace(attention_probs_dropout_prob=0.0))
    jax.eval_shape(functools.partial(small.apply, module, deterministic=False), params, *arguments(name))


@pytest.mark.parametrize("name", NAMES)
def test_parameters_take_the_type_of_the_atoms(name):
    module, params, _ = drawn(name)
    half = [jnp.asarray(array, jnp.bfloat16) for array in arguments(name)]
    assert jax.eval_shape(functools.partial(small.apply, module), params, *half).dtype == jnp.bfloat16


def test_trans_passes_on_its_implementation():
    """An unknown one is refused; the reference gives the same conclusions."""
    module, params, table = drawn("trans", CONFIG.replace(trans_implementation="reference"))
    got = run(module, params, "trans")
    np.testing.assert_allclose(np.moveaxis(got, 1, -1), released("trans", table), atol=2e-5)
    module, params, _ = drawn("trans")
    with pytest.raises(ValueError, match="implementation: got 'none_of_them'"):
        run(type(module)(CONFIG.replace(trans_implementation="none_of_them")), params, "trans")


def test_mu_does_not_drop():
    """It takes no key and no such argument, as released."""
    with pytest.raises(TypeError, match="deterministic"):
        small.apply(drawn("mu")[0], drawn("mu")[1], *arguments("mu"), deterministic=False)
