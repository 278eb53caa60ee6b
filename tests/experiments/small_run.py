"""Runs the smallest run of an experiment as its program does, drawing nothing, alone or with other processes.

python small_run.py EXPERIMENT WORKDIR [COORDINATOR NUM_PROCESSES PROCESS_ID]

Prints the number of devices as JSON; the metrics are in the workdir, and the data in its parent.
"""

import dataclasses
import json
import sys
from pathlib import Path

import jax

from experiments import runtime
from experiments.registry import EXPERIMENTS
from experiments.runtime import processes
from tests.experiments.boxworld import small as small_boxworld
from tests.experiments.folnet_finetune import small as small_finetune
from tests.experiments.folnet_language import small as small_language
from tests.experiments.folnet_pretrain import small as small_folnet
from tests.experiments.kinship import small as small_kinship
from tests.experiments.llrnn import parity as llrnn_parity
from tests.experiments.mathematics import small as small_mathematics
from tests.experiments.reasoning import small as small_reasoning


def configured(experiment, folder):
    """Returns a config whose batches, and some of whose tests, eight devices can share."""
    rows = {"batch_size": 8, "eval_batch_size": 8}
    if experiment == "boxworld":
        return small_boxworld.small(seeds=1, eval_episodes=20, final_episodes=20)
    if experiment == "folnet_finetune":
        return small_finetune.small(folder, folder / "model", **rows)
    if experiment == "folnet_language":
        return small_language.small(folder / "text.txt", beams=1, **rows)
    if experiment == "folnet_pretrain":
        return small_folnet.small(folder / "text.txt", baseline="none", **rows)
    if experiment == "kinship":
        return small_kinship.small(baselines=(), lrs=(), match="", **rows)
    if experiment == "llrnn":
        changes = {"checkpoint_every": 2, "eval_every": 2, "log_every": 2}
        return dataclasses.replace(llrnn_parity.CONFIG, **changes)
    if experiment == "mathematics":
        return small_mathematics.small(**rows)
    if experiment == "reasoning":
        changes = {"steps": 4, "log_every": 2, "checkpoint_every": 2, "eval_every": 2, "batch_size": 8}
        return dataclasses.replace(small_reasoning.SMALL, **changes)
    raise ValueError(experiment)


def prepare(experiment, folder):
    """Writes the data that the run of an experiment reads."""
    folder.mkdir(parents=True, exist_ok=True)
    if experiment in ("folnet_language", "folnet_pretrain"):
        small_folnet.write_text(folder)
    if experiment == "folnet_finetune":
        small_finetune.write_rte(folder, train=24, dev=11)
        small_finetune.checkpoint(folder / "model")


if __name__ == "__main__":
    name, directory, *others = sys.argv[1:]
    jax.config.update("jax_numpy_rank_promotion", "raise")
    if others:
        processes.connect("auto", others[0], int(others[1]), int(others[2]))
    config, workdir = configured(name, Path(directory).parent), Path(directory)
    # Pictures take longer than such a run, and are tested elsewhere.
    setattr(runtime, "can_draw", lambda: False)  # noqa: B010
    EXPERIMENTS[name].main(config, workdir=workdir)
    print(json.dumps({"devices": jax.device_count()}))
