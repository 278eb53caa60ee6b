"""1-simplicial (dot-product) and 2-simplicial attention with virtual entities: Clift et al. (2020).

Standard entities are the tokens of a set. Virtual entities are a few learned ones that read all others; pairs
of them are what the 2-simplicial attention attends to, at a cost of N M^2 logits instead of N^3. Where the
paper and the code that its results ran on differ, this is the code. `blocks.py` has the Transformer blocks.

A function or module stands alone: `TwoSimplicialAttention` without virtual entities attends to all pairs of a
set (10). Attention maps are sown as "intermediates", one a call: `module.apply(variables, ...,
mutable=["intermediates"])`; nothing is kept, and the 2-simplicial ones are not even computed, otherwise.

Axis letters: B batch (any number of leading axes), N standard entities or queries (index i), M virtual
entities or keys (j and k), V features of an entity, H heads, D, E features of keys and values in a head,
F all heads' outputs side by side.
"""

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import struct
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float

from kernels import checks, masked_softmax, two_simplicial_attention
from kernels.two_simplicial import reference


def as_rows(x: Float[Array, "*B F"]) -> Float[Array, "R F"]:
    """All axes but the last as one.

    Products of rows with a matrix have the same values either way, but the matrix's gradient is then a sum
    over one axis, not several: on CPUs three times as fast.
    """
    return x.reshape(-1, x.shape[-1])


def dot_product_logits(
    query: Float[Array, "*B N H D"], key: Float[Array, "*B M H D"]
) -> Float[Array, "*B H N M"]:
    """<q_i, k_j> / sqrt(D) for each head, in float32 at least; either may be without the batch axes."""
    dtype = jnp.promote_types(query.dtype, jnp.float32)
    logits = jnp.einsum("...ihd,...jhd->...hij", query, key, preferred_element_type=dtype)
    return logits / np.sqrt(query.shape[-1]).astype(dtype)


def weighted_values(
    weights: Float[Array, "*B H N M"], value: Float[Array, "*B M H E"]
) -> Float[Array, "*B N H E"]:
    """sum_j w_ij v_j for each head, in the type of `value`."""
    return jnp.einsum("...hij,...jhe->...ihe", weights.astype(value.dtype), value)


def virtual_entity_weights(
    query: Float[Array, "*B M H D"],
    key: Float[Array, "*B N H D"],
    virtual_key: Float[Array, "*B M H D"],
    entity_mask: Bool[Array, "*#B #N"] | None = None,
) -> Float[Array, "*B H M N+M"]:
    """How virtual entities attend to all entities, the standard ones first (14).

    Logits are put side by side, not keys: keys are 16 times more numbers. Virtual entities that are the same
    for the whole batch, [M, H, D], stay one copy.
    """
    to_standard, to_virtual = dot_product_logits(query, key), dot_product_logits(query, virtual_key)
    to_virtual = jnp.broadcast_to(to_virtual, (*to_standard.shape[:-1], to_virtual.shape[-1]))
    logits = jnp.concatenate([to_standard, to_virtual], axis=-1)
    if entity_mask is not None:
        # Virtual entities are always there, whatever is padding.
        entity_mask = jnp.broadcast_to(entity_mask, (*entity_mask.shape[:-1], key.shape[-3]))
        virtual = jnp.ones((*entity_mask.shape[:-1], virtual_key.shape[-3]), bool)
        entity_mask = jnp.concatenate([entity_mask, virtual], axis=-1)[..., None, None, :]
    return masked_softmax(logits, entity_mask)


def attend_to_pairs(
    query: Float[Array, "*B N H D"],
    key1: Float[Array, "*B M H D"],
    key2: Float[Array, "*B M H D"],
    value: Float[Array, "*B M H E"],
    bilinear: Float[Array, "H F E E"],
    mask: Bool[Array, "*#B #N #M #M"] | None = None,
) -> Float[Array, "*B N H F"]:
    """sum_jk softmax_jk(|<q_i, k1_j, k2_k>|) B(u_j, u_k), equation (10), by `kernels`.

    Keys and values without the queries' batch axes are those of the whole batch. Then every query of the
    batch is a query to the same pairs, and B(u_j, u_k) is computed once, not once an example: as it is in
    the first block, whose virtual entities are parameters.
    """
    batch, m = query.shape[:-2], key1.shape[-3]
    if key1.ndim > 3 or query.ndim == 3:
        return two_simplicial_attention(query, key1, key2, value, bilinear, mask=mask)
    if mask is not None:
        mask = jnp.broadcast_to(mask, (*batch, m, m)).reshape(-1, m, m)
    query = query.reshape(-1, *query.shape[-2:])
    out = two_simplicial_attention(query, key1, key2, value, bilinear, mask=mask)
    return out.reshape(*batch, *out.shape[1:])


def pair_weights(
    query: Float[Array, "*B N H D"],
    key1: Float[Array, "*B M H D"],
    key2: Float[Array, "*B M H D"],
    mask: Bool[Array, "*#B #N #M #M"] | None = None,
) -> Float[Array, "*B H N M M"]:
    """The weights of equation (10), which its attention never stores: to look at, N M^2 numbers a head."""
    batch, n, m = query.shape[:-3], query.shape[-3], key1.shape[-3]
    dtype = jnp.promote_types(query.dtype, jnp.float32)
    spread = (jnp.broadcast_to(x, (*batch, *x.shape[-3:])) for x in (query, key1, key2))
    flat = (x.reshape(-1, *x.shape[-3:]).astype(dtype) for x in spread)
    logits = reference.logits(reference.Config(), *flat)
    logits = logits.reshape(*batch, *logits.shape[1:-2], m * m)
    if mask is not None:
        mask = jnp.broadcast_to(mask, (*batch, n, m, m)).reshape(*batch, 1, n, m * m)
    return masked_softmax(logits, mask).reshape(*logits.shape[:-1], m, m)


class HeadProjections(nn.Module):
    """Several linear maps of an entity, without biases, each cut into heads: E of equation (1).

    Their matrices stand side by side in one kernel, [V, count H D], which is initialised as one: Glorot's
    limit counts the outputs of all.

    Attributes:
      count: how many maps (3: query, key and value; 4: query, two keys and value).
      num_heads: H.
      features: H * D, the outputs of each map.
      dtype: type of the factors of the products; None is the widest of inputs and parameters.
      param_dtype: type of the kernel.
      least_output: the outputs' type is this one at least.
    """

    count: int
    num_heads: int
    features: int
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    least_output: Dtype | None = None

    @nn.compact
    def __call__(
        self, inputs: Float[Array, "*B N V"], first: int = 0, last: int | None = None
    ) -> tuple[Float[Array, "*B N H D"], ...]:
        """Maps number `first` up to `last` (not included) of the inputs.

        Raises:
          ValueError: heads do not divide the features, or inputs have fewer than two axes.
        """
        size = _head_size(self.num_heads, self.features)
        check_entities("inputs", inputs)
        width, last = inputs.shape[-1], self.count if last is None else last
        kernel = self.param(
            "kernel", nn.initializers.glorot_uniform(), (width, self.count * self.features), self.param_dtype
        )
        inputs, kernel = nn.dtypes.promote_dtype(inputs, kernel, dtype=self.dtype)
        kernel = kernel[:, first * self.features : last * self.features]
        output = jnp.promote_types(inputs.dtype, self.least_output or inputs.dtype)
        mapped = jnp.matmul(as_rows(inputs), kernel, preferred_element_type=output)
        heads = (*inputs.shape[:-1], self.num_heads, size)
        return tuple(part.reshape(heads) for part in jnp.split(mapped, last - first, axis=-1))


class OneSimplicialAttention(nn.Module):
    """Dot-product attention without output projection: heads are put side by side (2), (4).

    Sows "standard" [*B, H, N, M] and, of virtual entities, "virtual" [*B, H, M, N+M].

    Attributes:
      num_heads: H.
      features: F = H * D.
      dtype: type of the products, None for the widest of inputs and parameters; softmax is float32 at least.
      param_dtype: type of the parameters.
    """

    num_heads: int = 2
    features: int = 64
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    def setup(self):
        """Queries, keys and values by one kernel."""
        self.qkv = HeadProjections(3, self.num_heads, self.features, self.dtype, self.param_dtype)

    def __call__(
        self,
        inputs: Float[Array, "*B N V"],
        context: Float[Array, "*B M V"] | None = None,
        *,
        context_mask: Bool[Array, "*#B M"] | None = None,
        mask: Bool[Array, "*#B #N #M"] | None = None,
    ) -> Float[Array, "*B N F"]:
        """Every input attends to the context.

        Args:
          inputs: who attends.
          context: what is attended to; None for the inputs themselves.
          context_mask: False where the context is padding.
          mask: True where input i may attend to j. Who may attend to nothing gets 0.

        Raises:
          ValueError: a shape or type that does not fit, by the argument's name.
        """
        check_entities("inputs", inputs)
        if context is None:
            query, key, value = self.qkv(inputs)
        else:
            check_context("context", context, "inputs", inputs)
            (query,), (key, value) = self.qkv(inputs, 0, 1), self.qkv(context, 1, 3)
        return self._attend(query, key, value, context_mask, mask)

    def with_virtual(
        self,
        entities: Float[Array, "*B N V"],
        virtual: Float[Array, "*B M V"],
        *,
        entity_mask: Bool[Array, "*#B N"] | None = None,
        mask: Bool[Array, "*#B #N #N"] | None = None,
    ) -> tuple[Float[Array, "*B N F"], Float[Array, "*B M F"]]:
        """First summands of (13) and (14): standard entities attend to each other, virtual ones to all."""
        n = entities.shape[-2]
        entity_mask = checks.mask(entity_mask, entities.shape[:-1], "[..., N]", "entity_mask")
        query, key, value = self.qkv(entities)
        virtual_query, virtual_key, virtual_value = self.qkv(virtual)
        attended = self._attend(query, key, value, entity_mask, mask)
        weights = virtual_entity_weights(virtual_query, key, virtual_key, entity_mask)
        self.sow("intermediates", "virtual", weights)
        to_virtual = weighted_values(weights[..., n:], virtual_value)
        return attended, joined_heads(weighted_values(weights[..., :n], value) + to_virtual)

    def _attend(self, query, key, value, key_mask, mask):
        batch, n, m = query.shape[:-3], query.shape[-3], key.shape[-3]
        key_mask = checks.mask(key_mask, (*batch, m), "[..., M]", "context_mask")
        mask = checks.mask(mask, (*batch, n, m), "[..., N, M]")
        allowed = _both(mask, None if key_mask is None else key_mask[..., None, :])
        allowed = None if allowed is None else allowed[..., None, :, :]
        weights = masked_softmax(dot_product_logits(query, key), allowed)
        self.sow("intermediates", "standard", weights)
        return joined_heads(weighted_values(weights, value))


@struct.dataclass
class PairKeys:
    """What 2-simplicial attention attends to: l1_j, l2_k and u, the same for both places of a pair."""

    key1: Float[Array, "*B M H D"]
    key2: Float[Array, "*B M H D"]
    value: Float[Array, "*B M H D"]


class TwoSimplicialAttention(nn.Module):
    """Attention of every input to pairs: (p, l1, l2, u) = E2(e) and equation (10), heads side by side.

    The paper trains it with a LayerNorm on what it returns (Remark 2.3), which is left to the caller; the
    softmax is not scaled. Sows "pairs" [*B, H, N, M, M].

    p, l1, l2 and the logits are float32 at least whatever `dtype` is: logits are products of three vectors,
    in the tens when training starts, and what bfloat16 would round away changes the softmax.

    Attributes:
      num_heads: H.
      features: F = H * D.
      dtype: type of the factors of the projections, None for the widest of inputs and parameters.
      param_dtype: type of the parameters.
    """

    num_heads: int = 1
    features: int = 48
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    def setup(self):
        """Queries, both keys and values by one kernel; and B of each head, [H, D, D, D]."""
        self.qkkv = HeadProjections(
            4, self.num_heads, self.features, self.dtype, self.param_dtype, least_output=jnp.float32
        )
        d = _head_size(self.num_heads, self.features)
        # Keras' Glorot for each head's tensor: fans of D * D, a limit of sqrt(6 / (2 D^2)).
        glorot = nn.initializers.glorot_uniform(batch_axis=(0,))
        self.bilinear = self.param("bilinear", glorot, (self.num_heads, d, d, d), self.param_dtype)

    def __call__(
        self,
        inputs: Float[Array, "*B N V"],
        context: Float[Array, "*B M V"] | None = None,
        *,
        context_mask: Bool[Array, "*#B M"] | None = None,
        mask: Bool[Array, "*#B #N #M #M"] | None = None,
    ) -> Float[Array, "*B N F"]:
        """Every input attends to all pairs of the context, [*B, M, V] or [M, V] for the whole batch.

        Without a context they are pairs of inputs (M = N: the purely 2-simplicial attention of (10)). `mask`
        is True where input i may attend to (j, k); all else is as in `OneSimplicialAttention`.
        """
        check_entities("inputs", inputs)
        context = inputs if context is None else context
        check_context("context", context, "inputs", inputs)
        return self.attend(inputs, self.keys(context), context_mask=context_mask, mask=mask)

    def keys(self, context: Float[Array, "*B M V"]) -> PairKeys:
        """l1, l2 and u of the context."""
        return PairKeys(*self.qkkv(context, 1, 4))

    def attend(
        self,
        inputs: Float[Array, "*B N V"],
        keys: PairKeys,
        *,
        context_mask: Bool[Array, "*#B M"] | None = None,
        mask: Bool[Array, "*#B #N #M #M"] | None = None,
    ) -> Float[Array, "*B N F"]:
        """As a call, to keys made already."""
        (query,) = self.qkkv(inputs, 0, 1)
        batch, n, m = query.shape[:-3], query.shape[-3], keys.key1.shape[-3]
        context_mask = checks.mask(context_mask, (*batch, m), "[..., M]", "context_mask")
        mask = checks.mask(mask, (*batch, n, m, m), "[..., N, M, M]")
        if context_mask is not None:
            both_there = context_mask[..., :, None] & context_mask[..., None, :]
            mask = _both(mask, both_there[..., None, :, :])
        if self.is_mutable_collection("intermediates"):
            self.sow("intermediates", "pairs", pair_weights(query, keys.key1, keys.key2, mask))
        bilinear = self.bilinear.astype(query.dtype)
        return joined_heads(attend_to_pairs(query, keys.key1, keys.key2, keys.value, bilinear, mask))


def _both(mask: Array | None, other: Array | None) -> Array | None:
    """What both masks allow; None allows all."""
    return other if mask is None else mask if other is None else mask & other


def joined_heads(x: Float[Array, "*B N H E"]) -> Float[Array, "*B N F"]:
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def _head_size(num_heads: int, features: int) -> int:
    if num_heads < 1 or features < 1 or features % num_heads:
        raise ValueError(f"num_heads is {num_heads}, expected a divisor of features = {features}")
    return features // num_heads


def check_entities(name: str, x: Array, features: int | None = None) -> None:
    if x.ndim < 2 or not jnp.issubdtype(x.dtype, jnp.floating) or features not in (None, x.shape[-1]):
        width = "V" if features is None else f"V = {features}"
        raise ValueError(
            f"{name} has shape {x.shape} and type {x.dtype}, expected floating point numbers "
            f"[..., N, {width}]"
        )


def check_context(name: str, context: Array, of: str, inputs: Array) -> None:
    """Refuses a context of other features than the inputs', or of another batch (unless it has none)."""
    check_entities(name, context)
    if context.shape[-1] != inputs.shape[-1] or context.shape[:-2] not in ((), inputs.shape[:-2]):
        raise ValueError(
            f"{name} has shape {context.shape}, expected [..., M, V] or [M, V] with the batch and V of {of} "
            f"{inputs.shape}"
        )
