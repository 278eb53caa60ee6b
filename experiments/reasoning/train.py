"""Trains a model on a task that asks for relations of pairs, and measures it."""

from pathlib import Path
from types import ModuleType
from typing import Any

import jax

from experiments import runtime
from experiments.reasoning import bridges, graphs, language, published, suite, text
from experiments.reasoning.config import BRIDGES, DISTANCES, LANGUAGE, PUBLISHED, Config
from experiments.reasoning.tasks import TASKS
from experiments.runtime.training import Program, Task

PROBLEMS: dict[str, ModuleType] = {
    LANGUAGE: language,
    DISTANCES: graphs,
    BRIDGES: bridges,
    PUBLISHED: published,
}
"""What a task outside of the suite trains and measures: functions `problem` and `make_evaluate`."""


def main(
    config: Config, *, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> runtime.FitResult:
    """Trains the config's model; see `runtime.fit`."""
    config.validate()
    held_out = {"held_out_bytes": len(text.parts()[1])} if config.task == LANGUAGE else {}

    def conclude(params):
        results = {"parameters": sum(leaf.size for leaf in jax.tree.leaves(params)), **held_out}
        if config.model:
            results["tests"] = suite.make_evaluate(config, suite.TEST, TASKS[config.task].tests)(params)
            (results["validated"],) = suite.make_evaluate(config, suite.VALIDATION)(params).values()
        return results

    return runtime.fit(
        config,
        **problem(config),
        evaluate=PROBLEMS.get(config.task, suite).make_evaluate(config),
        conclude=conclude,
        workdir=workdir,
        parallel=parallel,
    )


def problem(config: Config) -> dict[str, Any]:
    """Returns the arguments `init`, `loss`, `optimizer` and `sample` of `runtime.fit` and `Task`."""
    return PROBLEMS.get(config.task, suite).problem(config)


def abstract_state(config: Config) -> runtime.TrainState:
    """Returns the shapes, dtypes and shardings of the run's state, for reading its checkpoints."""
    return Program(
        Task(seed=config.seed, batch_size=config.batch_size, **problem(config)), "jit"
    ).abstract_state()
