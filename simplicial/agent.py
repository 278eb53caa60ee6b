"""The relational and the simplicial agent of Clift et al. (2020), Section 4, initialised as in their code.

Axis letters: B batch (any number of leading axes), R rows and C columns of the board (its picture has one
column more, the inventory), N = (R - 2)(C - 1) entities, M virtual entities, V features of an entity, A
actions.
"""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import struct
from flax.typing import Dtype
from jaxtyping import Array, Float, UInt8

from simplicial.attention import as_rows
from simplicial.blocks import Dense, SimplicialTransformer

CONV_SIZE = 2  # of both sides of a convolution's window


@struct.dataclass
class BlockAttention:
    """Where one block looked.

    Attributes:
      standard: how standard entities attend to standard ones, for each head.
      virtual: how virtual entities attend to all, the standard ones first; None without virtual ones.
      pairs: how standard entities attend to pairs of virtual ones; None without virtual ones.
    """

    standard: Float[Array, "*B H N N"]
    virtual: Float[Array, "*B H M N+M"] | None = None
    pairs: Float[Array, "*B H2 N M M"] | None = None


@struct.dataclass
class AgentOutput:
    """What an agent returns.

    Attributes:
      logits: of left, up, right, down.
      value: expected discounted return.
      attention: one entry a block; None unless asked for (`apply_with_attention`).
    """

    logits: Float[Array, "*B A"]
    value: Float[Array, "*B"]
    attention: tuple[BlockAttention, ...] | None = None


class Conv(nn.Module):
    """A 2 x 2 convolution without padding, and ReLU, as one product of matrices.

    Its weights under `vmap`, which trains seeds side by side, would make of `nn.Conv` a grouped convolution,
    slow on every platform; a product only becomes a batched one. Parameters are those of `nn.Conv`.
    """

    features: int
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, inputs: Float[Array, "*B R C I"]) -> Float[Array, "*B R-1 C-1 O"]:
        """[.., y, x, :] from inputs [.., y:y+2, x:x+2, :]."""
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
    """The largest value of each feature; its derivative is that of the first entity that has it.

    JAX's own derivative asks which entities are equal to the maximum. Compilers may compute them twice, once
    for the maximum and once for the question, and round differently: then no entity is, and the gradient is
    NaN or lost (seen with jaxlib 0.12.0 on CPUs, small agents, batches of ten).
    """
    return jnp.max(entities, axis=-2)


@max_over_entities.defjvp
def _max_over_entities_jvp(primals, tangents):
    (entities,), (tangent,) = primals, tangents
    first = jnp.argmax(entities, axis=-2)[..., None, :]
    number = jax.lax.broadcasted_iota(first.dtype, entities.shape, entities.ndim - 2)
    return max_over_entities(entities), jnp.sum(jnp.where(number == first, tangent, 0), axis=-2)


class Agent(nn.Module):
    """Policy and value of a picture of the board.

    Two convolutions make a grid of entities that know where they are; blocks of a Transformer relate them;
    the maximum over entities goes through dense layers.

    Attributes:
      num_virtual_entities: M; 0 is the relational agent, 2 the paper's simplicial one.
      num_blocks: how often the block is applied (2; 4 in the paper's control for depth).
      num_actions: A.
      features: V.
      num_heads: heads of the 1-simplicial attention.
      num_two_simplicial_heads: heads of the 2-simplicial attention.
      two_simplicial_features: outputs of all its heads together.
      conv_features: channels of the convolutions.
      head_features: outputs of the dense layers after pooling.
      input_centre: colour that enters the network as 0; 0 in the paper. The floor is 199 of 255, so that
        every unit first learns to subtract it: 199 here saves a small network that time.
      input_scale: what the difference to it is divided by; 255 in the paper.
      dtype: type of the products; None is `param_dtype`. 2-simplicial logits, softmax and LayerNorm sums, and
        the layers that give logits and value, are float32 at least.
      param_dtype: type of the parameters.
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

    @nn.compact
    def __call__(self, observation: UInt8[Array, "*B R C+1 3"]) -> AgentOutput:
        """Logits and value of pictures as `boxworld.observe` gives them.

        Raises:
          ValueError: an observation of another type or shape, or a field that does not fit, by name.
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
            name="transformer",
            **types,
        )(x.reshape(*grid[:-2], grid[-2] * grid[-1], self.features))
        # The barrier: XLA for CPUs (jaxlib 0.12.0) fuses a maximum with the products after it into one call
        # whose bfloat16 results are garbage.
        pooled = jax.lax.optimization_barrier(max_over_entities(entities))
        x = as_rows(pooled)
        for i, features in enumerate(self.head_features):
            x = nn.relu(Dense(features, name=f"head_{i}", **types)(x))
        # A value of 10 in bfloat16 is right to .03, more than a step's discount.
        types["dtype"] = jnp.promote_types(x.dtype, jnp.float32)
        x = x.astype(types["dtype"])
        logits = Dense(self.num_actions, name="logits", **types)(x)
        value = Dense(1, name="value", **types)(x)
        batch = pooled.shape[:-1]
        return AgentOutput(logits.reshape(*batch, self.num_actions), value.reshape(batch))

    @nn.nowrap
    def _check(self, observation: Array) -> None:
        if self.num_actions < 1:
            raise ValueError(f"num_actions is {self.num_actions}, expected at least 1")
        if self.features < 3:
            raise ValueError(f"features is {self.features}, expected at least 3: two are the position")
        if self.input_scale <= 0:
            raise ValueError(f"input_scale is {self.input_scale}, expected a positive number")
        for name, sizes in (("conv_features", self.conv_features), ("head_features", self.head_features)):
            if any(size < 1 for size in sizes):
                raise ValueError(f"{name} is {sizes}, expected sizes of at least 1")
        if observation.dtype != jnp.uint8:
            raise ValueError(
                f"observation has type {observation.dtype}, expected uint8: colours from 0 to 255"
            )
        shape, least = observation.shape, len(self.conv_features) + 1
        if len(shape) < 3 or shape[-1] != 3 or min(shape[-3:-1]) < least:
            raise ValueError(
                f"observation has shape {shape}, expected [..., R, C+1, 3] with R and C+1 of at least {least}"
            )


def apply_with_attention(
    agent: Agent, variables: Mapping[str, Any], observation: UInt8[Array, "*B R C+1 3"]
) -> AgentOutput:
    """The agent's output with the attention of each of its blocks.

    A larger inverse temperature, as in the paper's pictures, is weights ** beta over their sum.
    """
    applied = agent.apply(variables, observation, mutable=["intermediates"])
    output, state = cast(tuple[AgentOutput, Mapping[str, Any]], applied)
    sown = state["intermediates"]["transformer"]
    maps = {**sown["attention"], **sown.get("two_simplicial", {})}  # name -> one array a block
    of_blocks = (dict(zip(maps, arrays, strict=True)) for arrays in zip(*maps.values(), strict=True))
    return dataclasses.replace(output, attention=tuple(BlockAttention(**block) for block in of_blocks))


def grid_positions(rows: int, columns: int) -> np.ndarray:
    """[rows, columns, 2]: y and x of every entity, from -1 to 1."""
    y, x = np.linspace(-1, 1, rows), np.linspace(-1, 1, columns)
    return np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1)
