"""The smallest runs of the LLRNN experiment."""

import dataclasses

from experiments.llrnn.config import Config

SHORT = Config(
    batch_size=8, steps=4, log_every=2, checkpoint_every=2, eval_every=2, eval_examples=6, final_examples=6
)


def short(**fields) -> Config:
    """A run of four steps with some fields changed."""
    return dataclasses.replace(SHORT, **fields)
