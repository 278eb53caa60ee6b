"""Composition of relations in the setting that others have published, with their Transformer.

Kozachinskiy et al. (2025), Section 6, Table 1: two layers of standard attention, 16 features and 3.6k
parameters, answer 92 % (their median over 8 seeds). The data are those of their Appendix C.1.2, 50,000
graphs of 6 to 8 nodes; training is that of Appendix C.2 and Table 6: AdamW at a constant rate, 200 epochs in
batches of 2,500, dropout of .3 outside of the attention, no normalization. They split at random, so that a
held-out graph may be a renamed one of training; `tasks.compositions` has a split without that.

What the paper leaves out is as in other published code of its authors: attention without biases and without
an output projection, a feed-forward part of three layers with dropout before each, a classifier of two
layers, and PyTorch's initializations. How a pair gets its place is not known; half of a vector for its row
and half for its column is one way in which both models of Table 1 have the numbers of parameters that it
gives: 3.6k, and 2.5k for one layer of Strassen attention. Of other ways, whole vectors for both with a
smaller feed-forward part answered .97, and places given as numbers and their squares less than .70. Epochs
there go through all graphs; batches here are drawn with replacement.

Axis letters: B batch; N nodes; D features.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from experiments import runtime
from experiments.reasoning.config import Config
from experiments.reasoning.tasks.compositions import EDGES, joined

GRAPHS = 50_000
TRAINED = 45_000
"""How many of the graphs, counted from 0, are trained on."""
LEAST, NODES = 6, 8
DROPOUT = 0.3
DEPTH = 3
"""Layers of a feed-forward part."""
TEST_BATCHES = 10


@struct.dataclass
class Relations:
    """Graphs, each in the first rows and columns of a matrix for `NODES` nodes.

    Attributes:
        edges: whether the relation holds of a pair.
        asked: whether both nodes of a pair exist.
    """

    edges: Bool[Array, "B N N"]
    asked: Bool[Array, "B N N"]

    @property
    def answers(self) -> Bool[Array, "B N N"]:
        """Whether the relation composed with itself holds of a pair."""
        return joined(self.edges, self.edges)


def graphs(numbers: Int[Array, " B"]) -> Relations:
    """Returns the graphs of these numbers, from 0 to `GRAPHS`; the same for all runs."""

    def one(number):
        for_size, for_edges = jax.random.split(jax.random.fold_in(jax.random.key(0), number))
        exists = jnp.arange(NODES) < jax.random.randint(for_size, (), LEAST, NODES + 1)
        asked = exists[:, None] & exists[None]
        return Relations(jax.random.bernoulli(for_edges, EDGES, (NODES, NODES)) & asked, asked)

    return jax.vmap(one)(numbers)


def _uniform(bound: float) -> Any:
    """Returns an initializer of weights between -bound and bound."""
    return lambda key, shape, dtype=jnp.float32: jax.random.uniform(key, shape, dtype, -bound, bound)


class RelationTransformer(nn.Module):
    """A Transformer without normalization that reads the pairs of nodes as tokens, with a logit for each.

    Attributes:
        features: D.
        num_layers: number of layers.
        num_heads: heads of every attention.
    """

    features: int
    num_layers: int
    num_heads: int

    @nn.compact
    def __call__(self, relations: Relations, deterministic: bool = True) -> Float[Array, "B N N"]:
        """Returns the logits; those of pairs that are not asked mean nothing."""
        batch, size, _ = relations.edges.shape
        glorot, head = nn.initializers.glorot_normal(), self.features // self.num_heads
        normal, uniform = nn.initializers.normal(1.0), _uniform(self.features**-0.5)
        dropout = nn.Dropout(DROPOUT, deterministic=deterministic)

        def embed(name, symbols, count, features):
            return nn.Embed(count, features, embedding_init=normal, name=name)(symbols)

        half, nodes = self.features // 2, jnp.arange(size)
        row = jnp.repeat(embed("row", nodes, size, half), size, axis=0)
        column = jnp.tile(embed("column", nodes, size, self.features - half), (size, 1))
        edges = relations.edges.reshape(batch, -1).astype(jnp.int32)
        states = embed("edges", edges, 2, self.features) + jnp.concatenate([row, column], axis=-1)[None]
        mask = relations.asked.reshape(batch, 1, 1, size**2)
        for layer in range(self.num_layers):
            name = f"attention{layer}"
            parts = nn.Dense(3 * self.features, use_bias=False, kernel_init=glorot, name=name)(states)
            parts = parts.reshape(batch, size**2, 3, self.num_heads, head)
            attended = nn.dot_product_attention(*jnp.moveaxis(parts, 2, 0), mask=mask)
            states += dropout(attended.reshape(states.shape))
            hidden = states
            for depth in range(DEPTH):
                name = f"forward{layer}_{depth}"
                dense = nn.Dense(self.features, kernel_init=uniform, bias_init=uniform, name=name)
                hidden = nn.relu(dense(dropout(hidden)))
            states += dropout(hidden)
        hidden = nn.relu(nn.Dense(self.features, kernel_init=glorot, name="hidden")(dropout(states)))
        logits = nn.Dense(1, kernel_init=glorot, name="answer")(dropout(hidden))
        return logits.reshape(batch, size, size)


def make_model(config: Config) -> RelationTransformer:
    """Returns the config's model."""
    return RelationTransformer(config.features, config.num_layers, config.num_heads)


def problem(config: Config) -> dict[str, Any]:
    """Returns the arguments `init`, `loss`, `optimizer` and `sample` of `runtime.fit` and `Task`."""
    model = make_model(config)

    def init(key):
        return model.init(key, graphs(jnp.zeros(1, jnp.int32)))["params"]

    def loss(params, batch: Relations, key):
        logits: Any = model.apply({"params": params}, batch, deterministic=False, rngs={"dropout": key})
        losses = optax.sigmoid_binary_cross_entropy(logits, batch.answers)
        right, count = jnp.sum(((logits > 0) == batch.answers) & batch.asked), jnp.sum(batch.asked)
        return runtime.Sums(jnp.sum(losses * batch.asked), count, {"accuracy": (right, count)})

    def sample(key, step):
        del step
        return graphs(jax.random.randint(key, (config.batch_size,), 0, TRAINED))

    optimizer = optax.adamw(config.lr, weight_decay=config.weight_decay)
    return {"init": init, "loss": loss, "optimizer": optimizer, "sample": sample}


def make_evaluate(config: Config) -> Callable[[Any], dict[str, float]]:
    """Returns `evaluate(params)` for `runtime.fit`: the accuracy on all pairs of the held-out graphs."""
    model = make_model(config)

    @jax.jit
    def counts(params):
        def of_batch(numbers):
            batch = graphs(numbers)
            logits: Any = model.apply({"params": params}, batch)
            return jnp.sum(((logits > 0) == batch.answers) & batch.asked), jnp.sum(batch.asked)

        return jax.lax.map(of_batch, jnp.arange(TRAINED, GRAPHS).reshape(TEST_BATCHES, -1))

    def evaluate(params):
        right, count = counts(params)
        return {"right": float(right.sum() / count.sum())}

    return evaluate
