"""`trans` as its users call it: batch axes, transformations, properties of the operator, mistakes."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import export
from jax.test_util import check_grads

from kernels.trans.api import OPERATION, trans
from kernels.trans.shapes import square
from tests.kernels.trans import cases

pytestmark = pytest.mark.usefixtures("compiled_quickly")


compiled = jax.jit(trans, static_argnames=("causal", "implementation"))


def draw(*shape, seed=0, dtype="float32"):
    """A kernel and a premise of one shape."""
    generator = np.random.default_rng(seed)
    return [jnp.asarray(generator.normal(size=shape) * spread, dtype) for spread in (2.0, 1.0)]


def by_loops(kernel_logits, premise, causal=False, mask=None):
    """The operator in Python floats, head by head and entry by entry."""
    kernel_logits, premise = (np.asarray(x, np.float64) for x in (kernel_logits, premise))
    where = np.ones(kernel_logits.shape, bool)
    where = where if mask is None else np.broadcast_to(mask, where.shape)
    out = np.zeros((*kernel_logits.shape[:-1], premise.shape[-1]))
    for *index, x, y in np.ndindex(out.shape):
        row, column = kernel_logits[*index, x], premise[*index, :, y]
        past = [a for a in range(len(row)) if where[*index, x, a] and (a <= x or not causal)]
        powers = [np.exp(row[a]) for a in past]
        if past:
            out[*index, x, y] = sum(p * column[a] for p, a in zip(powers, past, strict=True)) / sum(powers)
    return out


@pytest.mark.parametrize(
    ("batch", "causal", "implementation"),
    [((), True, None), ((2, 3), False, None), ((2, 3), True, "reference"), ((2,), False, "xla")],
)
def test_it_is_a_loop(batch, causal, implementation):
    arrays = draw(*batch, 2, 5, 5)
    mask = jnp.asarray(np.random.default_rng(1).random((*batch, 1, 1, 5)) < 0.8)
    out = compiled(*arrays, causal=causal, mask=mask, implementation=implementation)
    np.testing.assert_allclose(out, by_loops(*arrays, causal=causal, mask=mask), rtol=2e-5, atol=2e-6)
    chex.assert_shape(out, (*batch, 2, 5, 5))
    chex.assert_type(out, jnp.float32)
    chex.assert_tree_all_finite(out)


@settings(max_examples=6, deadline=None, derandomize=True)
@given(data=st.data())
def test_masks_of_any_broadcast(data):
    """Each axis of a mask is full or 1, and leading ones may be missing."""
    full = (2, 3, 2, 4, 4)
    sizes = [data.draw(st.sampled_from((1, size))) for size in full]
    sizes = sizes[data.draw(st.integers(0, 2)) :]
    mask = jnp.asarray(np.random.default_rng(2).random(sizes) < 0.6)
    arrays = draw(*full)
    np.testing.assert_allclose(
        compiled(*arrays, mask=mask), by_loops(*arrays, mask=mask), rtol=2e-5, atol=2e-6
    )


def test_a_relation_need_not_be_square():
    kernel_logits, _ = draw(2, 3, 6)
    premise, _ = draw(2, 6, 5)
    out = trans(kernel_logits, premise)
    np.testing.assert_allclose(out, by_loops(kernel_logits, premise), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("causal", "order"), [(False, 1), (True, 2)])
def test_derivatives_are_differences(causal, order):
    with jax.enable_x64(True):
        mask = jnp.asarray([True, True, False, True])
        arrays = draw(1, 2, 4, 4, dtype="float64")
        function = jax.jit(functools.partial(trans, causal=causal, mask=mask))
        check_grads(function, arrays, order=order, modes=["rev"], rtol=1e-6, atol=1e-6)


def test_transformations_change_nothing():
    """jit, checkpoint, vmap over any argument and scan: values and gradients."""
    kernels, premises = draw(3, 2, 2, 6, 6)
    mask = jnp.asarray(np.random.default_rng(3).random((3, 2, 1, 6, 6)) < 0.8)

    def loss(kernel_logits, premise, mask):
        return (trans(kernel_logits, premise, causal=True, mask=mask) ** 2).sum()

    with_gradients = jax.value_and_grad(loss, (0, 1))
    one_by_one = jax.jit(with_gradients)
    want = [one_by_one(*arguments) for arguments in zip(kernels, premises, mask, strict=True)]
    want = jax.tree.map(lambda *x: jnp.stack(x), *want)

    @jax.jit
    def every(kernels, premises, mask):
        middle = jax.vmap(with_gradients, in_axes=(None, 1, None), out_axes=(0, (0, 1)))
        return {
            "vmap": jax.vmap(with_gradients)(kernels, premises, mask),
            "checkpoint": jax.vmap(jax.value_and_grad(jax.checkpoint(loss), (0, 1)))(kernels, premises, mask),
            "scan": jax.lax.scan(lambda _, x: (None, with_gradients(*x)), None, (kernels, premises, mask))[1],
            "one": jax.vmap(with_gradients, in_axes=(0, None, None))(kernels, premises[0], mask[0]),
            "middle": middle(kernels[0], premises.swapaxes(0, 1), mask[0])[1][1],
        }

    got = every(kernels, premises, mask)
    close = functools.partial(chex.assert_trees_all_close, rtol=2e-6, atol=2e-6)
    close(got.pop("middle")[:, 0], want[1][1][0])
    close(jax.tree.map(lambda x: x[0], got.pop("one")), jax.tree.map(lambda x: x[0], want))
    for each in got.values():
        close(each, want)


def test_a_shape_is_traced_once():
    traced = chex.assert_max_traces(lambda *arrays: trans(*arrays, causal=True), n=1)
    jitted = jax.jit(traced)
    for seed in range(3):
        jitted(*draw(2, 3, 3, seed=seed))


def test_the_order_of_tokens_does_not_matter():
    """Renaming x, a and y renames the result."""
    kernel_logits, premise = draw(2, 7, 7)
    generator = np.random.default_rng(4)
    x, a, y = (generator.permutation(7) for _ in range(3))
    renamed = compiled(kernel_logits[:, x][:, :, a], premise[:, a][:, :, y])
    np.testing.assert_allclose(renamed, compiled(kernel_logits, premise)[:, x][:, :, y], rtol=2e-6, atol=2e-6)


def test_the_future_has_no_influence():
    kernel_logits, premise = draw(2, 150, 150)  # more than one tile
    later = kernel_logits.at[:, :, 100:].add(5.0), premise.at[:, 100:].add(5.0)
    before, after = compiled(kernel_logits, premise, causal=True), compiled(*later, causal=True)
    np.testing.assert_array_equal(before[:, :100], after[:, :100])
    assert np.all(np.any(np.asarray(before[:, 101:] != after[:, 101:]), axis=-1))
    present = jax.grad(lambda *arrays: trans(*arrays, causal=True)[:, :100].sum(), (0, 1))
    gradients = jax.jit(present)(kernel_logits, premise)
    assert not np.any(gradients[0][:, :, 100:])
    assert not np.any(gradients[1][:, 100:])


def test_what_is_masked_has_no_gradient():
    kernel_logits, premise = draw(1, 2, 5, 5)
    mask = jnp.ones((1, 1, 5, 5), bool).at[..., 3].set(False).at[..., 1, :].set(False)
    loss = lambda *a: (trans(*a, mask=mask) ** 2).sum()  # noqa: E731
    gradients = jax.jit(jax.grad(loss, (0, 1)))(kernel_logits, premise)
    chex.assert_tree_all_finite(gradients)
    assert not np.any(gradients[0][..., 3])
    assert not np.any(gradients[0][..., 1, :])
    assert not np.any(gradients[1][..., 3, :])
    assert not np.any(compiled(kernel_logits, premise, mask=mask)[..., 1, :])


def test_widest_type_wins():
    kernel_logits, premise = draw(1, 3, 3)
    narrow = kernel_logits.astype("bfloat16")
    assert jax.eval_shape(trans, narrow, premise).dtype == jnp.float32
    assert jax.eval_shape(trans, narrow, premise.astype("bfloat16")).dtype == jnp.bfloat16


@pytest.mark.parametrize("implementation", [None, ("tpu", "xla"), "tpu"])
def test_export(implementation):
    """One artifact for all platforms; a kernel that is named is in it, where it can be."""
    shape = square("", 1, 2, 16, causal=True)
    arrays, _ = cases.make(shape)

    def loss(kernel_logits, premise):
        return (trans(kernel_logits, premise, causal=True, implementation=implementation) ** 2).sum()

    function = jax.grad(loss, (0, 1))
    platforms = ("tpu",) if implementation == "tpu" else ("cpu", "cuda", "tpu")
    exported = export.export(jax.jit(function), platforms=platforms)(*arrays[:2])
    assert ("tpu_custom_call" in exported.mlir_module()) == (implementation is not None)
    if "cpu" in platforms:
        loaded = export.deserialize(exported.serialize())
        chex.assert_trees_all_close(loaded.call(*arrays[:2]), jax.jit(function)(*arrays[:2]), rtol=1e-6)


@pytest.mark.parametrize("shape", [(0, 2, 3, 3), (2, 0, 3, 3), (2, 0, 0), (2, 3, 0, 3, 3)])
def test_empty(shape):
    out = trans(*draw(*shape), mask=jnp.ones((1, 1, 1), bool))
    chex.assert_shape(out, shape)


def test_a_sum_over_nothing_is_zero():
    np.testing.assert_array_equal(trans(jnp.zeros((2, 3, 0)), jnp.zeros((2, 0, 4))), np.zeros((2, 3, 4)))


@pytest.mark.parametrize(
    ("kernel_logits", "premise", "options", "message"),
    [
        ((5, 5), (5, 5), {}, r"kernel_logits: got shape \(5, 5\), expected \[..., H, X, A\]"),
        ((2, 5, 5), (5, 5), {}, r"premise: got shape \(5, 5\), expected \[..., H, A, Y\]"),
        ((2, 5, 5), (), {}, r"premise: got shape \(\), expected \[..., H, A, Y\]"),
        (
            (2, 5, 5),
            (2, 4, 5),
            {},
            r"premise: got shape \(2, 4, 5\), expected .* \(2, 5, 5\) to match .*\(2, 5, 5\)",
        ),
        ((2, 5, 5), (3, 5, 5), {}, r"premise: got shape \(3, 5, 5\)"),
        ((1, 2, 5, 5), (2, 5, 5), {}, r"premise: got shape \(2, 5, 5\)"),
        ((2, 4, 5), (2, 5, 5), {"causal": True}, r"kernel_logits: got shape \(2, 4, 5\).*causal=True"),
        ((2, 5, 5), (2, 5, 5), {"causal": 1}, r"causal: got 1, expected True or False"),
        ((2, 5, 5), (2, 5, 5), {"mask": np.ones((2, 5, 5))}, r"mask: got dtype float.*expected bool"),
        (
            (2, 5, 5),
            (2, 5, 5),
            {"mask": np.ones((3, 5, 5), bool)},
            r"mask: got shape \(3, 5, 5\).*\(2, 5, 5\)",
        ),
        ((2, 5, 5), (2, 5, 5), {"mask": np.ones((1, 2, 5, 5), bool)}, r"mask: got shape \(1, 2, 5, 5\)"),
        (
            (2, 5, 5),
            (2, 5, 5),
            {"implementation": "triton"},
            r"implementation: got 'triton', .*'reference', 'xla'",
        ),
        ((2, 5, 5), (2, 5, 5), {"implementation": ()}, r"implementation: got \(\), expected"),
    ],
)
def test_mistakes_are_named(kernel_logits, premise, options, message):
    with pytest.raises(ValueError, match=message):
        trans(jnp.zeros(kernel_logits), jnp.zeros(premise), **options)


@pytest.mark.parametrize("name", ["kernel_logits", "premise"])
@pytest.mark.parametrize("wrong", [np.zeros((2, 5, 5), int), np.zeros((2, 5, 5), bool), "relation"])
def test_only_numbers_that_have_a_derivative(name, wrong):
    arguments = {"kernel_logits": jnp.zeros((2, 5, 5)), "premise": jnp.zeros((2, 5, 5)), name: wrong}
    with pytest.raises(ValueError, match=rf"{name}: got (dtype|str)"):
        trans(arguments["kernel_logits"], arguments["premise"])


def test_a_kernel_that_is_named_and_cannot_run_says_why():
    with pytest.raises(NotImplementedError, match=r"'tpu' of trans: platform: got 'cpu'"):
        jax.block_until_ready(trans(*draw(2, 5, 5), implementation="tpu"))
    with (
        jax.enable_x64(True),
        pytest.raises(NotImplementedError, match=r"'tpu' of trans: kernel_logits: got dtype float64"),
    ):
        trans(*draw(2, 5, 5, dtype="float64"), implementation="tpu")
    assert OPERATION.name == "trans"
