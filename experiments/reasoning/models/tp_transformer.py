"""The encoder of the TP-Transformer: Schlag et al. (2019)."""

import math

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from experiments.reasoning.models.base import Encoded, Model, Sizes
from experiments.reasoning.tasks.base import Task
from tp_transformer.attention import TPMultiHeadAttention
from tp_transformer.layers import EncoderLayer, sinusoids


class TPEncoder(nn.Module):
    """Layers of equation (1), each binding what is attended to to a role.

    Sequences get sinusoids of their positions, added to the inputs times sqrt(D) as in equation (2).

    Attributes:
        num_layers: number of layers.
        num_heads: heads of attention.
        hidden: hidden size of the feed-forward layers.
        is_ordered: whether the inputs are a sequence.
    """

    num_layers: int
    num_heads: int
    hidden: int
    is_ordered: bool

    @nn.compact
    def __call__(self, inputs: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """Returns the cells of the last layer."""
        length, features = inputs.shape[1:]
        cells = inputs
        if self.is_ordered:
            cells = math.sqrt(features) * inputs + sinusoids(length, features)[None]
        everywhere = jnp.ones(inputs.shape[:2], bool)
        for _ in range(self.num_layers):
            cells = EncoderLayer(self.num_heads, self.hidden, TPMultiHeadAttention)(cells, everywhere)
        return cells


def _build(task: Task, sizes: Sizes) -> Encoded:
    encoder = TPEncoder(sizes.num_layers, sizes.num_heads, sizes.hidden, task.kind == "sequence")
    return Encoded(task, encoder, sizes.features)


MODELS = {"tp_transformer": Model(_build)}
