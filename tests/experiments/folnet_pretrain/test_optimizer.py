"""LAMB against a NumPy implementation of its definition; the schedules at their turning points."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.folnet_pretrain import optimizer
from folnet import FOLNetConfig, FOLNetForPreTraining
from folnet.transformer_configuration import TransformerConfig

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SMALL = {"vocab_size": 16, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "head_size": 4}


def reference(params, gradients, *, lr, b1, b2, eps, decay, clip, escapes=("bias",)):
    """Returns parameters after updates by LAMB's definition, in float64."""
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}
    m, v = ({name: np.zeros_like(value) for name, value in p.items()} for _ in range(2))
    for t, of_step in enumerate(gradients, start=1):
        total = np.sqrt(sum(np.square(g).sum() for g in of_step.values()))
        scale = min(1.0, clip / total) if clip else 1.0
        for name in p:
            g = of_step[name] * scale
            m[name] = b1 * m[name] + (1 - b1) * g
            v[name] = b2 * v[name] + (1 - b2) * g**2
            update = m[name] / (1 - b1**t) / (np.sqrt(v[name] / (1 - b2**t)) + eps)
            ratio = 1.0
            if name not in escapes and decay:
                update = update + decay * p[name]
                norms = np.linalg.norm(p[name]), np.linalg.norm(update)
                ratio = norms[0] / norms[1] if all(norms) else 1.0
            p[name] = p[name] - lr[t - 1] * ratio * update
    return p


@pytest.mark.parametrize(("clip", "decay"), [(1.0, 0.01), (0.0, 0.0), (0.0, 0.01)])
def test_lamb_is_the_definition(clip, decay):
    """Several updates, some clipped; a parameter that starts at 0 has no trust ratio at first."""
    rng = np.random.default_rng(0)
    shapes = {"weight": (5, 3), "bias": (3,), "table": (7, 2), "zero": (4,)}
    params = {name: rng.normal(size=shape) for name, shape in shapes.items()} | {"zero": np.zeros(4)}
    gradients = [
        {name: size * rng.normal(size=shape) for name, shape in shapes.items()} for size in (3, 0.01, 1, 0.1)
    ]
    lr = [0.1, 0.05, 0.2, 0.1]
    expected = reference(params, gradients, lr=lr, b1=0.9, b2=0.99, eps=1e-6, decay=decay, clip=clip)

    lamb = optimizer.lamb(
        lambda count: jnp.asarray(lr)[count], b1=0.9, b2=0.99, eps=1e-6, weight_decay=decay, clip=clip
    )
    found = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), params)
    state = jax.jit(lamb.init)(found)

    @jax.jit
    def step(gradient, state, found):
        updates, state = lamb.update(gradient, state, found)
        return optax.apply_updates(found, updates), state

    for gradient in gradients:
        found, state = step(jax.tree.map(lambda g: jnp.asarray(g, jnp.float32), gradient), state, found)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=1e-6, err_msg=name)


def test_the_size_of_a_gradient_does_not_matter_where_there_is_a_trust_ratio():
    """The point of LAMB: an update has lr times the parameter's norm, for gradients of any size."""
    rng = np.random.default_rng(1)
    params = {"weight": jnp.asarray(rng.normal(size=(6, 4)), jnp.float32)}
    gradient = {"weight": jnp.asarray(1e-3 * rng.normal(size=(6, 4)), jnp.float32)}
    lamb = optimizer.lamb(optax.constant_schedule(0.02))
    updates = jax.jit(lambda params: lamb.update(gradient, lamb.init(params), params)[0])(params)
    update, before = (np.asarray(jax.tree.leaves(tree)[0]) for tree in (updates, params))
    assert np.linalg.norm(update) == pytest.approx(0.02 * np.linalg.norm(before), rel=1e-5)


@pytest.mark.parametrize("config", [FOLNetConfig, TransformerConfig])
def test_only_biases_and_gains_escape_decay(config):
    model = FOLNetForPreTraining(config(**SMALL))
    params = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 8), jnp.int32))["params"]
    chosen = jax.tree_util.tree_leaves_with_path(optimizer.decays(params))
    assert len(chosen) == len(jax.tree.leaves(params))
    escaped = {jax.tree_util.keystr(path[-1:], simple=True) for path, decays in chosen if not decays}
    assert escaped == ({"bias"} if config is FOLNetConfig else {"bias", "scale"})
    assert {leaf.ndim for leaf in jax.tree.leaves(params)} == {1, 2}
    for leaf, (path, decays) in zip(jax.tree.leaves(params), chosen, strict=True):
        assert decays == (leaf.ndim == 2), path


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # Rising over the ten first of a hundred steps, the last of them at the peak.
        ("released", {0: 0.1, 9: 1.0, 10: 0.9**0.5, 50: 0.5**0.5, 99: 0.1, 100: 0.0, 200: 0.0}),
        ("linear", {0: 0.1, 4: 0.5, 9: 1.0, 10: 1.0, 55: 0.5, 99: 1 / 90, 100: 0.0, 200: 0.0}),
        ("constant", {0: 0.1, 9: 1.0, 10: 1.0, 99: 1.0, 1000: 1.0}),
    ],
)
def test_schedules(kind, expected):
    rate = optimizer.schedule(kind, 2.0, 100, 0.1)
    for step, value in expected.items():
        assert float(rate(step)) == pytest.approx(2 * value, abs=1e-6), step


def test_a_schedule_may_have_no_warmup_or_nothing_else():
    assert float(optimizer.schedule("linear", 1.0, 4, 0.0)(0)) == 1.0
    assert float(optimizer.schedule("released", 1.0, 4, 1.0)(3)) == 1.0
    assert [float(optimizer.schedule("linear", 1.0, 4, 1.0)(step)) for step in (0, 3, 4)] == [0.25, 1.0, 0.0]


def test_the_defaults_are_those_of_table_8():
    """The first update of a bias and a matrix, whose gradient is clipped to norm 1, by hand."""
    params = {"kernel": jnp.full((1, 1), 2.0), "bias": jnp.full((1,), 3.0)}
    gradient = {"kernel": jnp.full((1, 1), 3e-6), "bias": jnp.full((1,), 4.0)}
    lamb = optimizer.lamb(optax.constant_schedule(0.5))
    first = jax.jit(lambda gradient, params: lamb.update(gradient, lamb.init(params), params)[0])
    updates = first(gradient, params)
    # Adam's first update is g / (|g| + eps); of a single number the trust ratio leaves |p| alone.
    small = 3e-6 / 4
    assert float(updates["bias"][0]) == pytest.approx(-0.5, rel=1e-5)
    assert float(updates["kernel"][0, 0]) == pytest.approx(-0.5 * 2.0, rel=1e-5)
    params["kernel"] = jnp.asarray([[2.0, 0.0]])
    gradient["kernel"] = jnp.asarray([[0.0, 3e-6]])
    updates = first(gradient, params)
    plain = np.asarray([0.01 * 2.0, small / (small + 1e-6)])
    wanted = -0.5 * 2.0 * plain / np.linalg.norm(plain)
    np.testing.assert_allclose(updates["kernel"][0], wanted, rtol=1e-5)


def test_an_unknown_schedule_is_reported():
    with pytest.raises(ValueError, match="schedule: got 'cosine', expected one of 'released', 'linear'"):
        optimizer.schedule("cosine", 1.0, 4, 0.5)  # pyrefly: ignore
