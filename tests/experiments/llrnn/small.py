"""The smallest runs of the LLRNN experiment."""

import dataclasses

from experiments.llrnn.config import Config
from experiments.llrnn.parts import CellConfig, TaskOptions

SHORT = Config(
    batch_size=8, steps=4, log_every=2, checkpoint_every=2, eval_every=2, eval_examples=6, final_examples=6
)


def short(**fields) -> Config:
    """A run of four steps with some fields changed."""
    return dataclasses.replace(SHORT, **fields)


LEARNED = short(
    task="group_powers",
    task_options=TaskOptions(
        group="S3", powers=3, operators=3, held_out=2, train_lengths=(1, 3), test_lengths=(3,)
    ),
    cell=CellConfig.of(
        "higher_order", features=4, update="linear", normalize=True, coupling="table", max_power=2
    ),
    entropy=0.1,
    seed=5,
)
"""A cell that learns the program of each token."""
