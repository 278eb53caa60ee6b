"""Adam without bias correction against one in NumPy, written from its definition; the schedule's numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.folnet_finetune import optimizer

pytestmark = pytest.mark.usefixtures("compiled_quickly")

RATES = (0.02, 0.05, 0.03)


def reference(params, gradients, *, b1, b2, eps, decay, clip):
    """Returns parameters after updates by the definition, in float64; the bias does not decay."""
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}
    m, v = ({name: np.zeros_like(value) for name, value in p.items()} for _ in range(2))
    for lr, of_step in zip(RATES, gradients, strict=True):
        norm = np.sqrt(sum(np.square(g).sum() for g in of_step.values()))
        for name in p:
            g = of_step[name] * (min(1.0, clip / norm) if clip else 1.0)
            m[name] = b1 * m[name] + (1 - b1) * g
            v[name] = b2 * v[name] + (1 - b2) * g**2
            update = m[name] / (np.sqrt(v[name]) + eps)
            p[name] = p[name] - lr * (update + (0.0 if name == "bias" else decay) * p[name])
    return p


def descend(adam, params, gradients):
    """Returns parameters after updates by our optimizer."""
    state, step = adam.init(params), jax.jit(adam.update)
    for of_step in gradients:
        updates, state = step(of_step, state, params)
        params = optax.apply_updates(params, updates)
    return params


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    shapes = {"kernel": (3, 2), "bias": (2,), "embedding": (4, 3)}

    def draw(size):
        return {name: rng.normal(0, size, shape).astype(np.float32) for name, shape in shapes.items()}

    return jax.tree.map(jnp.asarray, draw(1.0)), [draw(size) for size in (1.0, 0.1, 2.0)]


def rate(count):
    return jnp.asarray(RATES)[count]


@pytest.mark.parametrize(
    "fields",
    [{"decay": 0.3, "clip": 0.0}, {"decay": 0.0, "clip": 0.5}],
)
def test_the_first_steps_are_those_of_the_definition(problem, fields):
    params, gradients = problem
    wanted = reference(params, gradients, b1=0.9, b2=0.99, eps=1e-3, **fields)
    adam = optimizer.adam(rate, b1=0.9, b2=0.99, eps=1e-3, weight_decay=fields["decay"], clip=fields["clip"])
    found = descend(adam, params, gradients)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=1e-6, err_msg=name)


def test_without_correction_the_first_update_is_larger(problem):
    """It is .1 / sqrt(.001) times as large for any gradient; with correction, it equals Optax's AdamW."""
    params, gradients = problem
    plain, corrected = (
        optimizer.adam(rate, eps=1e-12, weight_decay=0.0, bias_correction=correct)
        for correct in (False, True)
    )
    sizes = [
        jax.tree.map(lambda a, b: np.abs(a - b), params, descend(of, params, gradients[:1]))
        for of in (plain, corrected)
    ]
    for name in params:
        np.testing.assert_allclose(sizes[0][name], RATES[0] * 0.1 / np.sqrt(0.001), rtol=1e-3)
        np.testing.assert_allclose(sizes[1][name], RATES[0], rtol=1e-3)


def test_the_defaults_are_those_of_table_9():
    """The first update with them, for a gradient so small that epsilon counts, by hand."""
    params, g = {"kernel": jnp.full((1, 1), 2.0)}, 1e-5
    found = descend(optimizer.adam(optax.constant_schedule(0.5)), params, [{"kernel": jnp.full((1, 1), g)}])
    update = 0.1 * g / (np.sqrt(0.001) * g + 1e-6) + 0.01 * 2.0
    np.testing.assert_allclose(found["kernel"], 2.0 - 0.5 * update, rtol=1e-6)


def authors_rate(lr, update, steps, warmup):
    """Returns the released rate; its scheduler steps before the optimizer, so updates count from 1."""
    progress = update / steps
    if progress < warmup:
        return lr * progress / warmup
    return lr * max((progress - 1.0) / (warmup - 1.0), 0.0)


@pytest.mark.parametrize(("steps", "warmup"), [(100, 0.06), (7, 0.25), (3, 0.0), (1, 0.06)])
def test_the_schedule_is_the_released_one(steps, warmup):
    found = optimizer.linear(2e-4, steps, warmup)(np.arange(100))
    assert not found[steps:].any()  # also after the end
    found = found[:steps]
    wanted = [authors_rate(2e-4, update, steps, warmup) for update in range(1, steps + 1)]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-10)
    assert found[-1] == 0
