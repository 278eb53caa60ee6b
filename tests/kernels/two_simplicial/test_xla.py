"""The blockwise path against the float64 definition: values, gradients, memory, second derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

from kernels.two_simplicial import reference, shapes, xla, xla_tiling
from kernels.two_simplicial.reference import Config, plain
from kernels.two_simplicial.shapes import Shape
from kernels.two_simplicial.xla_tiling import Budget
from tests import jaxprs
from tests.kernels.two_simplicial import cases

pytestmark = pytest.mark.usefixtures("compiled_quickly")

UNSIGNED, TRILINEAR, SIGNED = cases.CONFIGS
MIXED = Shape("mixed", batch=2, heads=3, queries=21, keys=11, features=9, value_features=5, out_features=4)

# Every loop runs several times and every axis but the features' is cut unevenly.
UNEVEN = {"batch": 1, "heads": 1, "queries": 16, "j": 4}


@functools.partial(jax.jit, static_argnums=(0, 1))
def run(config, blocks, arrays, dout):
    """Output, log-sum-exp and gradients; `blocks` as a tuple of items."""
    blocks = dict(blocks) or None
    out, lse = xla.forward(config, *arrays, blocks=blocks)
    return out, lse, xla.backward(config, *arrays, out, lse, dout, blocks=blocks)


def check(config, arrays, blocks=None, tolerance=1e-5):
    dout = cases.cotangent(arrays)
    got = run(config, tuple((blocks or {}).items()), arrays, dout)
    cases.check_answer(got, cases.expected(config, arrays, dout), tolerance)
    return got


def test_is_the_definition_for_one_key():
    check(UNSIGNED, cases.arrays(shapes.ONE))


@pytest.mark.parametrize(("keys", "few"), [(xla.FEW_KEYS, True), (xla.FEW_KEYS + 1, False)])
def test_pairs_of_few_keys_are_computed_at_once(keys, few, monkeypatch):
    calls, at_once = [], xla._forward_few
    monkeypatch.setattr(xla, "_forward_few", lambda *given: calls.append(1) or at_once(*given))
    arrays = cases.arrays(Shape("", 1, 1, 2, keys, 3))
    jax.eval_shape(lambda *x: xla.forward(TRILINEAR, *x), *arrays)
    assert bool(calls) == few


@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float32, 1e-5), (jnp.bfloat16, 2e-2)])
def test_a_cotangent_of_the_log_sum_exp(dtype, tolerance):
    """Which only second derivatives have."""
    *given, mask = (jnp.asarray(a) for a in cases.arrays(shapes.TINY, mask="padding", dtype=dtype))
    out, lse = jax.jit(functools.partial(xla.forward, TRILINEAR))(*given, mask)
    rng = np.random.default_rng(0)
    dout, dlse = (jnp.asarray(rng.normal(size=x.shape), x.dtype) for x in (out, lse))
    backward = jax.jit(functools.partial(xla.backward, TRILINEAR))
    got = backward(*given, mask, out, lse, dout, dresidual=dlse)

    @jax.jit
    def definition(*given):
        both = functools.partial(reference.two_simplicial_attention, TRILINEAR, mask=mask)
        return jax.vjp(both, *given)[1]((dout.astype(jnp.float32), dlse))

    for one, expected in zip(got, definition(*(x.astype(jnp.float32) for x in given)), strict=True):
        assert one.dtype == dtype
        cases.check(one, np.asarray(expected), tolerance)


MASKED = pytest.mark.parametrize(
    ("config", "mask"),
    [(cases.SOFT, "some rows"), (TRILINEAR, "padding"), (SIGNED, "causal")],
    ids=lambda x: getattr(x, "logit", x),
)


@MASKED
def test_is_the_definition_in_uneven_blocks(config, mask):
    out, lse, (dquery, *_) = check(config, cases.arrays(MIXED, mask=mask), UNEVEN)
    if mask == "some rows":  # those with nothing allowed are exactly 0
        for row in (out[:, ::3], lse[:, :, ::3], dquery[:, ::3]):
            np.testing.assert_array_equal(row, 0)


def test_the_agents_pairs():
    """Two keys have a forward pass of their own."""
    check(cases.SOFT, cases.arrays(Shape("pair", 3, 2, 40, 2, 48), mask="some rows"))


@MASKED
def test_vectors_where_a_naive_gradient_is_nan(config, mask):
    """In the programs of the test above, and of that of logits in the hundreds, whose eps is small."""
    for kind in cases.DEGENERATE:
        check(config, cases.arrays(MIXED, mask=mask, kind=kind), UNEVEN)
        if config.logit == "unsigned":
            check(UNSIGNED, cases.arrays(shapes.ODD, kind=kind), UNEVEN)


def test_what_is_masked_has_no_influence():
    """Not even an infinite logit: what is masked is replaced before it is used."""
    *inputs, allowed = cases.arrays(shapes.TINY, mask="padding")
    assert not np.all(allowed)
    absent = ~allowed[:, 0].any(axis=2)
    wild = [np.array(a) for a in inputs]
    for array in wild[1:3]:
        array[absent] = 1e15
    dout = cases.cotangent((*inputs, allowed))
    calm = run(UNSIGNED, (), (*inputs, allowed), dout)
    got = run(UNSIGNED, (), (*wild, allowed), dout)
    np.testing.assert_allclose(got[0], calm[0], rtol=1e-6)
    np.testing.assert_allclose(got[1], calm[1], rtol=1e-6)


@pytest.mark.parametrize("eps", [1e-6, 1e-15])
def test_gradients_are_finite_where_a_logit_has_none(eps):
    """The root of 0 has no gradient; nor has that of a square that is no normal float32."""
    config = Config("unsigned", scale=1e-5, eps=eps)
    arrays = cases.arrays(shapes.TINY)
    zero = (np.zeros_like(arrays[0]), *arrays[1:])
    out, _, gradients = run(config, (), zero, cases.cotangent(zero))
    for array in (out, *gradients):
        assert np.isfinite(array).all()


def test_logits_in_the_hundreds():
    """Softmaxes are then of one pair, and a logit's rounding is seen: no more than in the einsum path."""
    arrays = cases.arrays(shapes.ODD, kind="large")
    dout = cases.cotangent(arrays)
    want = cases.expected(UNSIGNED, arrays, dout)
    out, lse, gradients = run(UNSIGNED, tuple(UNEVEN.items()), arrays, dout)
    assert want.lse.max() > 100
    cases.check(lse, want.lse, 1e-6)
    cases.check(out, want.out, 1e-5)
    pull = jax.jit(lambda arrays, dout: jax.vjp(lambda *a: plain(UNSIGNED, *a), *arrays)[1](dout))
    others = pull(arrays[:5], dout)
    for name, mine, theirs, true in zip(cases.NAMES, gradients, others, want.gradients, strict=True):
        assert cases.error(mine, true) < max(1e-5, 10 * cases.error(theirs, true)), name


def test_products_with_values_are_fast_where_all_have_16_bits():
    narrow, wide = jnp.zeros(1, jnp.bfloat16), jnp.zeros(1)
    assert xla._precision(narrow, narrow) == jax.lax.Precision.DEFAULT
    assert xla._precision(narrow, wide) == xla._precision(wide, wide) == jax.lax.Precision.HIGHEST


def test_16_bits():
    arrays = cases.arrays(shapes.TINY, mask="triangle", dtype=jnp.bfloat16)
    out, lse, gradients = check(UNSIGNED, arrays, tolerance=1e-2)
    assert lse.dtype == jnp.float32
    assert {a.dtype for a in (out, *gradients)} == {jnp.dtype(jnp.bfloat16)}


def test_16_bits_where_the_first_keys_have_the_largest_logits():
    """Later blocks are far below them; the mean of dweight is of the same weights."""
    *given, mask = cases.arrays(shapes.TINY, dtype=jnp.bfloat16)
    given[1] = np.where(np.arange(given[1].shape[1])[:, None, None] < 1, 64 * given[1], given[1] / 8)
    _, lse, _ = check(
        TRILINEAR, (*given, mask), {"batch": 1, "heads": 1, "queries": 8, "j": 1}, tolerance=2e-2
    )
    assert np.max(lse) > 100


def test_float64():
    arrays = cases.arrays(shapes.TINY, mask="queries", dtype=np.float64)
    blocks = {"batch": 1, "queries": 2, "j": 2}
    with jax.enable_x64(True):
        out, lse, gradients = check(UNSIGNED, arrays, blocks, tolerance=1e-12)
        assert {a.dtype for a in (out, lse, *gradients)} == {jnp.dtype(jnp.float64)}


DRAWN = (
    st.builds(
        Shape,
        st.just("drawn"),
        *(st.integers(1, limit) for limit in (3, 3, 40, 9)),
        st.sampled_from([3, 6, 15]),
        st.integers(1, 5),
        st.integers(1, 5),
    ),
    st.sampled_from(cases.CONFIGS),
    st.sampled_from(cases.MASKS),
    st.fixed_dictionaries(
        {
            name: st.integers(1, limit)
            for name, limit in (("batch", 3), ("heads", 3), ("queries", 40), ("j", 9))
        }
    ),
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(*DRAWN)
def test_many_shapes_many_blocks(shape, config, mask, blocks):
    check(config, cases.arrays(shape, mask=mask, seed=1), blocks)


def attention(config, mask, blocks):
    """With the derivative that the public function has."""

    @jax.custom_vjp
    def function(*inputs):
        return xla.forward(config, *inputs, mask, blocks=blocks)[0]

    def forward(*inputs):
        out, lse = xla.forward(config, *inputs, mask, blocks=blocks)
        return out, (inputs, out, lse)

    def backward(saved, dout):
        inputs, out, lse = saved
        return xla.backward(config, *inputs, mask, out, lse, dout, blocks=blocks)

    function.defvjp(forward, backward)
    return jax.jit(function)


@pytest.mark.slow
def test_first_and_second_derivatives():
    """By finite differences in float64: the backward pass, and derivatives of the backward pass."""
    arrays = cases.arrays(Shape("small", 1, 1, 4, 3, 6, 2, 2), mask="some rows", dtype=np.float64)
    with jax.enable_x64(True):
        for config in (UNSIGNED, SIGNED):
            function = attention(config, arrays[-1], {"queries": 3, "j": 2})
            check_grads(function, arrays[:5], order=2, modes=["rev"], eps=1e-5, atol=1e-5, rtol=1e-5)


def test_forward_over_reverse_is_that_of_the_definition():
    """A Hessian's product with a vector, of all arguments at once."""
    config = TRILINEAR
    *inputs, allowed = cases.arrays(Shape("small", 1, 2, 4, 3, 6, 2, 5), mask="some rows")
    tangents = [
        np.random.default_rng(n).standard_normal(x.shape).astype(x.dtype) for n, x in enumerate(inputs)
    ]

    def product(function):
        gradient = jax.grad(lambda *x: (function(*x) ** 2).sum(), range(5))
        return jax.jit(lambda: jax.jvp(gradient, tuple(inputs), tuple(tangents))[1])()

    got = product(attention(config, allowed, {"queries": 3, "j": 2}))
    want = product(lambda *x: reference.two_simplicial_attention(config, *x, mask=allowed)[0])
    for name, g, w in zip(cases.NAMES, got, want, strict=True):
        cases.check(g, np.asarray(w, np.float64), 1e-4, name)


def test_what_is_not_supported_is_reported():
    arrays = cases.arrays(shapes.TINY)
    assert xla.unsupported(UNSIGNED, *arrays) is None
    assert "scale: got -1.0" in str(xla.unsupported(Config(scale=-1.0), *arrays))


@pytest.mark.parametrize("shape", [*shapes.SMALL, *shapes.ACCELERATOR], ids=str)
def test_tiles_cover_the_axes_and_keep_the_budget(shape):
    sizes = (shape.batch, shape.heads, shape.queries, shape.keys)
    for budget in (xla.CPU, xla.ACCELERATOR, Budget(2**10, 8, 2**5)):
        tiling = xla_tiling.tiling(*sizes, budget)
        assert shape.batch % tiling.batch == shape.heads % tiling.heads == 0
        assert 1 <= tiling.queries <= shape.queries
        assert 1 <= tiling.j <= shape.keys
        triples = tiling.batch * tiling.heads * tiling.queries * tiling.j * shape.keys
        smallest = min(shape.queries, 64) * shape.keys  # one first key, one head, a fair block of queries
        assert triples <= 2 * max(budget.triples, smallest)


def test_candidates_of_tuning_differ_and_can_be_run():
    shape = Shape("tuned", 4, 2, 130, 6, 6)
    arrays = cases.arrays(shape)
    candidates = xla.block_candidates(UNSIGNED, *arrays)
    assert set(candidates) == {"forward", "backward"}
    assert candidates["forward"][0] == candidates["backward"][0] == {}
    distinct = {tuple(blocks.items()) for blocks in candidates["forward"]}
    assert len(distinct) == len(candidates["forward"]) > 1
    check(TRILINEAR, arrays, candidates["forward"][1])


def test_a_batch_of_unknown_size_is_not_gone_through_one_by_one():
    """Few keys, as the agents have, in an exported program; with a known size the pairs are in chunks."""
    for batch, loops in ((1280, True), (*jax.export.symbolic_shape("batch"), False)):
        sizes = ((batch, 4, 1, 3), *[(batch, 2, 1, 3)] * 3, (1, 3, 3, 3))
        arrays = [jax.ShapeDtypeStruct(size, jnp.float32) for size in sizes]
        traced = jax.make_jaxpr(lambda *x: xla.forward(Config(), *x, None))(*arrays)
        assert any(e.primitive.name == "scan" for e in jaxprs.equations(traced.jaxpr)) is loops
