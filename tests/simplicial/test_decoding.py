"""Decoding with a cache: the same outputs as without, and NaN or an error where it cannot answer."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from flax.nnx import bridge

from simplicial import RotaryAttention, SimplicialDecoder, TrilinearAttention, TwoSimplicialAttention
from tests.simplicial import numpy_agent
from tests.simplicial.small import draw, on_host, parameters

pytestmark = pytest.mark.usefixtures("compiled_quickly")
LENGTH, WIDTH = 9, 10
INPUTS = draw(0, 2, LENGTH, WIDTH).astype(np.float32)


def decoding(module, inputs, length):
    """Returns parameters and a function from what was read before and more inputs to outputs and all that."""
    longest = np.zeros((*inputs.shape[:1], length, *inputs.shape[2:]), inputs.dtype)
    decoder = module.clone(decode=True)
    cache = jax.eval_shape(decoder.init, jax.random.key(0), longest)["cache"]
    empty = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), cache)
    params = parameters(module, inputs)["params"]
    apply = on_host(lambda variables, inputs: decoder.apply(variables, inputs, mutable=["cache"]))
    return params, empty, lambda cache, inputs: apply({"params": params, "cache": cache}, inputs)


def stepwise(read, state, inputs, prompt):
    """Reads a prompt, then one position at a time; returns all outputs."""
    outputs = []
    for start in ([0] if prompt else []) + list(range(prompt, inputs.shape[1])):
        end = start + 1 if start >= prompt else prompt
        out, state = read(state, inputs[:, start:end])
        state = state["cache"]
        outputs.append(out)
    return np.concatenate(outputs, axis=1)


GROUPED = TrilinearAttention(4, 12, num_groups=2, window1=2, window2=4)
MODULES = {
    "trilinear": (GROUPED, 0),
    "signed, wider window first": (
        TrilinearAttention(2, 12, num_groups=1, window1=5, window2=1, logit="signed", scale=2.0),
        7,
    ),
    "all the past": (TrilinearAttention(2, 6), 3),
    "rotary": (RotaryAttention(4, 8, num_groups=2, window=3), 4),
}


@pytest.mark.parametrize("name", MODULES)
def test_decoding_is_the_whole_sequence_at_once(name):
    """With no prompt, and with prompts shorter and longer than the windows."""
    module, prompt = MODULES[name]
    params, empty, read = decoding(module, INPUTS, LENGTH)
    wanted = on_host(module.apply)({"params": params}, INPUTS)
    got = stepwise(read, empty, INPUTS, prompt)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_two_simplicial_attention_decodes_as_under_a_causal_mask():
    module = TwoSimplicialAttention(2, 12, logit="signed", scale=0.5)
    params, empty, read = decoding(module, INPUTS, LENGTH)
    seen = np.tri(LENGTH, dtype=bool)
    mask = seen[None, :, :, None] & seen[None, :, None, :]
    wanted = on_host(module.apply)({"params": params}, INPUTS, mask=mask)
    got = stepwise(read, empty, INPUTS, 4)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_a_mask_holds_with_a_cache_too():
    """The outputs after a position that no pair may include are those of the others alone."""
    params, empty, _ = decoding(TwoSimplicialAttention(1, 6), INPUTS, LENGTH)
    decoder = TwoSimplicialAttention(1, 6, decode=True)
    there = np.arange(LENGTH) != 2
    apply = on_host(functools.partial(decoder.apply, mutable=["cache"]))
    got, _ = apply({"params": params, "cache": empty}, INPUTS, mask=(there[:, None] & there)[None])
    for i in (4, LENGTH - 1):
        others = INPUTS[0, : i + 1][there[: i + 1]]
        both = np.concatenate([others, others])
        want, _ = numpy_agent.two_simplicial(params["qkkv"]["kernel"], params["bilinear"], both, len(others))
        np.testing.assert_allclose(got[0, i], want[len(others) - 1], rtol=1e-4, atol=1e-5)


def test_a_model_decodes():
    """One attention is rotary and sees all the past, the other is trilinear."""
    model = SimplicialDecoder(
        7, features=12, num_layers=2, num_heads=2, hidden=5, every=2, window1=2, window2=4, logit="signed"
    )
    tokens = np.random.default_rng(1).integers(0, 7, (2, LENGTH), np.int32)
    params, empty, read = decoding(model, tokens, LENGTH)
    wanted = on_host(model.apply)({"params": params}, tokens)
    np.testing.assert_allclose(stepwise(read, empty, tokens, 0), wanted, rtol=1e-5, atol=1e-5)


def test_a_cache_is_as_large_as_its_windows():
    """And steps go on beyond the greatest length, if no window is wider than that."""
    module = TrilinearAttention(2, 6, num_groups=1, window1=2, window2=3)
    params, empty, read = decoding(module, INPUTS, 4)
    sizes = {leaf.shape[1] for leaf in jax.tree.leaves(empty) if leaf.ndim}
    assert sizes == {2, 3}
    wanted = on_host(module.apply)({"params": params}, INPUTS)
    np.testing.assert_allclose(stepwise(read, empty, INPUTS, 2), wanted, rtol=1e-5, atol=1e-5)


def test_positions_that_are_lost_give_nan():
    """Beyond the greatest length, for a window that is wider; before it, nothing is NaN."""
    for module in (TrilinearAttention(2, 6, window1=2), RotaryAttention(2, 8, window=5)):
        _, empty, read = decoding(module, INPUTS, 4)
        outputs = stepwise(read, empty, INPUTS[:, :6], 0)
        np.testing.assert_array_equal(np.isnan(outputs).all(axis=(0, 2)), [False] * 4 + [True] * 2)
        assert np.isfinite(outputs[:, :4]).all()


def test_a_prompt_after_other_positions_gives_nan():
    _, empty, read = decoding(GROUPED, INPUTS, LENGTH)
    out, state = read(empty, INPUTS[:, :2])
    assert np.isfinite(out).all()
    assert np.isnan(read(state["cache"], INPUTS[:, 2:4])[0]).all()


@pytest.mark.slow  # tests/test_nnx.py compares programs; this one is about the collection
def test_a_cache_in_nnx():
    """The bridge keeps it in the module."""
    module = TrilinearAttention(2, 6, window1=2, window2=3)
    inputs = jnp.asarray(INPUTS[:, :4])
    model = bridge.ToNNX(module.clone(decode=True)).lazy_init(inputs, rngs=jax.random.key(0))
    wanted = on_host(module.apply)({"params": nnx.to_pure_dict(nnx.state(model, nnx.Param))}, inputs)
    got = [model(inputs[:, at], mutable=["cache"]) for at in (slice(0, 2), slice(2, 3), slice(3, 4))]
    np.testing.assert_allclose(np.concatenate(got, axis=1), wanted, rtol=1e-5, atol=1e-5)


def test_errors_say_what_the_cache_was_made_for():
    for inputs, message in (
        (INPUTS[:1, :2], "inputs: got keys or values of shape (1, 2, 2, 3), expected the batch"),
        (INPUTS[:, :5], "inputs: got 5 positions, expected at most 4"),
    ):
        _, empty, read = decoding(TrilinearAttention(2, 6), INPUTS, 4)
        with pytest.raises(ValueError, match=re.escape(message)):
            read(empty, inputs)
    assert read(empty, INPUTS[:, :4])[0].shape == (2, 4, 10)
    two = TwoSimplicialAttention(1, 6, decode=True)
    with pytest.raises(ValueError, match="context: got one with decode=True"):
        jax.eval_shape(two.init, jax.random.key(0), INPUTS, INPUTS)
