"""Fine-tunes the smallest FOLNet with SGD on the available devices and prints the results as JSON.

Arguments: `jit`, `shard_map`, `pmap`, or one of LAYOUTS.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from experiments import runtime
from experiments.folnet_finetune import train
from experiments.folnet_finetune.config import Config
from tests.experiments.folnet_finetune import small as small_finetune

LAYOUTS = {"split": runtime.Layout("jit", data=2, model=2, fsdp=True)}


def trained(folder, checkpoint, way):
    """Trains on seven examples in batches of four, so that the second has a padding row."""
    config = small_finetune.small(folder, checkpoint, epochs=2, batch_size=4, eval_batch_size=4)
    result: Any = train.main(config, workdir=folder / way, parallel=LAYOUTS.get(way, way))
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(result.params)])
    predictions = (folder / way / "predictions/RTE_validation.tsv").read_text(encoding="utf-8")
    return {"params": flat.astype(float).tolist(), "best": result.results["best"], "predictions": predictions}


if __name__ == "__main__":
    jax.config.update("jax_numpy_rank_promotion", "raise")
    Config.make_optimizer = lambda self: optax.sgd(0.5)  # Adam would hide a constant factor
    found: dict = {"devices": jax.device_count()}
    with tempfile.TemporaryDirectory() as directory:
        root = small_finetune.write_rte(Path(directory), train=7, dev=5)
        beginning = small_finetune.checkpoint(root / "checkpoint")
        for argument in sys.argv[1:]:
            found[argument] = trained(root, beginning, argument)
    print(json.dumps(found))
