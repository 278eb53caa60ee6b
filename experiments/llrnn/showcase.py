"""A released memory at work on sequences that are drawn now, for `experiments.showcase`."""

from pathlib import Path

import jax
import jax.numpy as jnp

from experiments import runtime
from experiments.llrnn import figures, measures
from experiments.llrnn.load import load
from llrnn import tasks

SEQUENCES = 200
"""Sequences per length."""


def showcase(directory: Path, seed: int) -> runtime.Stop:
    """Copies new sequences, draws the memory's addresses, and returns the section of the page."""
    config, restored = load("llrnn/copy")
    task, params = config.make_task(), restored.state.params
    model, longest = config.make_model(task), max(task.test_lengths)
    lengths = sorted({task.train_lengths[1], *task.test_lengths})

    @jax.jit
    def accuracy(length):
        key = jax.random.fold_in(jax.random.key(seed), length)
        batch = task.sample(key, SEQUENCES, length, max_length=longest)
        return tasks.accuracy(measures.predict(model, params, task.encode(batch.tokens)), batch)

    rows = []
    for length in lengths:
        right, symbols = map(int, accuracy(jnp.int32(length)))
        rows.append({"symbols to copy": str(length), "right": f"{right:,} of {symbols:,}"})
    drawn = figures.addresses_over_time(config, params, seed)
    assert drawn is not None  # the released cell has addresses
    path = runtime.plots.save(drawn, directory / "addresses.png")
    return runtime.Stop(
        title="Linear logic RNN: a program that copies",
        meaning=(
            "The Neural Turing Machine is the recurrent network of a proof in linear logic, but for softmax, "
            "activation and a sharpening of its addresses, which no proof denotes: this one uses it, as the "
            f"authors do. It was trained to copy up to {task.train_lengths[1]} symbols, and is asked for up "
            f"to {longest}. The figure shows one location written per symbol, then read in the same order."
        ),
        rows=rows,
        figures={path: "Where the memory is written and read while it copies a new sequence."},
        caveat=f"{SEQUENCES} sequences per length, one trained model.",
        commands={
            "Train it (1 minute)": "python -m experiments.llrnn --config=copy --workdir=runs/copy",
            "Make a cell from a program of your own": "python examples/linear_logic_cell.py --out=cell",
        },
    )
