"""1-simplicial (dot-product) and 2-simplicial attention with virtual entities, after Clift et al. (2020).

Standard entities are the tokens of a set. Virtual entities are a few learned tokens that read all others;
2-simplicial attention attends to pairs of virtual entities, at a cost of N M^2 logits instead of N^3. Where
the paper and the authors' code differ, this module follows the code, which produced the paper's results.
`blocks.py` has the Transformer blocks.

Every function and module can be used by itself: `TwoSimplicialAttention` without virtual entities attends to
all pairs of a set (equation 10). Attention weights are sown into the collection "intermediates", one array
per call; `module.apply(variables, ..., mutable=["intermediates"])` returns them. Otherwise no weights are
kept, and the 2-simplicial ones are not computed.

Axis letters: B batch (any number of leading axes), N standard entities or queries (index i), M virtual
entities or keys (j and k), V features of an entity, H heads, D, E features of keys and values in a head,
F features of all heads, concatenated.
"""

import math
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float

from kernels import Logit, checks, masked_softmax, two_simplicial_attention
from kernels.two_simplicial import reference
from simplicial.decoding import DecodingCache


def as_rows(x: Float[Array, "*B F"]) -> Float[Array, "rows F"]:
    """Flattens all axes but the last into one.

    A product with a matrix has the same values either way, but the matrix's gradient becomes a sum over one
    axis instead of several, which is three times as fast on CPUs.
    """
    return x.reshape(-1, x.shape[-1])


def dot_product_logits(
    query: Float[Array, "*#B N H D"], key: Float[Array, "*#B M H D"]
) -> Float[Array, "*B H N M"]:
    """Computes <q_i, k_j> / sqrt(D) for each head, in float32 or wider. Batch axes broadcast."""
    dtype = jnp.promote_types(query.dtype, jnp.float32)
    logits = jnp.einsum("...ihd,...jhd->...hij", query, key, preferred_element_type=dtype)
    return logits / math.sqrt(query.shape[-1])


def weighted_values(
    weights: Float[Array, "*B H N M"], value: Float[Array, "*#B M H E"]
) -> Float[Array, "*B N H E"]:
    """Computes sum_j w_ij v_j for each head, in the dtype of `value`."""
    return jnp.einsum("...hij,...jhe->...ihe", weights.astype(value.dtype), value)


def virtual_entity_weights(
    query: Float[Array, "*#B M H D"],
    key: Float[Array, "*B N H D"],
    virtual_key: Float[Array, "*#B M H D"],
    entity_mask: Bool[Array, "*#B #N"] | None = None,
) -> Float[Array, "*B H M N+M"]:
    """Computes the attention weights of virtual entities on all entities, the standard ones first (14).

    Logits are concatenated rather than keys, which have 16 times as many numbers. Virtual entities that the
    whole batch shares, [M, H, D], are not copied.
    """
    to_standard, to_virtual = dot_product_logits(query, key), dot_product_logits(query, virtual_key)
    to_virtual = jnp.broadcast_to(to_virtual, (*to_standard.shape[:-1], to_virtual.shape[-1]))
    logits = jnp.concatenate([to_standard, to_virtual], axis=-1)
    if entity_mask is not None:
        # Virtual entities are never padding.
        entity_mask = jnp.broadcast_to(entity_mask, (*entity_mask.shape[:-1], key.shape[-3]))
        virtual = jnp.ones((*entity_mask.shape[:-1], virtual_key.shape[-3]), bool)
        entity_mask = jnp.concatenate([entity_mask, virtual], axis=-1)[..., None, None, :]
    return masked_softmax(logits, entity_mask)


def attend_to_pairs(
    query: Float[Array, "*B N H D"],
    key1: Float[Array, "*#B M H D"],
    key2: Float[Array, "*#B M H D"],
    value: Float[Array, "*#B M H E"],
    bilinear: Float[Array, "H F E E"],
    mask: Bool[Array, "*#B #N #M #M"] | None = None,
    **options: Any,
) -> Float[Array, "*B N H F"]:
    """Computes sum_jk softmax_jk(|<q_i, k1_j, k2_k>|) B(u_j, u_k), equation (10), with `kernels`.

    `options`, such as another logit, go to `kernels.two_simplicial_attention`.

    Keys and values without batch axes are shared by the whole batch. All queries of the batch then attend to
    the same pairs, and B(u_j, u_k) is computed once instead of once per example. This is the case in the
    first block, whose virtual entities are parameters.
    """
    batch, m = query.shape[:-2], key1.shape[-3]
    if key1.ndim > 3:
        return two_simplicial_attention(query, key1, key2, value, bilinear, mask=mask, **options)
    if mask is not None:
        mask = jnp.broadcast_to(mask, (*batch, m, m)).reshape(math.prod(batch), m, m)
    query = query.reshape(-1, *query.shape[-2:])
    out = two_simplicial_attention(query, key1, key2, value, bilinear, mask=mask, **options)
    return out.reshape(*batch, *out.shape[1:])


def pair_weights(
    query: Float[Array, "*B N H D"],
    key1: Float[Array, "*#B M H D"],
    key2: Float[Array, "*#B M H D"],
    mask: Bool[Array, "*#B #N #M #M"] | None = None,
    *,
    logit: Logit = "unsigned",
    scale: float = 1.0,
) -> Float[Array, "*B H N M M"]:
    """Computes the weights of equation (10), N M^2 numbers per head, which the attention never stores."""
    batch, n, m = query.shape[:-3], query.shape[-3], key1.shape[-3]
    dtype = jnp.promote_types(query.dtype, jnp.float32)
    spread = (jnp.broadcast_to(x, (*batch, *x.shape[-3:])) for x in (query, key1, key2))
    flat = (x.reshape(math.prod(batch), *x.shape[-3:]).astype(dtype) for x in spread)
    logits = reference.logits(reference.Config(logit, scale), *flat)
    logits = logits.reshape(*batch, *logits.shape[1:-2], m * m)
    if mask is not None:
        mask = jnp.broadcast_to(mask, (*batch, n, m, m)).reshape(*batch, 1, n, m * m)
    return masked_softmax(logits, mask).reshape(*logits.shape[:-1], m, m)


class HeadProjections(nn.Module):
    """Several linear maps of an entity, without biases, each split into heads: E of equation (1).

    The maps share one kernel, [V, count H D], which is initialised as a single matrix: Glorot's limit counts
    the outputs of all maps.

    Attributes:
      count: number of maps (3: query, key and value; 4: query, two keys and value).
      num_heads: H.
      features: H * D, the output features of each map.
      dtype: dtype of the factors of the products; None promotes inputs and parameters.
      param_dtype: dtype of the kernel.
      least_output: minimum dtype of the outputs.
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
        """Applies maps `first` to `last` - 1 to the inputs.

        Raises:
          ValueError: `num_heads` does not divide `features`, or `inputs` has fewer than two axes.
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
    """Dot-product attention without output projection; heads are concatenated (2), (4).

    Sows "standard" [*B, H, N, M] and, for virtual entities, "virtual" [*B, H, M, N+M].

    Attributes:
      num_heads: H.
      features: F = H * D.
      dtype: dtype of the products, None to promote inputs and parameters; softmax uses at least float32.
      param_dtype: dtype of the parameters.
    """

    num_heads: int = 2
    features: int = 64
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    def setup(self):
        """Creates one kernel for queries, keys and values."""
        self.qkv = HeadProjections(3, self.num_heads, self.features, self.dtype, self.param_dtype)

    def __call__(
        self,
        inputs: Float[Array, "*B N V"],
        context: Float[Array, "*#B M V"] | None = None,
        *,
        context_mask: Bool[Array, "*#B #M"] | None = None,
        mask: Bool[Array, "*#B #N #M"] | None = None,
    ) -> Float[Array, "*B N F"]:
        """Lets every input attend to the context.

        Args:
          inputs: queries.
          context: entities to attend to; None for the inputs themselves.
          context_mask: False where the context is padding.
          mask: True where input i may attend to j. Rows with no allowed entity return 0.

        Raises:
          ValueError: an argument has the wrong shape or dtype.
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
        virtual: Float[Array, "*#B M V"],
        *,
        entity_mask: Bool[Array, "*#B #N"] | None = None,
        mask: Bool[Array, "*#B #N #N"] | None = None,
    ) -> tuple[Float[Array, "*B N F"], Float[Array, "*B M F"]]:
        """Returns the first terms of (13) and (14), of standard and of virtual entities."""
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
    """Keys and values of 2-simplicial attention: l1_j, l2_k, and u for both members of a pair."""

    key1: Float[Array, "*B M H D"]
    key2: Float[Array, "*B M H D"]
    value: Float[Array, "*B M H D"]


class TwoSimplicialAttention(nn.Module):
    """Attention of every input to pairs: (p, l1, l2, u) = E2(e) and equation (10), heads concatenated.

    The paper applies a LayerNorm to the output (Remark 2.3), which is left to the caller; its logit is
    unsigned and not scaled. Sows "pairs" [*B, H, N, M, M].

    p, l1, l2 and the logits use at least float32 whatever `dtype` is: logits are products of three vectors,
    reach the tens when training starts, and would lose digits in bfloat16 that change the softmax.

    With `decode`, every input attends to the pairs of inputs up to itself, which a cache holds; the first
    call, which initialises it, sets the greatest length L. After that, inputs are a prompt, for which the
    cache must be empty, or the next input. A step costs L^2 triples a head. The output is NaN for a prompt
    after other inputs and beyond L.

    Attributes:
      num_heads: H.
      features: F = H * D.
      logit: "unsigned", "trilinear" or "signed" (D a multiple of 3); see `kernels.two_simplicial_attention`.
      scale: factor of the logits.
      decode: whether to keep a cache.
      dtype: dtype of the factors of the projections, None to promote inputs and parameters.
      param_dtype: dtype of the parameters.
      learned_bilinear: whether B is a parameter; otherwise B(u, v) is the product of each feature, which has
        no parameters.
    """

    num_heads: int = 1
    features: int = 48
    logit: Logit = "unsigned"
    scale: float = 1.0
    decode: bool = False
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    learned_bilinear: bool = True

    def setup(self):
        """Creates one kernel for queries, both keys and values, and B of each head, [H, D, D, D]."""
        self.qkkv = HeadProjections(
            4, self.num_heads, self.features, self.dtype, self.param_dtype, least_output=jnp.float32
        )
        d = _head_size(self.num_heads, self.features)
        if self.learned_bilinear:
            # Keras' Glorot initialiser per head: fans of D * D, a limit of sqrt(6 / (2 D^2)).
            glorot = nn.initializers.glorot_uniform(batch_axis=(0,))
            self.bilinear = self.param("bilinear", glorot, (self.num_heads, d, d, d), self.param_dtype)
        else:
            one = jnp.eye(d, dtype=self.param_dtype)
            self.bilinear = jnp.broadcast_to(one[:, :, None] * one[:, None, :], (self.num_heads, d, d, d))
        if self.decode:
            self.cache = DecodingCache((None,))

    def __call__(
        self,
        inputs: Float[Array, "*B N V"],
        context: Float[Array, "*#B M V"] | None = None,
        *,
        context_mask: Bool[Array, "*#B #M"] | None = None,
        mask: Bool[Array, "*#B #N #M #M"] | None = None,
    ) -> Float[Array, "*B N F"]:
        """Lets every input attend to all pairs of the context, [*B, M, V] or, shared by the batch, [M, V].

        Without a context, inputs attend to pairs of inputs (M = N, the purely 2-simplicial attention of
        (10)). `mask` is True where input i may attend to (j, k). With `decode` there is no context, and M is
        L for one input. The rest is as in `OneSimplicialAttention`.
        """
        check_entities("inputs", inputs)
        if self.decode:
            if context is not None or context_mask is not None:
                raise ValueError("context: got one with decode=True, expected None")
            return self._decoded(inputs, mask)
        context = inputs if context is None else context
        check_context("context", context, "inputs", inputs)
        return self.attend(inputs, self.keys(context), context_mask=context_mask, mask=mask)

    def keys(self, context: Float[Array, "*B M V"]) -> PairKeys:
        """Computes l1, l2 and u of the context."""
        return PairKeys(*self.qkkv(context, 1, 4))

    def attend(
        self,
        inputs: Float[Array, "*B N V"],
        keys: PairKeys,
        *,
        context_mask: Bool[Array, "*#B #M"] | None = None,
        mask: Bool[Array, "*#B #N #M #M"] | None = None,
    ) -> Float[Array, "*B N F"]:
        """Does the same as `__call__` with keys from `keys`."""
        (query,) = self.qkkv(inputs, 0, 1)
        batch, n, m = query.shape[:-3], query.shape[-3], keys.key1.shape[-3]
        context_mask = checks.mask(context_mask, (*batch, m), "[..., M]", "context_mask")
        mask = checks.mask(mask, (*batch, n, m, m), "[..., N, M, M]")
        if context_mask is not None:
            both_there = context_mask[..., :, None] & context_mask[..., None, :]
            mask = _both(mask, both_there[..., None, :, :])
        kind: dict[str, Any] = {"logit": self.logit, "scale": self.scale}
        if self.is_mutable_collection("intermediates"):
            self.sow("intermediates", "pairs", pair_weights(query, keys.key1, keys.key2, mask, **kind))
        bilinear = self.bilinear.astype(query.dtype)
        return joined_heads(attend_to_pairs(query, keys.key1, keys.key2, keys.value, bilinear, mask, **kind))

    def _decoded(self, inputs, mask):
        keys = self.keys(inputs)
        held = self.cache((keys.key1, keys.key2, keys.value))
        if held.step:
            (arrays,), (seen,) = held.arrays, held.seen
            keys, seen = PairKeys(*arrays), seen[None]
        else:
            seen = jnp.tri(inputs.shape[-2], dtype=bool)
        both = (seen[:, :, None] & seen[:, None, :]).reshape((1,) * (inputs.ndim - 2) + (*seen.shape, -1))
        if mask is not None:
            mask = checks.mask(mask, (*inputs.shape[:-1], *both.shape[-2:]), "[..., N, M, M]")
        return held.checked(self.attend(inputs, keys, mask=_both(mask, both)))


def _both(mask: Array | None, other: Array | None) -> Array | None:
    """Combines two masks; None allows everything."""
    return other if mask is None else mask if other is None else mask & other


def joined_heads(x: Float[Array, "*B N H E"]) -> Float[Array, "*B N F"]:
    """Concatenates the heads' features: F = H * E."""
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def _head_size(num_heads: int, features: int) -> int:
    if num_heads < 1 or features < 1 or features % num_heads:
        raise ValueError(f"num_heads: got {num_heads}, expected a divisor of features = {features}")
    return features // num_heads


def check_entities(name: str, x: Array, features: int | None = None) -> None:
    """Raises ValueError unless x is a floating array [..., N, V], with V = features if that is given."""
    if x.ndim < 2 or not jnp.issubdtype(x.dtype, jnp.floating) or features not in (None, x.shape[-1]):
        width = "V" if features is None else f"V = {features}"
        raise ValueError(
            f"{name}: got shape {x.shape} and dtype {x.dtype}, expected floating-point [..., N, {width}]"
        )


def check_context(name: str, context: Array, of: str, inputs: Array) -> None:
    """Raises ValueError unless `context` has the inputs' features and batch axes, or no batch axes."""
    check_entities(name, context)
    if context.shape[-1] != inputs.shape[-1] or context.shape[:-2] not in ((), inputs.shape[:-2]):
        raise ValueError(
            f"{name}: got shape {context.shape}, expected [..., M, V] or [M, V] with the batch and V of {of} "
            f"{inputs.shape}"
        )
