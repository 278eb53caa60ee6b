"""A comparison small enough for tests: Adam against gradient descent on a slope, both searched.

python claimed.py OUT WORKDIR    # runs it, so that a test can kill it
"""

import dataclasses
import json
import math
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments import runtime
from experiments.runtime import claim_declaring, claiming
from experiments.runtime.claim_records import Record
from experiments.runtime.claims import Claim, Comparison, Model
from experiments.runtime.workdir import config_dict, surroundings, write_json


@dataclasses.dataclass
class Config(runtime.RunConfig):
    """A slope learned from noisy examples; `pause` makes an evaluation take a while."""

    experiment: ClassVar[str] = "slope"

    lr: float = 0.1
    optimizer: str = "sgd"
    pause: float = runtime.resumable(0.0)


def main(config, *, workdir, parallel="jit"):
    """Trains a slope."""

    def sample(key, step):
        keys = jax.random.split(key)
        x = jax.random.normal(keys[0], (config.batch_size,))
        return {"x": x, "y": 3 * x + 0.1 * jax.random.normal(keys[1], x.shape)}

    def loss(params, batch, key):
        error = params["slope"] * batch["x"] - batch["y"]
        return runtime.Sums(jnp.sum(error**2), error.size)

    def evaluate(params):
        time.sleep(config.pause)
        return {"distance": jnp.abs(params["slope"] - 3)}

    return runtime.fit(
        config,
        init=lambda key: {"slope": jax.random.normal(key)},
        loss=loss,
        sample=sample,
        optimizer={"sgd": optax.sgd, "adam": optax.adam}[config.optimizer](config.lr),
        evaluate=evaluate,
        workdir=workdir,
        parallel=parallel,
        quiet=True,
    )


def simulated(config, *, workdir, parallel="jit"):
    """Descends to the slope in plain Python, and saves every log interval: a run that takes no time.

    As a run of the runtime, it continues from what was saved, and a session makes at least one interval.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    write_json(workdir / "config.json", config_dict(config))
    file = workdir / "state.json"
    step, slope = json.loads(file.read_text()) if file.exists() else (0, math.sin(config.seed) / 10)
    while step < config.steps:
        for step in range(step + 1, step + 1 + config.log_every):  # noqa: B020
            error = (slope - 3) * (1 + 0.1 * math.sin(step * (config.seed + 1)))
            slope -= config.lr * (2 * error if config.optimizer == "sgd" else math.copysign(1, error))
        time.sleep(config.pause)
        write_json(file, (step, slope))
        if config.session_seconds:
            break
    params = {"slope": np.float32(slope)}
    summary = {**surroundings(), "params_sha256": runtime.params_sha256(params)}
    metrics = {"eval/distance": abs(slope - 3)}
    return runtime.FitResult(None, params, step, metrics, {}, train_seconds=0.01 * step, summary=summary)


def measure(run):
    """Measures the distance to the true slope."""
    return {"distance": run.result.metrics["eval/distance"], "steps": run.result.step}


def config(**fields):
    """Returns the config of the comparison's runs."""
    sizes: dict[str, Any] = {"batch_size": 8, "log_every": 5, "eval_every": 5, "checkpoint_every": 5}
    return Config(**{**sizes, **fields})


def comparison(pause=0.0, **fields):
    """Returns the comparison, with some fields changed."""
    grid = ({"lr": 0.01}, {"lr": 0.1})
    own: dict[str, Any] = {
        "name": "slope.optimizer",
        "claims": (
            Claim(
                "slope.optimizer",
                "gradient descent finds the slope better than Adam",
                "distance to the slope",
                "distance",
                higher_is_better=False,
                tests=("unpaired",),
            ),
            Claim(
                "slope.optimizer.close",
                "gradient descent comes within 0.2",
                "distance to the slope",
                "distance",
                higher_is_better=False,
                tests=("threshold",),
                target=0.2,
            ),
        ),
        "models": (
            Model("SGD", config(pause=pause), 1, 20, search=grid),
            Model("Adam", config(optimizer="adam", pause=pause), 1, 20, search=grid),
        ),
        "measure": measure,
        "seeds": (0, 1, 2),
        "search_seeds": (100,),
        "search_by": "distance",
        "search_higher_is_better": False,
    }
    return Comparison(**{**own, **fields})


EXPERIMENT = runtime.Experiment(Config, runtime.Presets(quick=config), main)
SIMULATED = dataclasses.replace(EXPERIMENT, main=simulated)


def run(comparison, folder, experiment=SIMULATED, **arguments):
    """Runs a comparison in a folder."""
    return claiming.run(
        comparison,
        experiment,
        out=folder / "out",
        workdir=folder / "runs",
        show=lambda table: None,
        **arguments,
    )


def ran(folder, **arguments):
    """Runs the comparison as from a clean checkout, and returns the folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claim_declaring, "commit_of", lambda folder: "c0ffee")
        patch.setattr(claim_declaring, "untracked", lambda folder: [])
        run(comparison(), folder, **arguments)
    return folder


def copied(source, target):
    """Copies the folder of results, whose record another run then continues."""
    (target / "out" / "claims").mkdir(parents=True)
    for file in source.glob("out/**/*.jsonl"):
        (target / file.relative_to(source)).write_bytes(file.read_bytes())


def record_of(folder):
    """Returns the record of the comparison in a folder."""
    return Record(folder / "out", "slope.optimizer")


def two_budgets(**fields):
    """The second model makes twice as many steps in the second budget; nothing is searched."""
    first, second = comparison().models
    models = (
        dataclasses.replace(
            first, steps={"equal_steps": 10, "equal_time": 10}, search=({},), step_seconds=2.0
        ),
        dataclasses.replace(
            second, steps={"equal_steps": 10, "equal_time": 20}, search=({},), step_seconds=1.0
        ),
    )
    claim = comparison().claims[0]
    read = tuple(
        dataclasses.replace(claim, id=f"slope.optimizer.{budget}", budget=budget)
        for budget in ("equal_steps", "equal_time")
    )
    return comparison(models=models, claims=read, search_seeds=(), search_by="", **fields)


class Killed(BaseException):
    """Stands for a kill: nothing is cleaned up by the runner."""


def killed(evaluations, comparison, folder, *experiment):
    """Runs until it dies in one of the evaluations, counted over all runs."""
    count = iter(range(1, 1000))
    sleep = time.sleep

    def dying(seconds):
        if next(count) == evaluations:
            raise Killed
        sleep(seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", dying)
        with pytest.raises(Killed):
            run(comparison, folder, *experiment)


def edited(**fields):
    """Returns the comparison with other fields of its second model."""
    models = comparison().models
    return comparison(models=(models[0], dataclasses.replace(models[1], **fields)))


if __name__ == "__main__":
    claim_declaring.commit_of = lambda folder: "c0ffee"  # the tests' own files need not be committed
    claim_declaring.untracked = lambda folder: []
    out, workdir = map(Path, sys.argv[1:])
    for line in claiming.run(comparison(pause=0.1), EXPERIMENT, out=out, workdir=workdir):
        print(json.dumps(line))
