"""Trains small copies of the LLRNN experiment by SGD on the devices there are; prints parameters, as JSON."""

import dataclasses
import json
import sys

import jax
import numpy as np

from experiments import llrnn
from experiments.configs.llrnn import CellConfig, Config, TaskOptions

MEMORY = CellConfig(name="ntm", features=8, memory_size=8, memory_width=4, powers=(0, -1, 1), sharpen=True)
OPERATORS = CellConfig(name="higher_order", features=8, update="linear", coupling="given", max_power=7)
BASE = Config(
    optimizer="sgd", lr=0.1, batch_size=16, steps=6, log_every=3, checkpoint_every=6, eval_examples=8,
    final_examples=8,
)  # fmt: skip
CONFIGS = {
    "copy": dataclasses.replace(
        BASE, task="copy", task_options=TaskOptions(train_lengths=(1, 5), test_lengths=(5,)), cell=MEMORY
    ),
    "group_powers": dataclasses.replace(
        BASE,
        task="group_powers",
        task_options=TaskOptions(
            group="S4", operators=3, held_out=0, train_lengths=(1, 4), test_lengths=(4,)
        ),
        cell=OPERATORS,
    ),
}

if __name__ == "__main__":
    found: dict = {"devices": jax.device_count()}
    for parallel in sys.argv[1:]:
        for name, config in CONFIGS.items():
            params = llrnn.train(config, None, parallel).params
            flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])
            found[f"{name} {parallel}"] = flat.astype(float).tolist()
    print(json.dumps(found))
