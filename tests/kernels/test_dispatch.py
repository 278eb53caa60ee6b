"""A call equals its definition under every transformation, whatever implementation it takes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.kernels.noting_kernels import MASK, WEIGHT, X, draw, run

pytestmark = pytest.mark.usefixtures("compiled_quickly")


MASKS = {"none": None, "mapped": jnp.stack([MASK, ~MASK, MASK[::-1]]), "shared": MASK, "broadcast": MASK[:1]}


@pytest.mark.parametrize(
    ("mask", "mapped"),
    [
        ("none", (None, 0)),
        ("none", (0, 0)),
        ("mapped", (0, None)),
        ("mapped", (None, 0)),
        ("shared", (1, None)),
        ("shared", (0, 0)),
        ("broadcast", (0, None)),
        ("broadcast", (1, None)),
    ],
)
def test_vmap_equals_a_loop(calls, mapped, mask):
    """Over arrays with and without a batch axis, values and gradients."""
    name, mask = mask, MASKS[mask]
    x = X if mapped[0] is None else jnp.stack([draw(4, 5, seed=s) for s in range(3)], mapped[0])
    weight = WEIGHT if mapped[1] is None else draw(3, 5, seed=8)
    axes = (*mapped, 0 if name == "mapped" else None)

    def of(implementation):
        def loss(x, weight, mask):
            return (run(x, weight, mask, implementation) * jnp.arange(4.0)).sum()

        return jax.jit(jax.vmap(jax.value_and_grad(loss, argnums=(0, 1)), axes))(x, weight, mask)

    for got, want in zip(*map(jax.tree.leaves, (of("tpu_interpret"), of("reference"))), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_under_checkpoint_scan_and_twice_differentiated(calls):
    def loss(x, implementation):
        def step(carry, weight):
            inner = jax.checkpoint(lambda x: run(x, weight, MASK, implementation))
            return carry + inner(x).sum(), None

        return jax.lax.scan(step, 0.0, draw(3, 5, seed=4))[0]

    def second(x, name):
        return jax.grad(lambda x: jax.grad(loss)(x, name)[0, 0])(x)

    for derivative in (jax.jit(d, static_argnums=1) for d in (jax.grad(loss), second)):
        want = derivative(X, "reference")
        for name in ("xla", "tpu_interpret", "gpu_interpret"):
            np.testing.assert_allclose(derivative(X, name), want, rtol=1e-5, atol=1e-6)


def test_forward_mode_and_compositions(calls):
    """The residual of the fake operation has gradients too, which second derivatives need."""
    weights = WEIGHT, draw(5, seed=6)

    def loss(x, weight, name):
        return (run(x, weight, MASK, name) ** 2).sum()

    @functools.partial(jax.jit, static_argnums=0)
    def both(name):
        def directional(x):
            return jax.jvp(lambda x: loss(x, weights[0], name), (x,), (X[::-1],))[1]

        return (
            jax.jvp(lambda w: run(X, w, MASK, name), weights[:1], weights[1:]),
            jax.jacfwd(lambda x: run(x, weights[0], MASK, name))(X),
            jax.grad(directional)(X),
            jax.jvp(jax.grad(lambda x: loss(x, weights[0], name)), (X,), (X[::-1],)),
            jax.hessian(lambda w: loss(X, w, name))(weights[0]),
        )

    definition = both("reference")
    for name in ("xla", "tpu_interpret", ("gpu", "xla")):
        calls.clear()
        for got, want in zip(both(name), definition, strict=True):
            jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5), got, want)
        assert ("xla", "tangent", None, False) in calls


def test_only_what_the_backward_pass_needs_is_kept(calls):
    """Arrays, output and residual; no zeros for arrays that are not differentiated."""
    kept = jax.eval_shape(
        lambda x: jax.vjp(lambda x: run(x, WEIGHT, implementation="tpu_interpret"), x)[1], X
    )
    assert sum(leaf.size for leaf in jax.tree.leaves(kept)) <= X.size + WEIGHT.size + 2 * len(X)


def test_in_shard_map_replicated_arguments_get_their_whole_gradient(calls):
    """With manual axes checked: what varies over the mesh and what does not meet in one call."""
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    data, whole = jax.P("data"), jax.P()

    @jax.jit
    def gradients(x, weight):
        def loss(x, weight, name):
            return jax.lax.psum(run(x, weight, implementation=name).sum(), "data")

        def both(x, weight):
            return tuple(jax.grad(loss, (0, 1))(x, weight, name) for name in ("xla", "tpu_interpret"))

        return jax.shard_map(both, mesh=mesh, in_specs=(data, whole), out_specs=((data, whole),) * 2)(
            x, weight
        )

    want = jax.grad(lambda x, w: run(x, w, implementation="reference").sum(), (0, 1))(X, WEIGHT)
    for got in gradients(X, WEIGHT):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), got, want)
