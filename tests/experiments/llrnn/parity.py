"""Trains a small copy of the LLRNN experiment by SGD on the devices there are; prints parameters, as JSON."""

import json
import sys

import jax
import numpy as np

from experiments.llrnn import train
from experiments.llrnn.config import Config
from experiments.llrnn.parts import CellConfig, TaskOptions

MEMORY = CellConfig.of("ntm", features=8, memory_size=8, memory_width=4, powers=(0, -1, 1), sharpen=True)
CONFIG = Config(
    task="copy",
    task_options=TaskOptions(train_lengths=(1, 5), test_lengths=(5,)),
    cell=MEMORY,
    optimizer="sgd", lr=0.1, batch_size=16, steps=6, log_every=3, checkpoint_every=6, eval_examples=8,
    final_examples=8,
)  # fmt: skip

if __name__ == "__main__":
    found: dict = {"devices": jax.device_count()}
    for parallel in sys.argv[1:]:
        params = train.train(CONFIG, None, parallel).params
        flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])
        found[parallel] = flat.astype(float).tolist()
    print(json.dumps(found))
