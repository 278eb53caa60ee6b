"""Sources of a run's batches: drawn on the device inside the compiled steps, or fed from the host."""

import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor

import jax
import numpy as np

from experiments.runtime import mesh
from experiments.runtime.training import Program, PyTree, Trace, TrainState


class Drawn:
    """Batches drawn on the device: all steps of a log interval are one compiled call."""

    def __init__(self, program: Program):
        """Stores the program; compilation happens in `prepare`."""
        self.compile_seconds = 0.0
        self._program = program
        self._chunks: dict[int, Callable] = {}

    def prepare(self, state: TrainState, step: int, length: int) -> float:
        """Compiles the steps that `advance` will run; see `Engine.prepare`."""
        if length in self._chunks:
            return 0.0
        start = time.monotonic()
        self._chunks[length] = self._program.compile_chunk(state, length)
        seconds = time.monotonic() - start
        self.compile_seconds += seconds
        return seconds

    def advance(self, state: TrainState, step: int, length: int) -> tuple[TrainState, Trace]:
        """Makes `length` updates, for which `prepare` must have been called; see `Engine.advance`."""
        state, trace = self._chunks[length](state, self._program.key)
        return state, jax.device_get(trace)

    def close(self) -> None:
        """Does nothing, since there are no resources to release."""


class Fed:
    """Batches made on the host, one per step, prepared ahead of time while the device computes.

    Batches may have a few different shapes (length buckets, for example); the step is compiled for each.
    """

    AHEAD = 2
    """Number of batches to prepare ahead; more helps only if the time per batch varies."""

    def __init__(self, program: Program, batches: Callable[[int], PyTree], steps: int):
        """Starts the thread that calls `batches` (see `fit`), for steps below `steps` only."""
        self.compile_seconds = 0.0
        self._program, self._batches, self._steps = program, batches, steps
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches")
        self._pending: dict[int, Future] = {}
        self._updates: dict[Hashable, Callable] = {}

    def prepare(self, state: TrainState, step: int, length: int) -> float:
        """Compiles the step for the next batch, and returns the seconds that compilation took.

        Shapes that occur later are compiled by `advance`, and counted in `compile_seconds`.
        """
        before = self.compile_seconds
        self._update(state, self.placed(step))
        return self.compile_seconds - before

    def placed(self, step: int) -> PyTree:
        """Returns the placed batch of a step, and keeps it for `advance`.

        Raises:
            ValueError: its arrays have another number of rows than this process's part of a batch.
        """
        self._ask(step)
        return self._pending[step].result()

    def advance(self, state: TrainState, step: int, length: int) -> tuple[TrainState, Trace]:
        """Makes `length` updates; see `Engine.advance`."""
        traces = []
        for current in range(step, step + length):
            self._ask(current)
            batch = self._pending.pop(current).result()
            state, trace = self._update(state, batch)(state, batch, self._program.key)
            traces.append(trace)
        return state, jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(traces))

    def close(self) -> None:
        """Stops the thread that prepares batches, and waits for it."""
        self._pool.shutdown(cancel_futures=True)

    def _update(self, state: TrainState, batch: PyTree) -> Callable:
        """Returns the step compiled for the shapes of a placed batch; each is compiled at most once."""
        leaves, structure = jax.tree.flatten(batch)
        kind = structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        if kind not in self._updates:
            jax.block_until_ready(state)  # pending steps count as training, not compilation
            start = time.monotonic()
            self._updates[kind] = self._program.compile_step(state, batch)
            self.compile_seconds += time.monotonic() - start
        return self._updates[kind]

    def _ask(self, step: int) -> None:
        """Requests the batches of this step and the next ones."""
        for wanted in range(step, min(step + 1 + self.AHEAD, self._steps)):
            if wanted not in self._pending:
                self._pending[wanted] = self._pool.submit(self._make, wanted)

    def _make(self, step: int) -> PyTree:
        batch = jax.tree.map(np.asarray, self._batches(step))
        mesh.check_batch(batch, self._program.task.batch_size // jax.process_count())
        return self._program.place_batch(batch)
