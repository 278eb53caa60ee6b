"""Atoms, their operators as matrices, and comparison with what NumPy computes."""

import jax
import numpy as np

from llrnn import logic
from llrnn.logic import Atom

D = 3
A, B = Atom("A", D), Atom("B", 2)
E = logic.endo(A)


def matrices(rng, n):
    return [rng.normal(size=(D, D)) for _ in range(n)]


def matrix(value):
    return logic.matrix(value, D)


def close(got, want):
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-11, atol=1e-11)


def compare(pairs):
    """Compares the pairs of values that a function returns, in one program: many small ones take long."""
    for got, want in jax.device_get(jax.jit(pairs)()):
        close(got, want)
