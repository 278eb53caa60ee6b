"""Fits a line to points that are drawn."""

import jax
import jax.numpy as jnp
import optax

from experiments import runtime
from experiments.runtime.training import Program, Task

from .config import Config


def make_task(config: Config) -> Task:
    """The mean squared error of a slope."""

    def init(key):
        return {"slope": jnp.zeros(())}

    def sample(key, step):
        return {"x": jax.random.normal(key, (config.batch_size,))}

    def loss(params, batch, key):
        error = (params["slope"] - config.slope) * batch["x"]
        return runtime.Sums(jnp.sum(error**2), error.size)

    return Task(config.seed, config.batch_size, init, loss, optax.sgd(0.1), sample)


def abstract_state(config: Config) -> runtime.TrainState:
    """The state of a run, without arrays."""
    return Program(make_task(config), "jit").abstract_state()


def main(config: Config, *, workdir, parallel="jit") -> runtime.FitResult:
    """Fits it."""
    task = make_task(config)
    return runtime.fit(
        config,
        init=task.init,
        loss=task.loss,
        sample=task.sample,
        optimizer=task.optimizer,
        conclude=lambda params: {"distance": abs(float(params["slope"]) - config.slope)},
        workdir=workdir,
        parallel=parallel,
    )
