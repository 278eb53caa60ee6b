"""Measures training of linear logic RNNs.

Each call is what a run of a preset of `experiments.llrnn` compiles: a log interval of steps with sequences
drawn on the device. Symbols are counted as batch x longest sequence. Recurrent steps are small and
sequential, so utilization is low on any accelerator. `benchmarks.llrnn` compares the cells' operations with
matrix powers.
"""

import functools
from typing import Any

import jax

from benchmarks import steps
from experiments import llrnn
from experiments.llrnn import train
from experiments.runtime.training import Program, local_gradient

PRESETS = ("authors_copy", "authors_variable_pattern_1", "copy", "word_problem", "quick")
"""NTMs with the authors' sizes, a small NTM, a second-order cell and a higher-order cell."""


def cases() -> dict[str, tuple[str, llrnn.Config]]:
    """Returns the presets' configs."""
    configs: dict[str, Any] = {name: llrnn.get_config(name) for name in PRESETS}
    return {
        f"{name}, {config.cell.name} {config.cell.features}": ("float32", config)
        for name, config in configs.items()
    }


def measure(config: llrnn.Config, rate: float, seconds: float) -> dict[str, Any]:
    """Measures a log interval of one preset, for `steps.rows`."""
    task = train.make_training(config)
    program = Program(task, "jit")
    state = program.initial()
    assert task.sample is not None
    batch, key = jax.eval_shape(functools.partial(task.sample, jax.random.key(0), 0)), jax.random.key(0)
    of_a_step = steps.counted(
        lambda params, batch: local_gradient(task.loss, params, batch, key), state.params, batch
    )
    symbols = batch.mask.shape[0] * batch.mask.shape[1]
    row = {
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(state.params)),
        "batch": config.batch_size,
        "symbols": batch.mask.shape[1],
        "steps_a_call": config.log_every,
    }
    return row | steps.measure(
        lambda: program.compile_chunk(state, config.log_every),
        (state,),
        given=(program.key,),
        carry=lambda result: result[:1],
        seconds=seconds,
        count={"symbols": symbols * config.log_every, "steps": config.log_every},
        operations=None if of_a_step is None else of_a_step * config.log_every,
        rate=rate,
    )


ROOM = steps.Room("llrnn", cases, measure)
