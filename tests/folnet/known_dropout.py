"""Dropout by known numbers, for tests of where it is applied, at which rate and with which keys.

`folnet.dropout.drop` itself, which sets numbers to 0 and scales the others, has tests of its own.
"""

import collections
import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from tests.folnet import small

Place = tuple[float, tuple[int, ...]]
"""The rate and the shape of what is dropped."""


class Known:
    """Stands in for `drop`: multiplies by `weights`, and keeps the keys it was given by rate and shape."""

    def __init__(self):
        self.keys: dict[Place, list[jax.Array]] = collections.defaultdict(list)

    def __call__(self, key: jax.Array, rate: float, inputs: jax.Array) -> jax.Array:
        found = self.keys[rate, inputs.shape]
        found.append(jax.random.key_data(key))
        return inputs * weights(rate, inputs.shape, len(found) - 1).astype(inputs.dtype)

    def places(self) -> dict[Place, int]:
        """Returns how often something of each rate and shape was dropped."""
        return {place: len(keys) for place, keys in self.keys.items()}


def weights(rate: float, shape: tuple[int, ...], number: int = 0) -> jax.Array:
    """Returns the numbers that replace a mask: those of the n-th place with this rate and shape."""
    rng = np.random.default_rng([round(1000 * rate), number, *shape])
    return jnp.asarray(rng.uniform(0.5, 2, shape), jnp.float32)


@contextlib.contextmanager
def known() -> Iterator[Known]:
    """Replaces dropout by known numbers, counted from the first."""
    drop = Known()
    with mock.patch("folnet.dropout.drop", drop), mock.patch("folnet.modules.drop", drop):
        yield drop


def trace(run: Callable[[jax.Array], Any]) -> dict[Place, int]:
    """Runs a function of a key with known dropout; returns its places, having checked that their keys differ.

    Compiles nothing but the keys.
    """
    record: list[dict[Place, int]] = []

    def keys(key):
        with known() as drop:
            run(key)
        record.append(drop.places())
        return jnp.stack([data for found in drop.keys.values() for data in found])

    one, other = (np.asarray(small.quickly(keys)(small.key(seed))) for seed in (0, 1))
    every = np.concatenate((one, other))
    assert len(np.unique(every, axis=0)) == len(every), "several places share a key"
    return record[0]
