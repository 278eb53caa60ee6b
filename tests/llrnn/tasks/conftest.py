"""Draws batches of the tasks as NumPy arrays, with one compiled sampler per task."""

import jax
import numpy as np
import pytest


def _sample(task, key, batch_size, length, max_length, split):
    return task.sample(key, batch_size, length, max_length=max_length, split=split)


_SHAPES = ("task", "batch_size", "max_length", "split")
# Each sampler runs only a few times, so compilation dominates; without optimisation it takes half the time.
_QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
_traced = jax.jit(_sample, static_argnames=_SHAPES, compiler_options=_QUICKLY)
_static = jax.jit(_sample, static_argnames=(*_SHAPES, "length"), compiler_options=_QUICKLY)


@pytest.fixture(scope="session")
def draw():
    """Returns a function from a task and a length to a batch; `static` passes a length that is not traced."""

    def draw(task, length, *, batch_size=16, max_length=20, split="train", seed=0, static=False):
        sample = _static if static else _traced
        batch = sample(task, jax.random.key(seed), batch_size, length, max_length, split)
        return jax.tree.map(np.asarray, batch)

    return draw


@pytest.fixture(scope="session")
def draw_many(draw):
    """Returns a function that joins batches of `draw` with different seeds: statistics without compiling."""

    def draw_many(task, length, batches, **options):
        drawn = [draw(task, length, seed=100 + seed, **options) for seed in range(batches)]
        return jax.tree.map(lambda *parts: np.concatenate(parts), *drawn)

    return draw_many
