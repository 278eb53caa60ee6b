"""The relational and simplicial agents of Clift et al. (2020), Section 4, initialised as in the authors'
code.

Axis letters: B batch (any number of leading axes), R rows and C columns of the board, W = C + 1 columns of
its picture (the last one is the inventory), N = (R - 2)(C - 1) entities, M virtual entities, K = N + M, V
features of an entity, H heads of 1-simplicial and H2 of 2-simplicial attention, A actions.
"""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import struct
from flax.typing import Dtype
from jaxtyping import Array, Float, UInt8

from simplicial.attention import as_rows
from simplicial.blocks import Dense, SimplicialTransformer

CONV_SIZE = 2  # height and width of a convolution's window


@struct.dataclass
class BlockAttention:
    """Attention weights of one block.

    Attributes:
      standard: weights of standard entities on standard entities.
      virtual: weights of virtual entities on all entities, the standard ones first; None without virtual
        entities.
      pairs: weights of standard entities on pairs of virtual entities; None without virtual entities.
    """

    standard: Float[Array, "*B H N N"]
    virtual: Float[Array, "*B H M K"] | None = None
    pairs: Float[Array, "*B H2 N M M"] | None = None


@struct.dataclass
class AgentOutput:
    """Output of an agent.

    Attributes:
      logits: policy logits for left, up, right and down.
      value: expected discounted return.
      attention: one entry per block; None unless requested (`apply_with_attention`).
    """

    logits: Float[Array, "*B A"]
    value: Float[Array, "*B"]
    attention: tuple[BlockAttention, ...] | None = None


class Conv(nn.Module):
    """2 x 2 convolution without padding, followed by ReLU, as a single matrix product.

    Training several seeds under `vmap` batches the weights. `nn.Conv` would then become a grouped
    convolution, which is slow on every platform; a matrix product becomes a batched matrix product. The
    parameters are those of `nn.Conv`.
    """

    features: int
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, inputs: Float[Array, "*B R C I"]) -> Float[Array, "*B R-1 C-1 O"]:
        """Returns at [..., y, x, :] the features of the window inputs[..., y:y+2, x:x+2, :]."""
        shape = (CONV_SIZE, CONV_SIZE, inputs.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.glorot_uniform(), shape, self.param_dtype)
        bias = self.param("bias", nn.initializers.zeros, (self.features,), self.param_dtype)
        inputs, kernel, bias = nn.dtypes.promote_dtype(inputs, kernel, bias, dtype=self.dtype)
        rows, columns = inputs.shape[-3] - 1, inputs.shape[-2] - 1
        corners = itertools.product(range(CONV_SIZE), repeat=2)
        windows = [inputs[..., y : y + rows, x : x + columns, :] for y, x in corners]
        windows = jnp.concatenate(windows, axis=-1)
        product = as_rows(windows) @ kernel.reshape(-1, self.features)
        return nn.relu(product + bias[None]).reshape(*windows.shape[:-1], self.features)


@jax.custom_jvp
def max_over_entities(entities: Float[Array, "*B N V"]) -> Float[Array, "*B V"]:
    """Returns the maximum of each feature; its gradient goes to the first entity that attains it.

    In JAX's own derivative, a compiler may compute the entities twice, once for the maximum and once for the
    comparison with it, with different rounding. Then no entity equals the maximum and the gradient is NaN or
    zero (seen with jaxlib 0.12.0 on CPUs, small agents, batches of ten).
    """
    return jnp.max(entities, axis=-2)


@max_over_entities.defjvp
def _max_over_entities_jvp(primals, tangents):
    (entities,), (tangent,) = primals, tangents
    entities = jax.lax.optimization_barrier(entities)  # the same array for the maximum and the comparison
    pooled = max_over_entities(entities)
    number = jax.lax.broadcasted_iota(jnp.int32, entities.shape, entities.ndim - 2)
    # XLA on CPUs computes an argmax seven times as slowly.
    first = jnp.min(jnp.where(entities == pooled[..., None, :], number, entities.shape[-2]), axis=-2)
    return pooled, jnp.sum(jnp.where(number == first[..., None, :], tangent, 0), axis=-2)


class Agent(nn.Module):
    """Computes policy logits and a value from a picture of the board.

    Two convolutions turn the picture into a grid of entities, and each entity's position is appended to it.
    Transformer blocks relate the entities; the maximum over entities passes through dense layers.

    Attributes:
      num_virtual_entities: M; 0 gives the relational agent, 2 the paper's simplicial agent.
      num_blocks: number of applications of the block (2; 4 in the paper's control for depth).
      num_actions: A.
      features: V.
      num_heads: heads of the 1-simplicial attention.
      num_two_simplicial_heads: heads of the 2-simplicial attention.
      two_simplicial_features: total output features of the 2-simplicial heads.
      conv_features: channels of the convolutions.
      head_features: output features of the dense layers after pooling.
      input_centre: colour value that is mapped to 0; 0 in the paper. The floor has the value 199 of 255,
        which every unit first learns to subtract; 199 here spares a small network that time.
      input_scale: divisor of the centred colour values; 255 in the paper.
      dtype: dtype of the matrix products; None means `param_dtype`. 2-simplicial logits, softmax and
        LayerNorm sums, and the layers that compute logits and value use at least float32.
      param_dtype: dtype of the parameters.
      logit: logits of the 2-simplicial attention, "unsigned" (the paper's) or "trilinear".
    """

    num_virtual_entities: int = 2
    num_blocks: int = 2
    num_actions: int = 4
    features: int = 64
    num_heads: int = 2
    num_two_simplicial_heads: int = 1
    two_simplicial_features: int = 48
    conv_features: tuple[int, ...] = (12, 24)
    head_features: tuple[int, ...] = (256, 256, 256, 256)
    input_centre: float = 0.0
    input_scale: float = 255.0
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    logit: Literal["unsigned", "trilinear"] = "unsigned"

    @nn.compact
    def __call__(self, observation: UInt8[Array, "*B R W 3"]) -> AgentOutput:
        """Returns logits and value for pictures made by `boxworld.observe`.

        Raises:
          ValueError: the observation has the wrong dtype or shape, or a field is out of range.
        """
        self._check(observation)
        types = {"dtype": self.dtype or self.param_dtype, "param_dtype": self.param_dtype}
        x = (observation.astype(types["dtype"]) - self.input_centre) / self.input_scale
        for i, features in enumerate(self.conv_features):
            x = Conv(features, name=f"conv_{i}", **types)(x)
        grid = x.shape[:-1]
        x = Dense(self.features - 2, use_bias=False, name="embed", **types)(as_rows(x))
        positions = jnp.asarray(grid_positions(*grid[-2:]), x.dtype)
        x = jnp.concatenate(
            [x.reshape(*grid, self.features - 2), jnp.broadcast_to(positions, (*grid, 2))], axis=-1
        )
        entities = SimplicialTransformer(
            num_virtual_entities=self.num_virtual_entities,
            num_blocks=self.num_blocks,
            features=self.features,
            num_heads=self.num_heads,
            num_two_simplicial_heads=self.num_two_simplicial_heads,
            two_simplicial_features=self.two_simplicial_features,
            logit=self.logit,
            name="transformer",
            **types,
        )(x.reshape(*grid[:-2], grid[-2] * grid[-1], self.features))
        if not self.is_initializing():
            self.sow("entities", "last", entities)
        # XLA for CPUs (jaxlib 0.12.0) fuses a maximum with the products after it into one call whose bfloat16
        # results are garbage; the barrier prevents this.
        pooled = jax.lax.optimization_barrier(max_over_entities(entities))
        x = as_rows(pooled)
        for i, features in enumerate(self.head_features):
            x = nn.relu(Dense(features, name=f"head_{i}", **types)(x))
        # A value of 10 in bfloat16 is accurate to 0.03, which is more than the discount of one step.
        types["dtype"] = jnp.promote_types(x.dtype, jnp.float32)
        logits = Dense(self.num_actions, name="logits", **types)(x)
        value = Dense(1, name="value", **types)(x)
        batch = pooled.shape[:-1]
        return AgentOutput(logits.reshape(*batch, self.num_actions), value.reshape(batch))

    @nn.nowrap
    def _check(self, observation: Array) -> None:
        if self.num_actions < 1:
            raise ValueError(f"num_actions: got {self.num_actions}, expected at least 1")
        if self.features < 3:
            raise ValueError(f"features: got {self.features}, expected at least 3 (two hold the position)")
        if self.input_scale <= 0:
            raise ValueError(f"input_scale: got {self.input_scale}, expected a positive number")
        for name, sizes in (("conv_features", self.conv_features), ("head_features", self.head_features)):
            if any(size < 1 for size in sizes):
                raise ValueError(f"{name}: got {sizes}, expected sizes of at least 1")
        if observation.dtype != jnp.uint8:
            raise ValueError(
                f"observation: got dtype {observation.dtype}, expected uint8 (colours from 0 to 255)"
            )
        shape, least = observation.shape, len(self.conv_features) + 1
        if len(shape) < 3 or shape[-1] != 3 or min(shape[-3:-1]) < least:
            raise ValueError(
                f"observation: got shape {shape}, expected [..., R, C+1, 3] with R, C+1 of at least {least}"
            )


def apply_with_attention(
    agent: Agent, variables: Mapping[str, Any], observation: UInt8[Array, "*B R W 3"]
) -> AgentOutput:
    """Returns the agent's output with the attention weights of every block.

    The paper's pictures use a larger inverse temperature; `analysis.sharpened` applies one to the weights.
    """
    applied = agent.apply(variables, observation, mutable=["intermediates"])
    output, state = cast(tuple[AgentOutput, Mapping[str, Any]], applied)
    sown = state["intermediates"]["transformer"]
    maps = {**sown["attention"], **sown.get("two_simplicial", {})}  # name -> one array per block
    of_blocks = (dict(zip(maps, arrays, strict=True)) for arrays in zip(*maps.values(), strict=True))
    return dataclasses.replace(output, attention=tuple(BlockAttention(**block) for block in of_blocks))


def apply_with_entities(
    agent: Agent, variables: Mapping[str, Any], observation: UInt8[Array, "*B R W 3"]
) -> tuple[AgentOutput, Float[Array, "*B N V"]]:
    """Returns the agent's output, and the entities after the last block, row by row.

    Without virtual entities. Entity (x - 1) + (C - 1)(y - 1) sees the 3 x 3 tiles around the place (x, y).
    """
    applied = agent.apply(variables, observation, mutable=["entities"])
    output, state = cast(tuple[AgentOutput, Mapping[str, Any]], applied)
    return output, state["entities"]["last"][0]


def grid_positions(rows: int, columns: int) -> Float[np.ndarray, "rows columns 2"]:
    """Returns (y, x) of every cell of a grid, each coordinate evenly spaced from -1 to 1."""
    y, x = np.linspace(-1, 1, rows), np.linspace(-1, 1, columns)
    return np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1)
