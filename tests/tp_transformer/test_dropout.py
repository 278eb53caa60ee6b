"""Dropout: where it applies, its rate and its scale, and that no two places, rows or keys share a mask."""

import functools
import inspect
import itertools

import jax
import numpy as np
import pytest
from flax import linen as nn

from tests import defaults
from tests.tp_transformer import plain
from tests.tp_transformer.small import build, draw, quickly, tokens
from tp_transformer import TPTransformer, convert

RATE = 0.25
pytestmark = pytest.mark.usefixtures("compiled_quickly")

SOURCE, TARGET = tokens(3, 6).at[1, 4:].set(0), tokens(3, 4, seed=1)


@functools.partial(quickly, static_argnums=0)
def run(model, params, key):
    """Returns logits with dropout, and what went into each `nn.Dropout` and came out."""
    seen = []

    def record(call, args, kwargs, context):
        out = call(*args, **kwargs)
        if isinstance(context.module, nn.Dropout) and context.method_name == "__call__":
            seen.append((args[0], out))
        return out

    with nn.intercept_methods(record):
        logits = model.apply({"params": params}, SOURCE, TARGET, deterministic=False, rngs={"dropout": key})
    return logits, seen


def masks_of(seen):
    """Returns the factors of each place, NaN where the input is 0 and any factor gives 0."""
    return [np.where(given == 0, np.nan, out / np.where(given == 0, 1, given)) for given, out in seen]


def test_dropout_is_at_every_place_and_scaled():
    """Masks seen in one run, put into the equations, give its logits; a second key gives other masks.

    Places are embedding, attention weights, hidden cells and outputs of sublayers, before the residual sum.
    """
    model = build(TPTransformer, dropout_rate=RATE)
    params = draw(model, seed=3)
    keys = [jax.random.key(n, impl="rbg") for n in (0, 1)]
    (logits, seen), (_, others) = (run(model, params, key) for key in keys)
    masks = masks_of(seen)
    state = convert.to_torch(model, params)
    for row in range(3):
        own = iter([np.nan_to_num(mask[row]) for mask in masks])
        want = plain.logits(state, model.num_heads, 1, SOURCE[row], TARGET[row], own)
        np.testing.assert_allclose(logits[row], want, rtol=5e-4, atol=5e-4)
        assert next(own, None) is None  # every mask has its place
    for mask in masks:
        values = mask[~np.isnan(mask)]
        np.testing.assert_allclose(values[values != 0], 1 / (1 - RATE), rtol=1e-5)
        assert abs(np.mean(values == 0) - RATE) < 5 * np.sqrt(RATE * (1 - RATE) / values.size)

    def differ(one, other):
        known = ~np.isnan(one) & ~np.isnan(other)
        return np.any((one == 0)[known] != (other == 0)[known])

    assert all(differ(*pair) for pair in zip(masks, masks_of(others), strict=True))
    assert all(differ(a, b) for a, b in itertools.combinations(masks, 2) if a.shape == b.shape)
    assert all(differ(mask[0], mask[2]) for mask in masks)


def test_no_module_drops_unless_it_is_asked_to():
    found = defaults.of_methods("tp_transformer", "deterministic")
    assert list(found.values()).count(True) >= 8
    assert set(found.values()) <= {True, inspect.Parameter.empty}
