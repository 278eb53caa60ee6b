"""Which box is the bridge? The trunks of Clift et al.'s agents (2020), asked directly.

Every board of bridge BoxWorld has a bridge here, which no player should open. The two convolutions
and the Transformer of an agent turn the picture into entities as in `simplicial.Agent`; two dense layers give
each entity a logit, and the entity whose window is centred on the bridge's lock is right.

Axis letters: B batch; R rows and W columns of a picture; N entities.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt8

from experiments import runtime
from experiments.reasoning.config import Config
from simplicial import SimplicialTransformer, boxworld
from simplicial.agent import Conv, grid_positions

BOARDS = boxworld.BRIDGE.replace(bridge_probability=1.0)
LENGTHS = (1, 2, 3)
"""The lengths of the puzzles: boxes of each path, the Gem's among them."""
TEST_BATCHES, TEST_BATCH = 16, 256


def draw(key: PRNGKeyArray, count: int) -> tuple[UInt8[Array, "B R W 3"], Int[Array, " B"], Int[Array, " B"]]:
    """Draws boards: pictures, the entities of the bridges' locks, and the puzzles' lengths."""
    states = boxworld.reset_batch(key, count, BOARDS)
    pictures = jax.vmap(lambda state: boxworld.observe(state, BOARDS))(states)
    x, y = jnp.moveaxis(states.traps[:, 0].astype(jnp.int32), -1, 0)
    # Two convolutions of 2 x 2: an entity in row r, column c sees 3 x 3 tiles around x = c + 1, y = r + 1.
    return pictures, (y - 1) * (BOARDS.cols - 1) + x - 1, states.puzzle[:, 0]


class BoxFinder(nn.Module):
    """The trunk of an agent, and a logit for each entity.

    Attributes:
        config: settings of the trunk.
    """

    config: Config

    @nn.compact
    def __call__(self, pictures: UInt8[Array, "B R W 3"]) -> Float[Array, "B N"]:
        """Returns the logits of the entities, row by row."""
        config = self.config
        x = (pictures.astype(jnp.float32) - config.input_centre) / config.input_scale
        for features in (12, 24):
            x = Conv(features)(x)
        grid = x.shape[:-1]
        x = nn.Dense(config.features - 2, use_bias=False)(x)
        positions = jnp.asarray(grid_positions(*grid[-2:]), x.dtype)[None]
        x = jnp.concatenate([x, jnp.broadcast_to(positions, (*grid, 2))], axis=-1)
        entities = SimplicialTransformer(
            num_virtual_entities=config.virtual_entities,
            num_blocks=config.num_layers,
            features=config.features,
            num_heads=config.num_heads,
            two_simplicial_features=config.pair_features,
            logit=config.pair_logit,
            learned_bilinear=config.bilinear,
        )(x.reshape(grid[0], -1, config.features))
        return nn.Dense(1)(nn.relu(nn.Dense(config.hidden)(entities)))[..., 0]


def problem(config: Config) -> dict[str, Any]:
    """Returns the arguments `init`, `loss`, `optimizer` and `sample` of `runtime.fit` and `Task`.

    The learning rate is constant: a run of more steps continues one of fewer.
    """
    model = BoxFinder(config)

    def init(key):
        return model.init(key, jnp.zeros((1, BOARDS.rows, BOARDS.cols + 1, 3), jnp.uint8))["params"]

    def loss(params, batch, key):
        del key
        logits: Any = model.apply({"params": params}, batch["pictures"])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["bridges"])
        right, count = jnp.sum(jnp.argmax(logits, axis=-1) == batch["bridges"]), losses.size
        return runtime.Sums(jnp.sum(losses), count, {"accuracy": (right, count)})

    def sample(key, step):
        del step
        pictures, bridges, _ = draw(key, config.batch_size)
        return {"pictures": pictures, "bridges": bridges}

    optimizer = optax.chain(optax.clip_by_global_norm(config.clip), optax.adam(config.lr))
    return {"init": init, "loss": loss, "optimizer": optimizer, "sample": sample}


def make_evaluate(config: Config) -> Callable[[Any], dict[str, float]]:
    """Returns `evaluate(params)` for `runtime.fit`: accuracies on 4,096 boards, and by length.

    The boards are the same for all models and seeds.
    """
    model = BoxFinder(config)

    @jax.jit
    def answers(params):
        def answer(key):
            pictures, bridges, lengths = draw(key, TEST_BATCH)
            logits: Any = model.apply({"params": params}, pictures)
            return jnp.argmax(logits, axis=-1) == bridges, lengths

        return jax.lax.map(answer, jax.random.split(jax.random.key(2**31), TEST_BATCHES))

    def evaluate(params):
        right, lengths = map(np.asarray, answers(params))
        by_length = {f"right/{length}": float(right[lengths == length].mean()) for length in LENGTHS}
        return {"right": float(right.mean()), **by_length}

    return evaluate
