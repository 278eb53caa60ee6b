"""Looped FOLNets on lengths of shortest paths: relations that follow from relations alone.

Models learn on graphs of `Config.length` nodes, so that larger ones are new; see `tasks.paths`.

Axis letters: B batch; N nodes; C classes, the answers.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from experiments import runtime
from experiments.reasoning.config import Config
from experiments.reasoning.tasks.paths import CLASSES, draw
from folnet import FOLNetConfig
from folnet.looped import LoopedFOLNet

TESTED = (12, 24, 48)
"""Numbers of nodes in the tests."""
TEST_GRAPHS = 64
INJECTION = 0.5
"""How much of the edges is added before each loop; see `LoopedFOLNet`."""


class GraphReasoner(nn.Module):
    """A looped FOLNet whose base atoms are edges, and a classifier of the last atoms of pairs.

    Attributes:
        config: settings of the FOLNet.
        loops: number of loops.
    """

    config: FOLNetConfig
    loops: int

    @nn.compact
    def __call__(self, names: Int[Array, "B N"], edges: Bool[Array, "B N N"]) -> Float[Array, "B N N C"]:
        """Returns the logits of the answers for all pairs."""
        same = jnp.eye(edges.shape[-1], dtype=bool)[None]
        atoms = jnp.where(same, 1, jnp.where(edges, 0, -1))
        states = LoopedFOLNet(self.config, self.loops, INJECTION)(names, relation_ids=atoms)
        return nn.Dense(CLASSES)(jnp.moveaxis(states[-1][1], 1, -1))


def make_model(config: Config) -> GraphReasoner:
    """Returns the model; raises ValueError if settings do not fit."""
    return GraphReasoner(config.folnet(), config.loops)


def problem(config: Config) -> dict[str, Any]:
    """Returns the arguments `init`, `loss`, `optimizer` and `sample` of `runtime.fit` and `Task`."""
    model = make_model(config)

    def init(key):
        return model.init(key, jnp.zeros((1, 2), jnp.int32), jnp.zeros((1, 2, 2), bool))["params"]

    def loss(params, batch, key):
        del key
        logits: Any = model.apply({"params": params}, batch["names"], batch["edges"])
        answers = batch["answers"]
        asked = answers >= 0
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(answers, 0))
        right = jnp.sum((jnp.argmax(logits, axis=-1) == answers) & asked)
        count = jnp.sum(asked)
        return runtime.Sums(jnp.sum(losses * asked), count, {"accuracy": (right, count)})

    def sample(key, step):
        del step
        names, edges, answers = draw(key, config.batch_size, config.length)
        return {"names": names, "edges": edges, "answers": answers}

    return {"init": init, "loss": loss, "optimizer": config.make_optimizer(), "sample": sample}


def make_evaluate(config: Config) -> Callable[[Any], dict[str, float]]:
    """Returns `evaluate(params)` for `runtime.fit`: accuracies by size, each the mean over the answers.

    The graphs are the same for all models and seeds. A constant answer has an accuracy of .2.
    """
    model = make_model(config)

    @functools.partial(jax.jit, static_argnums=1)
    def right(params, nodes):
        names, edges, answers = draw(jax.random.key(2**31), TEST_GRAPHS, nodes)
        logits: Any = model.apply({"params": params}, names, edges)
        found = jnp.argmax(logits, axis=-1) == answers
        return jnp.stack([jnp.mean(found, where=answers == answer) for answer in range(CLASSES)])

    def evaluate(params):
        return {f"right/{nodes}": float(np.mean(np.asarray(right(params, nodes)))) for nodes in TESTED}

    return evaluate
