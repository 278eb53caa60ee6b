"""The operators compared with Table 2: loops over heads, features and tokens in float64."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folnet import operators
from folnet.affine import Affine, over_features, over_predicates
from tests.folnet import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

# B, X, Y, A, H, S, C all differ.
B, X, Y, A, H, S, C = 2, 5, 8, 4, 3, 6, 7
RNG = np.random.default_rng(1)


@pytest.fixture(autouse=True)
def _numbers_anew():
    """A test's numbers do not depend on the tests before it."""
    RNG.bit_generator.state = STATE


def draw(*shape):
    return RNG.normal(size=shape)


def single(*arrays) -> Any:
    return [jnp.asarray(array, jnp.float32) for array in arrays]


def call(operator, *arrays, **options):
    """Compiles and applies an operator, as one program instead of one per operation."""
    return small.quickly(lambda *given: operator(*given, **options))(*single(*arrays))


def softmax(row, allowed=None):
    """Computes the softmax of a vector over allowed entries, all 0 if there are none."""
    allowed = np.ones(len(row), bool) if allowed is None else allowed
    if not allowed.any():
        return np.zeros(len(row))
    powers = np.where(allowed, np.exp(row - row[allowed].max()), 0)
    return powers / powers.sum()


def at(mask, *index):
    """Returns a row of a broadcast mask."""
    return mask[tuple(i if n > 1 else 0 for i, n in zip(index, mask.shape[:-1], strict=True))]


def close(got, want):
    np.testing.assert_allclose(np.asarray(got), want, rtol=2e-6, atol=1e-5)


# Padding of the last token, each row its own, each head its own; a row that may look nowhere in each.
PADDING = np.ones((B, 1, 1, A), bool)
PADDING[0, ..., -1] = False
ROWS = RNG.random((B, 1, X, A)) < 0.5
ROWS[1, 0, 2] = False
HEADS = RNG.random((1, H, X, A)) < 0.5
HEADS[0, 1, 0] = False
STATE = RNG.bit_generator.state
MASKS = {"none": np.ones((1, 1, 1, A), bool), "padding": PADDING, "rows": ROWS, "heads": HEADS}


@pytest.mark.parametrize("kind", ["none", "padding", "heads"])
def test_join(kind):
    """u_hs(x) = sum_a K_h(x, a) v_hs(a)."""
    k, v, mask = draw(B, H, X, A), draw(B, A, H, S), MASKS[kind]
    want = np.zeros((B, X, H, S))
    for b, x, h, s in np.ndindex(want.shape):
        kernel = softmax(k[b, h, x], at(mask, b, h, x))
        want[b, x, h, s] = sum(kernel[a] * v[b, a, h, s] for a in range(A))
    given = None if kind == "none" else jnp.asarray(mask)
    close(call(operators.join, k, v, mask=given), want)


@pytest.mark.parametrize("kind", ["none", "rows"])
def test_mu(kind):
    """u_hs(x) = sum_a K_h(x, a) v_s(x, a)."""
    k, v, mask = draw(B, H, X, A), draw(B, C, X, A), MASKS[kind]
    want = np.zeros((B, X, H, C))
    for b, x, h, s in np.ndindex(want.shape):
        kernel = softmax(k[b, h, x], at(mask, b, h, x))
        want[b, x, h, s] = sum(kernel[a] * v[b, s, x, a] for a in range(A))
    given = None if kind == "none" else jnp.asarray(mask)
    close(call(operators.mu, k, v, mask=given), want)


def literal_cjoin(k, v, mask):
    """Computes u_hs(x) = sum_a K_hs(a) v_s(x, a), with the softmax over the a that x may attend to."""
    rows = v.shape[2]
    want = np.zeros((B, rows, S, H))
    for b, x, s, h in np.ndindex(want.shape):
        kernel = softmax(k[b, s, h], at(mask, b, 0, x))
        want[b, x, s, h] = sum(kernel[a] * v[b, s, x, a] for a in range(A))
    return want


@pytest.mark.parametrize("kind", ["none", "padding", "rows"])
def test_cjoin(kind):
    """The paper's form, with one softmax for all rows or one for each."""
    k, v, mask = draw(B, S, H, A), draw(B, S, X, A), MASKS[kind]
    given = None if kind == "none" else jnp.asarray(mask)
    close(call(operators.cjoin, k, v, mask=given), literal_cjoin(k, v, mask))


def test_cjoin_of_no_rows():
    got = operators.cjoin(*single(draw(B, S, H, A), draw(B, S, 0, A)), mask=jnp.ones((B, 1, 0, A), bool))
    assert got.shape == (B, 0, S, H)


def test_cjoin_in_several_blocks_of_rows(monkeypatch):
    """With blocks that do not divide the rows, values and gradients equal those of a single block."""
    k, v = single(draw(B, S, H, A), draw(B, S, X, A))
    mask, weight = jnp.asarray(ROWS), jnp.asarray(draw(B, X, S, H), jnp.float32)

    def value(rows):
        monkeypatch.setattr(operators, "CJOIN_ROWS", rows)
        value = jax.value_and_grad(lambda *a: (operators.cjoin(*a, mask=mask) * weight).sum(), (0, 1))
        return small.quickly(value)(k, v)

    want = value(64)
    assert all(np.isfinite(grad).all() and np.abs(grad).max() > 0 for grad in want[1])
    # Five rows: the last block of three has two of them.
    jax.tree.map(lambda got, one: np.testing.assert_allclose(got, one, atol=1e-5), value(3), want)


def test_cjoin_drops_the_same_for_all_rows():
    """Also with a softmax per row: dropout removes a token's clause."""
    ones = single(np.zeros((1, S, H, A)), np.ones((1, S, X, A)))
    key = small.key()

    def dropout(kernel):
        return jnp.where(jax.random.bernoulli(key, 0.5, kernel.shape), kernel / 0.5, 0)

    by_rows = call(operators.cjoin, *ones, mask=jnp.ones((1, 1, X, A), bool), dropout=dropout)
    at_once = call(operators.cjoin, *ones, mask=None, dropout=dropout)
    np.testing.assert_allclose(by_rows, at_once, atol=1e-6)
    assert len(np.unique(np.round(np.asarray(at_once), 4))) > 2


@pytest.mark.parametrize("kind", ["none", "padding"])
def test_cjoin_as_released(kind):
    """u_hs(y) = sum_a K_hs(a) v_s(a, y): the paper's form on the converse relation."""
    k, v, mask = draw(B, S, H, A), draw(B, S, A, Y), MASKS[kind]
    given = None if kind == "none" else jnp.asarray(mask)
    want = literal_cjoin(k, v.swapaxes(2, 3), mask)
    close(call(operators.cjoin_released, k, v, mask=given), want)


def test_assoc():
    """u_h(x, y) = sum_w K_hw(x) v_hw(y)."""
    k, v = draw(B, X, H, S), draw(B, Y, H, S)
    want = np.zeros((B, H, X, Y))
    for b, h, x, y in np.ndindex(want.shape):
        want[b, h, x, y] = sum(k[b, x, h, w] * v[b, y, h, w] for w in range(S))
    close(call(operators.assoc, k, v), want)


def test_prod():
    """u_h(x, y) = sum_w K_hw(x) v_w(x, y)."""
    k, v = draw(B, X, H, C), draw(B, C, X, Y)
    want = np.zeros((B, H, X, Y))
    for b, h, x, y in np.ndindex(want.shape):
        want[b, h, x, y] = sum(k[b, x, h, w] * v[b, w, x, y] for w in range(C))
    close(call(operators.prod, k, v), want)


@pytest.mark.parametrize("in_sight", [True, False])
@pytest.mark.parametrize("kind", MASKS)
def test_trans(kind, in_sight):
    """u_h(x, y) = sum_a K_h(x, a) v_h(a, y), by the kernel or, as with dropout, explicitly."""
    k, v, mask = draw(B, H, X, A), draw(B, H, A, Y), MASKS[kind]
    want = np.zeros((B, H, X, Y))
    for b, h, x, y in np.ndindex(want.shape):
        kernel = softmax(k[b, h, x], at(mask, b, h, x))
        want[b, h, x, y] = sum(kernel[a] * v[b, h, a, y] for a in range(A))
    given = None if kind == "none" else jnp.asarray(mask)
    dropout = (lambda kernel: kernel) if in_sight else None
    close(call(operators.trans, k, v, mask=given, dropout=dropout), want)


@pytest.mark.parametrize("gated", [True, False])
def test_bool(gated):
    """u_h(x) = sum_w K_hw v_w(x), twice, with relu or a gate in between; for tokens and pairs."""
    first, second, gate = ((draw(C, 9), draw(9)), (draw(9, 10), draw(10)), (draw(C, 9), draw(9)))
    v = draw(B, X, C)

    def affine(inputs, w, b):
        out = np.zeros((B, X, w.shape[1]))
        for i, x, h in np.ndindex(out.shape):
            out[i, x, h] = b[h] + sum(w[c, h] * inputs[i, x, c] for c in range(w.shape[0]))
        return out

    hidden = affine(v, *first)
    hidden = np.maximum(affine(v, *gate), 0) * hidden if gated else np.maximum(hidden, 0)
    want = affine(hidden, *second)
    maps = [Affine(*single(*m)) for m in (first, second, gate)]
    options: dict[str, Any] = {"activation": "relu", "gate": maps[2] if gated else None}
    got = call(lambda v: operators.boolean(v, *maps[:2], over=over_features, **options), v)
    close(got, want)
    pairs = np.moveaxis(v, -1, 1)[..., None]  # one y for each x
    got = call(lambda v: operators.boolean(v, *maps[:2], over=over_predicates, **options), pairs)
    close(got[..., 0], np.moveaxis(want, -1, 1))


def test_bool_has_no_gate_and_gelu_by_default():
    """The feed-forward layer of a Transformer."""
    first, second, v = (draw(C, 9), draw(9)), (draw(9, 10), draw(10)), draw(B, X, C)
    hidden = v @ first[0] + first[1]
    hidden *= 0.5 * (1 + np.vectorize(math.erf)(hidden / math.sqrt(2)))
    maps = [Affine(*single(*m)) for m in (first, second)]
    close(call(lambda v: operators.boolean(v, *maps), v), hidden @ second[0] + second[1])


def test_bool_of_pairs():
    """Both directions are inputs, and the converse bypasses the activation."""
    v, w = draw(B, C, X, Y), draw(B, C, X, Y)
    first, second, skip = (draw(2 * C, 9), draw(9)), (draw(9, 10), draw(10)), (draw(C, 10), draw(10))
    want = np.zeros((B, 10, X, Y))
    for b, x, y in np.ndindex(B, X, Y):
        hidden = np.maximum(np.concatenate((v[b, :, x, y], w[b, :, x, y])) @ first[0] + first[1], 0)
        want[b, :, x, y] = hidden @ second[0] + second[1] + w[b, :, x, y] @ skip[0] + skip[1]
    maps = [Affine(*single(*m)) for m in (first, second, skip)]
    close(call(lambda v, w: operators.boolean_pairs(v, w, *maps, activation="relu"), v, w), want)
    gates = 0.3 * draw(2 * C, 9), 0.3 * draw(9)
    for b, x, y in np.ndindex(B, X, Y):
        both = np.concatenate((v[b, :, x, y], w[b, :, x, y]))
        hidden = np.maximum(both @ gates[0] + gates[1], 0) * (both @ first[0] + first[1])
        want[b, :, x, y] = hidden @ second[0] + second[1] + w[b, :, x, y] @ skip[0] + skip[1]
    gate = Affine(*single(*gates))
    close(call(lambda v, w: operators.boolean_pairs(v, w, *maps, gate=gate), v, w), want)
    with pytest.raises(ValueError, match=r"converse: got shape .* expected .* as in premise"):
        operators.boolean_pairs(*single(v, w.swapaxes(2, 3)), *maps)


def test_softmax_is_float32_of_what_is_not():
    """Sums of bfloat16 numbers would stop growing at 256."""
    half = jnp.zeros((1, 1000), jnp.bfloat16)
    kernel = small.quickly(lambda z: operators.softmax_kernel(z, dtype=jnp.dtype("float32")))(half)
    np.testing.assert_allclose(kernel, 1e-3, rtol=1e-6)
    assert jax.eval_shape(operators.softmax_kernel, half).dtype == jnp.bfloat16


@pytest.mark.parametrize("rows", [False, True])
def test_kernels_have_the_type_of_the_premise(rows):
    """A kernel in bfloat16 of premises in float32 is not rounded, with one softmax or one for each row."""
    k, v = draw(B, S, H, A), draw(B, S, X, A)
    k = np.asarray(jnp.asarray(k, jnp.bfloat16), np.float64)
    mask = MASKS["rows" if rows else "padding"]

    def run(k, v):
        return operators.cjoin(k.astype(jnp.bfloat16), v, mask=jnp.asarray(mask))

    got = call(run, k, v)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, literal_cjoin(k, v, mask), atol=1e-5)


def test_cjoin_keeps_no_softmax_per_row():
    """Neither for the gradient nor for more than sixteen rows at a time: S H X A numbers."""
    rows = 48
    k, v, mask = jnp.zeros((1, S, H, 7)), jnp.zeros((1, S, rows, 7)), jnp.ones((1, 1, rows, 7), bool)
    residuals = jax.eval_shape(lambda *a: jax.vjp(lambda *a: operators.cjoin(*a, mask=mask), *a)[1], k, v)
    every = S * H * rows * 7
    assert max(leaf.size for leaf in jax.tree.leaves(residuals)) < every / 2
    (blocks,) = (
        equation.params["jaxpr"].jaxpr
        for equation in jax.make_jaxpr(lambda *a: operators.cjoin(*a, mask=mask))(k, v).eqns
        if equation.primitive.name == "scan"
    )
    (block,) = (equation.params["jaxpr"] for equation in blocks.eqns if "remat" in equation.primitive.name)
    sizes = [var.aval.size for equation in block.eqns for var in equation.outvars]
    assert max(sizes) == every / 3


def test_masked_rows_have_no_gradient():
    """Masked entries have none either, and nothing is NaN."""
    logits = jnp.asarray(draw(2, 4), jnp.float32)
    mask = jnp.asarray([[True, False, True, False], [False] * 4])
    grad = np.asarray(call(jax.grad(lambda z: (operators.softmax_kernel(z, mask) ** 2).sum()), logits))
    assert np.abs(grad[0, ::2]).min() > 0
    assert not grad[0, 1::2].any()
    assert not grad[1].any()


@pytest.mark.parametrize(
    ("operator", "first", "second", "message"),
    [
        ("join", (B, H, X, A), (B, X, H, S), r"premise: got shape .*expected \[B, A, H, S\] with A = 4"),
        ("join", (B, H, X), (B, A, H, S), r"kernel_logits: got shape \(2, 3, 5\), expected \[B, H, X, A\]"),
        ("mu", (B, H, X, A), (B, C, A, A), r"premise: .* with X = 5"),
        ("cjoin", (B, S, H, A), (B, S, X, Y), r"premise: .* with A = 4"),
        ("cjoin_released", (B, S, H, A), (B, S, X, Y), r"premise: .* with A = 4"),
        ("assoc", (B, X, H, S), (B, Y, S, H), r"premise: .* with H = 3"),
        ("prod", (B, X, H, C), (B, C, Y, Y), r"premise: .* with X = 5"),
        ("trans", (B, H, X, A), (B, C, A, Y), r"premise.* shape"),
    ],
)
def test_shapes_that_do_not_fit(operator, first, second, message):
    """The argument, its shape and what was expected."""
    with pytest.raises(ValueError, match=message):
        getattr(operators, operator)(*single(np.zeros(first), np.zeros(second)))


def test_trans_takes_an_implementation():
    """By name; unknown ones are refused."""
    name: Any = "none_of_them"
    with pytest.raises(ValueError, match="implementation: got 'none_of_them'"):
        operators.trans(jnp.zeros((B, H, X, A)), jnp.zeros((B, H, A, Y)), implementation=name)


def test_a_mask_of_cjoin_is_the_same_for_all_heads():
    """It has one axis of size 1 for them."""
    mask = jnp.ones((B, S, X, A), bool)
    with pytest.raises(
        ValueError, match=r"mask: got shape .* expected one that broadcasts to \[B, 1, X, A\]"
    ):
        operators.cjoin(jnp.zeros((B, S, H, A)), jnp.zeros((B, S, X, A)), mask=mask)


@pytest.mark.parametrize("mask", [*single(np.ones((B, 1, X, A))), jnp.asarray(np.ones((B, 1, X, Y), bool))])
def test_masks_that_do_not_fit(mask):
    """Masks of another dtype or size."""
    for operator, kernel, premise in (
        (operators.join, (B, H, X, A), (B, A, H, S)),
        (operators.cjoin, (B, S, H, A), (B, S, X, A)),
        (operators.trans, (B, H, X, A), (B, H, A, Y)),
    ):
        with pytest.raises(ValueError, match="mask"):
            operator(*single(np.zeros(kernel), np.zeros(premise)), mask=mask)


def test_rows_of_their_own_are_not_for_the_released_cjoin():
    """Its conclusions are about the other token."""
    mask = jnp.ones((B, 1, A, A), bool)
    with pytest.raises(ValueError, match=r"mask.* shape"):
        operators.cjoin_released(jnp.zeros((B, S, H, A)), jnp.zeros((B, S, A, A)), mask=mask)
