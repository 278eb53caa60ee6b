"""The TP-Transformer of Schlag et al. (2019) and the Transformer it is compared with, as released.

The released model differs from the paper in its embedding (drawn from N(0, 1/d), roles with a 1
added) and in how its attention is initialised; this is the model that ran, with the paper's initialisation as
an option.

Axis letters: B batch, S source and T target positions, L positions a cache has room for, K hypotheses side by
side, I features, V vocabulary, H heads, D features of a head.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, cast

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from flax.typing import Dtype
from jax.nn.initializers import Initializer, glorot_uniform
from jaxtyping import Array, Bool, Float, Int

from tp_transformer.attention import Implementation, uniform_by_inputs
from tp_transformer.layers import DecoderLayer, Embedding, EncoderLayer, KeysAndValues, sinusoids

Initialization = Literal["released", "xavier", "uniform"]


@struct.dataclass
class Memory:
    """What decoding needs of a source: what each cross-attention sees of it, and where it is not padding."""

    layers: tuple[KeysAndValues, ...]
    mask: Bool[Array, "B S"]


class EncoderDecoder(nn.Module):
    """What both architectures are, but for roles. Not a model by itself: see its two subclasses.

    Attributes:
      vocab_size: V, one table for source, target and logits.
      features: d_z.
      filter_features: d_f of the feed-forward layers.
      num_heads: H.
      num_layers: L of the encoder, and as many of the decoder.
      dropout_rate: of the embedding, attention weights, hidden cells and what sublayers return; 0 in the
        paper.
      initialization: of attention's matrices. "xavier" is what the paper says of all; "uniform", up to
        1 / sqrt(d_z), is what ran in the TP-Transformer, and "released" what ran in this architecture. All
        others are as they ran in either.
      pad: the symbol that fills up shorter rows.
      attention_implementation: of `jax.nn.dot_product_attention`; None for JAX's choice, "cudnn" for fused
        attention on NVIDIA GPUs (with `dtype` bfloat16).
      remat: whether a layer's inner values are computed again for its gradient, to save memory.
      dtype: type of the products; None is `param_dtype`. Softmax, LayerNorm sums and logits are float32 at
        least.
      param_dtype: type of the parameters.
    """

    vocab_size: int = 72
    features: int = 512
    filter_features: int = 2048
    num_heads: int = 8
    num_layers: int = 6
    dropout_rate: float = 0.0
    initialization: Initialization = "released"
    pad: int = 0
    attention_implementation: Implementation | None = None
    remat: bool = False
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    binds_roles: ClassVar[bool] = False

    def setup(self):
        """One embedding and two stacks of layers; ValueError for a field that does not fit."""
        self._check_fields()
        types = {"dtype": self.dtype or self.param_dtype, "param_dtype": self.param_dtype}
        shared = {"binds_roles": self.binds_roles, "dropout_rate": self.dropout_rate, **types}
        self.embedding = Embedding(self.vocab_size, self.features, **shared)
        layer = {
            "num_heads": self.num_heads,
            "hidden": self.filter_features,
            "attention_init": self._attention_init(),
            "attention_implementation": self.attention_implementation,
            **shared,
        }
        encoder_layer = nn.remat(EncoderLayer, static_argnums=(3,)) if self.remat else EncoderLayer
        decoder_layer = nn.remat(DecoderLayer, static_argnums=(4,)) if self.remat else DecoderLayer
        self.encoder = [encoder_layer(**layer) for _ in range(self.num_layers)]
        self.decoder = [decoder_layer(**layer) for _ in range(self.num_layers)]

    def __call__(
        self, source: Int[Array, "B S"], target: Int[Array, "B T"], *, deterministic: bool = True
    ) -> Float[Array, "B T V"]:
        """Logits of the symbol after each of the target's, float32 at least.

        Args:
          source: the question.
          target: the answer from its start symbol on. Its padding needs no mask: it comes last, where nothing
            else sees it.
          deterministic: False to drop; needs a key "dropout".

        Raises:
          ValueError: a shape or type that does not fit, by the argument's name.
        """
        _check_tokens("source", source)
        _check_tokens("target", target, source.shape[0])
        encoded = self.encode(source, deterministic=deterministic)
        return self.decode(target, encoded, source != self.pad, deterministic=deterministic)

    def encode(self, source: Int[Array, "B S"], *, deterministic: bool = True) -> Float[Array, "B S I"]:
        """The encoder's last cells."""
        _check_tokens("source", source)
        cells = self._embed(source, deterministic)
        for layer in self.encoder:
            cells = layer(cells, source != self.pad, deterministic)
        return cells

    def decode(
        self,
        target: Int[Array, "B T"],
        encoded: Float[Array, "B S I"],
        source_mask: Bool[Array, "B S"],
        *,
        deterministic: bool = True,
    ) -> Float[Array, "B T V"]:
        """Logits after each symbol of the target, given the encoder's cells."""
        _check_tokens("target", target, encoded.shape[0])
        cells = self._embed(target, deterministic)
        for layer in self.decoder:
            cells = layer(cells, encoded, source_mask, deterministic)
        return self.embedding.logits(cells)

    def _embed(self, tokens, deterministic):
        positions = jnp.asarray(sinusoids(tokens.shape[1], self.features))
        return self.embedding(tokens, positions, deterministic=deterministic)

    def remember(self, source: Int[Array, "B S"]) -> Memory:
        """Encodes a source for `step`."""
        encoded = self.encode(source)
        return Memory(tuple(layer.remember(encoded) for layer in self.decoder), source != self.pad)

    def empty_past(self, batch: int, hypotheses: int, length: int) -> tuple[KeysAndValues, ...]:
        """Room for the past of every layer: [batch, hypotheses, H, length, D]."""
        shape = (batch, hypotheses, self.num_heads, length, self.features // self.num_heads)
        empty = jnp.zeros(shape, self.dtype or self.param_dtype)
        return (KeysAndValues(empty, empty),) * self.num_layers

    def step(
        self,
        tokens: Int[Array, "B K"],
        past: tuple[KeysAndValues, ...],
        position: Int[Array, ""],
        memory: Memory,
    ) -> tuple[Float[Array, "B K V"], tuple[KeysAndValues, ...]]:
        """Logits after the symbols at one position, of K hypotheses about each source.

        Args:
          tokens: the symbol of each hypothesis at this position.
          past: what was returned for the position before; `empty_past` at first.
          position: from 0; less than the length of `past`.
          memory: of the source.
        """
        table = jnp.asarray(sinusoids(past[0].keys.shape[-2], self.features))
        cells = self.embedding(tokens, jax.lax.dynamic_slice_in_dim(table, position, 1))
        new_past = []
        for layer, kept, remembered in zip(self.decoder, past, memory.layers, strict=True):
            cells, kept = layer.step(cells, kept, position, remembered, memory.mask)
            new_past.append(kept)
        return self.embedding.logits(cells), tuple(new_past)

    @nn.nowrap
    def _attention_init(self) -> Initializer:
        released = uniform_by_inputs if self.binds_roles else glorot_uniform()
        known = {"released": released, "xavier": glorot_uniform(), "uniform": uniform_by_inputs}
        return known[self.initialization]

    @nn.nowrap
    def _check_fields(self) -> None:
        for name in ("vocab_size", "features", "filter_features", "num_heads", "num_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 1")
        if self.features % self.num_heads or self.features % 2:
            raise ValueError(
                f"features is {self.features}, expected an even multiple of num_heads = {self.num_heads}"
            )
        if self.initialization not in ("released", "xavier", "uniform"):
            raise ValueError(
                f"initialization is {self.initialization!r}, expected 'released', 'xavier' or 'uniform'"
            )
        if not 0 <= self.dropout_rate < 1:
            raise ValueError(f"dropout_rate is {self.dropout_rate}, expected one from 0 up to 1")
        if not 0 <= self.pad < self.vocab_size:
            raise ValueError(f"pad is {self.pad}, expected one of {self.vocab_size} symbols")


class TPTransformer(EncoderDecoder):
    """The TP-Transformer: TP-attention throughout, and an embedding bound to its role (2)."""

    binds_roles: ClassVar[bool] = True


class Transformer(EncoderDecoder):
    """The baseline: the same layers with plain attention, and a plain embedding."""


@struct.dataclass
class Attended:
    """What one attention did.

    Attributes:
      weights: alpha of equation (5): how each query spread its attention over the keys.
      roles: r of equation (3): the role vector of each query; None in the Transformer.
    """

    weights: Float[Array, "B H T S"]
    roles: Float[Array, "B T H D"] | None = None


@struct.dataclass
class Traced:
    """A model's output with what its attentions did, layer by layer.

    Attributes:
      logits: of the next symbol.
      encoder: self-attention over the source.
      decoder_self: self-attention over the target.
      decoder_cross: attention of the target to the source.
    """

    logits: Float[Array, "B T V"]
    encoder: tuple[Attended, ...]
    decoder_self: tuple[Attended, ...]
    decoder_cross: tuple[Attended, ...]


def apply_traced(
    model: EncoderDecoder,
    variables: Mapping[str, Any],
    source: Int[Array, "B S"],
    target: Int[Array, "B T"],
) -> Traced:
    """`model.apply`, with attention maps and role vectors."""
    logits, state = cast(
        tuple[Array, Mapping[str, Any]],
        model.apply(variables, source, target, mutable=["intermediates"]),
    )
    stacks = (("encoder", "attention"), ("decoder", "self_attention"), ("decoder", "cross_attention"))
    return Traced(logits, *(_attended(state, model.num_layers, *names) for names in stacks))


def encoder_attention(
    model: EncoderDecoder, variables: Mapping[str, Any], source: Int[Array, "B S"]
) -> tuple[Attended, ...]:
    """Self-attention over the source alone, layer by layer."""
    _, state = cast(
        tuple[Array, Mapping[str, Any]],
        model.apply(variables, source, method="encode", mutable=["intermediates"]),
    )
    return _attended(state, model.num_layers, "encoder", "attention")


def _attended(state: Mapping[str, Any], num_layers: int, stack: str, attention: str) -> tuple[Attended, ...]:
    layers = (state["intermediates"][f"{stack}_{i}"][attention] for i in range(num_layers))
    return tuple(Attended(**{name: calls[0] for name, calls in layer.items()}) for layer in layers)


def _check_tokens(name: str, tokens: Array, batch: int | None = None) -> None:
    if tokens.ndim != 2 or not jnp.issubdtype(tokens.dtype, jnp.integer):
        raise ValueError(f"{name} has shape {tokens.shape} and type {tokens.dtype}, expected integers [B, T]")
    if batch is not None and tokens.shape[0] != batch:
        raise ValueError(f"{name} has shape {tokens.shape}, expected a batch of {batch} as source has")
