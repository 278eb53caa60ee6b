"""Every baseline reaches a number of parameters by one width; what `matched` returns and refuses."""

import bisect
import functools

import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn

from experiments.baselines import (
    LSTM,
    RGCN,
    ContentNTMCell,
    DeltaNetCell,
    DeltaProductCell,
    EdgeTransformer,
    FullMatrixCell,
    LoopedTransformer,
    RecurrentEncoder,
    RelationAwareTransformer,
    Transformer,
    count,
    matched,
    matching,
)

D, R = 48, 20


def of(dtype, *shape):
    return jax.ShapeDtypeStruct(shape, dtype)


NODES, RELATIONS = of(jnp.float32, 2, 5, D), of(jnp.int32, 2, 5, 5)
MODELS = {
    "transformer": (lambda w: Transformer(2, 4, w), NODES),
    "looped": (lambda w: LoopedTransformer(1, 4, w), NODES),
    "relation-aware": (lambda w: RelationAwareTransformer(2, 4, w, R), NODES, RELATIONS),
    "edge": (lambda w: EdgeTransformer(2, 4, w), of(jnp.float32, 2, 5, 5, D)),
    "rgcn": (lambda w: RGCN(3, w, num_bases=8), NODES, of(jnp.bool_, 2, R, 5, 5)),
    "lstm": (LSTM, NODES),
    "full matrix": (lambda w: RecurrentEncoder(FullMatrixCell(w)), NODES),
    "delta net": (lambda w: RecurrentEncoder(DeltaNetCell(4, 12), 1, hidden=w), NODES),
    "delta product": (lambda w: RecurrentEncoder(DeltaProductCell(4, 12), 1, hidden=w), NODES),
    "ntm": (lambda w: RecurrentEncoder(ContentNTMCell(w)), NODES),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_baseline_can_be_matched(name):
    (make, *inputs), target = MODELS[name], 110_000
    width = matched(make, target, *inputs)
    assert abs(count(make(width), *inputs) - target) <= 0.02 * target


def test_count():
    assert count(nn.Dense(3), of(jnp.float32, 2, 4)) == 4 * 3 + 3
    assert count(nn.Dense(3), jnp.zeros((2, 4))) == 15


@pytest.mark.parametrize(("target", "width"), [(100, 20), (102, 20), (103, 21), (5, 1), (20480, 4096)])
def test_the_nearest_width(target, width):
    """A dense layer from 4 features has 5 parameters per output."""
    assert matched(nn.Dense, target, of(jnp.float32, 2, 4), tolerance=0.03) == width


@pytest.mark.parametrize(
    ("size", "most"),
    [
        (lambda w: 7 * w + 3, 5),
        (lambda w: 3 * w * w + 50 * w + 9, 6),
        (lambda w: 8 * (w // 8) ** 2 + w, 17),
        (lambda w: w**3, 17),
        (lambda w: 100 + w // 1000, 17),
    ],
    ids=["affine", "quadratic", "rounded", "cubic", "flat"],
)
def test_few_sizes_are_counted(size, most):
    """As many as a polynomial of degree 2 needs, and for others few more than by halving."""
    for candidates in (range(1, 4097), range(3, 4000, 7), (2, 3, 40, 41, 4096), (5,)):
        for target in (0, 101, 110_000, 2_000_000, size(candidates[-1]), size(candidates[-1]) + 1):
            sizes = functools.cache(size)
            found = matching._first_of_at_least(candidates, target, sizes)
            assert found == bisect.bisect_left(candidates, target, key=size)
            assert sizes.cache_info().hits == 0
            assert sizes.cache_info().misses <= (most if 0 < found < len(candidates) else 17)


def test_candidates():
    inputs = of(jnp.float32, 2, 4)
    assert matched(nn.Dense, 100, inputs, candidates=(8, 16, 24), tolerance=0.2) == 16  # of two, the smaller
    with pytest.raises(ValueError, match=r"target: got 100 parameters, expected .* is 80 at width 16"):
        matched(nn.Dense, 100, inputs, candidates=(8, 16, 32))
    with pytest.raises(ValueError, match=r"target: got 30000 parameters, .* is 20480 at width 4096"):
        matched(nn.Dense, 30000, inputs)
    with pytest.raises(ValueError, match="candidates: got none, expected at least one width"):
        matched(nn.Dense, 100, inputs, candidates=())
