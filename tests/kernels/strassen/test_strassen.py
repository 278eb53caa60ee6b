"""Strassen attention: the definition against loops, products of matrices against the definition, errors."""

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels import strassen_attention
from kernels.strassen import reference, xla

pytestmark = pytest.mark.usefixtures("compiled_quickly")
N, M = 7, 5


def make(factor=1.0, dtype=np.float64, batch=(2,), n=N, m=M):
    """Query, keys and values of 2 heads, with D = 4 and E = 3; logits grow with the square of `factor`."""
    draw = np.random.default_rng(0).normal
    keys = [factor * draw(size=(*batch, size, 2, 4)) for size in (n, m, m)]
    values = [draw(size=(*batch, m, 2, 3)) for _ in range(2)]
    return [x.astype(dtype) for x in (*keys, *values)]


def loops(query, key1, key2, value1, value2, scale, mask):
    """The formula in the paper, triple by triple, of one example without a batch axis."""
    out = np.zeros((*query.shape[:2], value1.shape[-1]))
    for i, h in np.ndindex(query.shape[:2]):
        pairs = [(j, k) for j in range(len(key1)) for k in range(len(key1)) if mask[i, j] and mask[i, k]]
        if not pairs:
            continue
        f = query[i, h]
        logits = np.array(
            [f @ key1[j, h] + key1[j, h] @ key2[k, h] + key2[k, h] @ f for j, k in pairs], np.float64
        )
        weights = np.exp(scale * (logits - logits.max()))
        values = np.array([value1[j, h] * value2[k, h] for j, k in pairs])
        out[i, h] = weights @ values / weights.sum()
    return out


MASK = np.random.default_rng(1).random((2, N, M)) < 0.6
MASK[1, 2] = False


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("implementation", ["reference", "xla"])
@pytest.mark.parametrize("factor", [1.0, 30.0], ids=["usual", "logits of thousands"])
def test_values_are_those_of_the_loops(implementation, factor):
    arrays = make(factor)
    for mask, scale in ((None, None), (MASK, 0.3)):
        got = jax.jit(
            lambda *x, mask=mask, scale=scale: strassen_attention(
                *x, mask=mask, scale=scale, implementation=implementation
            )
        )(*arrays)
        for b, one in enumerate(zip(*arrays, strict=True)):
            allowed = np.ones((N, M), bool) if mask is None else mask[b]
            wanted = loops(*one, scale=scale or 0.5, mask=allowed)
            np.testing.assert_allclose(got[b], wanted, rtol=1e-9, atol=1e-12)
    assert np.all(got[1, 2] == 0)


def test_float32_is_as_accurate_as_a_softmax_over_all_logits():
    """Also where some rows' factors underflow and others' do not, and in blocks that do not divide N."""
    probe = np.random.default_rng(2).normal(size=(2, 11, 2, 3))

    def value_and_grads(function, arrays, **options):
        def loss(*x):
            out = function(*x, scale=0.5, **options)
            return jnp.sum(out * probe.astype(out.dtype)), out

        _, pull, out = jax.vjp(loss, *map(jnp.asarray, arrays), has_aux=True)
        return [out, *pull(jnp.ones((), out.dtype))]

    definition = jax.jit(lambda x: value_and_grads(reference.strassen_attention, x))
    blockwise = jax.jit(lambda x: value_and_grads(xla.strassen_attention, x, block=4))
    for factor in (1.0, 4.0, 20.0):
        arrays = make(factor, np.float32, n=11, m=9)
        with jax.enable_x64(True):
            wanted = jax.device_get(definition([x.astype(np.float64) for x in arrays]))
        found = [jax.device_get(function(arrays)) for function in (blockwise, definition)]
        for want, mine, theirs in zip(wanted, *found, strict=True):
            # Where one pair has all the weight, a query's gradient is 0: rounding errors times the keys.
            size = max(np.linalg.norm(want), 0.1 * np.sqrt(want.size))
            error, usual = (np.linalg.norm(x - want) / size for x in (mine, theirs))
            assert error < 3 * usual + 2e-6 * factor, (factor, error, usual)


@pytest.mark.parametrize("factor", [1.0, 20.0])
def test_triples_are_computed_only_where_factors_underflow(factor, monkeypatch):
    """By the rows that they return: NaN instead shows which."""
    monkeypatch.setattr(
        xla, "_by_triples", lambda a, c, pairs, first, second: jnp.full((2, 2, 1, 4), jnp.nan)
    )
    function = functools.partial(xla.strassen_attention, scale=0.5, block=1)
    out = jax.jit(function)(*make(factor, np.float32))
    assert np.isnan(out).any() == (factor == 20.0)


def test_what_nobody_attends_to_may_hold_anything():
    mask = np.ones((2, N, M), bool)
    mask[:, :, 3] = False
    arrays = make(dtype=np.float32)
    hidden = [arrays[0], *(x.copy() for x in arrays[1:])]
    for x in hidden[1:]:
        x[:, 3] = np.nan

    @jax.jit
    def value_and_grads(*arrays):
        return jax.value_and_grad(lambda x: jnp.sum(strassen_attention(*x, mask=mask) ** 2))(arrays)

    jax.tree.map(np.testing.assert_array_equal, value_and_grads(*hidden), value_and_grads(*arrays))


def test_memory_is_that_of_pairs_and_not_of_triples():
    def needed(function, n):
        shapes = [jax.ShapeDtypeStruct((1, n, 1, 8), jnp.float32)] * 5
        gradients = jax.grad(lambda *x: jnp.sum(function(*x) ** 2), argnums=range(5))
        analysis: Any = jax.jit(gradients).lower(*shapes).compile().memory_analysis()
        return analysis.temp_size_in_bytes

    blockwise = functools.partial(xla.strassen_attention, block=8)
    assert needed(blockwise, 128) < 40 * 128**2 * 4  # a third of one array over triples


def test_batch_axes_and_empty_ones():
    arrays = make(dtype=np.float32, batch=(2, 3))
    flat = [x.reshape(6, *x.shape[2:]) for x in arrays]
    got, wanted = jax.jit(strassen_attention)(*arrays), jax.jit(strassen_attention)(*flat)
    np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)
    assert strassen_attention(arrays[0], *(x[..., :0, :, :] for x in arrays[1:])).shape == got.shape


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key2": np.ones((2, M + 1, 2, 4))}, "key2: got shape (2, 6, 2, 4), expected [..., M, H, D]"),
        ({"value1": np.ones((2, M, 1, 3))}, "value1: got shape (2, 5, 1, 3), expected [..., M, H, E]"),
        ({"value2": np.ones((2, M, 2, 4))}, "value2: got shape (2, 5, 2, 4), expected [..., M, H, E]"),
        ({"key1": np.ones((1, M, 2, 4))}, "key1: got shape (1, 5, 2, 4), expected [..., M, H, D]"),
        ({"query": np.ones((2, N, 2, 4), int)}, "query: got dtype int"),
        (
            {"mask": np.ones((N, N), bool)},
            "mask: got shape (7, 7), expected one that broadcasts to [..., N, M]",
        ),
        ({"value1": np.ones(2, np.float32)}, "value1: got shape (2,), expected"),
        ({"scale": 0.0}, "scale: got 0.0, expected a finite number greater than 0"),
        ({"implementation": "gpu"}, "implementation: got 'gpu', expected None, 'reference' or 'xla'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_errors(change, message):
    names = ("query", "key1", "key2", "value1", "value2")
    arguments = dict(zip(names, make(dtype=np.float32), strict=True)) | change
    with pytest.raises(ValueError, match=re.escape(message)):
        strassen_attention(**arguments)
