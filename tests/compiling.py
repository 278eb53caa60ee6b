"""Compiling without optimisation, for tests that are mostly compiling: small programs that run seldom."""

import contextlib
from collections.abc import Iterator

import jax


@contextlib.contextmanager
def quickly() -> Iterator[None]:
    """For all that is compiled inside, also by the code under test.

    The last bits of results may differ from those of optimised programs: what is compared bit for bit is made
    so on both sides, or on neither.
    """
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
