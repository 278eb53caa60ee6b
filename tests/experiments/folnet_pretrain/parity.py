"""Pretrains the smallest FOLNet with SGD on the available devices and prints the results as JSON.

Arguments: `jit`, `shard_map`, `pmap`, or one of LAYOUTS; `long` compiles and makes one step on a longer text,
with its pairs split over all devices, and reports the memory.
"""

import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from experiments import runtime
from experiments.folnet_pretrain import train
from experiments.folnet_pretrain.config import Config
from experiments.runtime.training import Program, Task
from tests.experiments.folnet_pretrain.small import with_model, write_text

LAYOUTS = {"split": runtime.Layout("jit", data=4, model=2, fsdp=True)}
LONG = 128


def all_operators(source):
    return with_model(source, operators="jmc.atp")


def flat(params):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)]).astype(float).tolist()


def trained(source, way):
    config = dataclasses.replace(all_operators(source), batch_size=16)
    config.accumulate = 2 if way == "accumulated" else 1
    way = LAYOUTS.get(way, "jit" if way == "accumulated" else way)
    result = train.train(config, train.open_text(config), None, way)
    return {"params": flat(result.params), "metrics": result.metrics}


def long(source):
    """Runs one step on two examples of LONG tokens."""
    config = dataclasses.replace(all_operators(source), batch_size=2)
    config.data = dataclasses.replace(config.data, length=LONG, packing="corpus")
    text = train.open_text(config)
    model = config.model.make()
    task = Task(
        0,
        2,
        train.make_init(model),
        train.make_loss(config, model),
        optax.sgd(0.1),
        totals=train.totals,
    )
    program = Program(task, runtime.Layout("jit", data=1, model=jax.device_count()))
    state = program.place(program.initial())
    batch = program.place_batch(train.training_batches(config, text)(0)._asdict())
    step: Any = program.compile_step(state, batch)
    temporary = step.memory_analysis().temp_size_in_bytes
    pairs = f"f32[2,{config.model.relation_size},{LONG},{LONG}]"
    whole = step.as_text().count(pairs)
    state, trace = step(state, batch, program.key)
    total, share = trace.ratios["loss"]
    return {
        "params": flat(state.params),
        "loss": float(total / share),
        "temporary": temporary,
        "whole_pair_tensors": whole,
    }


if __name__ == "__main__":
    jax.config.update("jax_numpy_rank_promotion", "raise")
    Config.make_optimizer = lambda self: optax.sgd(0.1)  # LAMB would hide a constant factor
    found: dict = {"devices": jax.device_count()}
    with tempfile.TemporaryDirectory() as folder:
        source = write_text(Path(folder))
        for argument in sys.argv[1:]:
            found[argument] = long(source) if argument == "long" else trained(source, argument)
    print(json.dumps(found))
