"""The TP-Transformer of Schlag et al. (2019) and its baseline, the Transformer, as released.

The released model differs from the paper in its embedding (drawn from N(0, 1/d), roles with 1 added) and in
the initialisation of its attention. This is the released model, with the paper's initialisation as an option.

Axis letters: B batch, S source and T target positions, L capacity of a cache, K parallel hypotheses, I
features, V vocabulary, H heads, D features of a head.
"""

import functools
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, cast, get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import struct
from flax.typing import Dtype
from jax.nn.initializers import Initializer, glorot_uniform
from jaxtyping import Array, Bool, Float, Int

from kernels import checks
from tp_transformer.attention import (
    Implementation,
    MultiHeadAttention,
    TPMultiHeadAttention,
    uniform_by_inputs,
)
from tp_transformer.layers import DecoderLayer, Embedding, EncoderLayer, KeysAndValues, sinusoids
from tp_transformer.pretrained import Pretrained

Initialization = Literal["released", "xavier", "uniform"]


@struct.dataclass
class Memory:
    """Encoded source for decoding: keys and values of each cross-attention, and where it is not padding."""

    layers: tuple[KeysAndValues, ...]
    mask: Bool[Array, "B S"]


class EncoderDecoder(Pretrained, nn.Module):
    """Base class of both architectures; use one of its two subclasses.

    Ids must be 0 to V - 1. Outside of `jax.jit` any other id is an error; inside, where values cannot be
    read, it embeds as NaN, so that all logits of its row are NaN (`check_tokens` before the call finds it).

    Attributes:
      vocab_size: V; source, target and logits share one table.
      features: d_z.
      filter_features: d_f of the feed-forward layers.
      num_heads: H.
      num_layers: number of encoder layers, and of decoder layers.
      dropout_rate: dropout rate of the embedding, attention weights, hidden cells and sublayer outputs; 0 in
        the paper.
      initialization: initialisation of attention's matrices. "xavier" is what the paper states; "uniform", up
        to 1 / sqrt(d_z), is what the authors' TP-Transformer used, and "released" is what the authors' code
        used for this architecture. All other parameters follow the released code.
      pad: id of the padding symbol.
      start: id of the symbol that decoding begins with by default; None if it must be given.
      end: id of the symbol that ends an answer, likewise.
      attention_implementation: `implementation` of `jax.nn.dot_product_attention`; None for JAX's choice,
        "cudnn" for fused attention on NVIDIA GPUs (with `dtype` bfloat16).
      remat: whether to recompute a layer's activations for its gradient, to save memory.
      dtype: dtype of the products; None means `param_dtype`. Softmax, LayerNorm sums and logits use at least
        float32.
      param_dtype: dtype of the parameters.
    """

    vocab_size: int = 72
    features: int = 512
    filter_features: int = 2048
    num_heads: int = 8
    num_layers: int = 6
    dropout_rate: float = 0.0
    initialization: Initialization = "released"
    pad: int = 0
    start: int | None = None
    end: int | None = None
    attention_implementation: Implementation | None = None
    remat: bool = False
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    binds_roles: ClassVar[bool] = False
    attention_class: ClassVar[type[MultiHeadAttention]] = MultiHeadAttention
    embedding_class: ClassVar[type[Embedding]] = Embedding

    def setup(self):
        """Creates one embedding and two stacks of layers. Raises ValueError if a field is out of range."""
        self._check_fields()
        types = {"dtype": self.dtype or self.param_dtype, "param_dtype": self.param_dtype}
        shared = {"dropout_rate": self.dropout_rate, **types}
        self.embedding = self.embedding_class(
            self.vocab_size, self.features, binds_roles=self.binds_roles, **shared
        )
        layer = {
            "num_heads": self.num_heads,
            "hidden": self.filter_features,
            "attention_class": self.attention_class,
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
        """Returns logits of the symbol after each symbol of the target, in float32 or wider.

        Args:
          source: questions.
          target: answers from their start symbol on. Padding comes last, where no other position attends to
            it, and needs no mask.
          deterministic: False to apply dropout, which needs an RNG named "dropout".

        Raises:
          ValueError: an argument has the wrong shape or dtype, or (outside of `jax.jit`) an id out of range.
        """
        encoded = self.encode(source, deterministic=deterministic)
        return self.decode(target, encoded, source != self.pad, deterministic=deterministic)

    def encode(self, source: Int[Array, "B S"], *, deterministic: bool = True) -> Float[Array, "B S I"]:
        """Returns the cells of the last encoder layer."""
        check_tokens("source", source, self.vocab_size)
        cells = self._embed(source, deterministic)
        for layer in self.encoder:
            cells = layer(cells, source != self.pad, deterministic)
        return cells

    def decode(
        self,
        target: Int[Array, "B T"],
        encoded: Float[Array, "B S I"],
        source_mask: Bool[Array, "#B #S"] | Bool[Array, "#S"],
        *,
        deterministic: bool = True,
    ) -> Float[Array, "B T V"]:
        """Returns logits after each symbol of the target, given the encoder's cells."""
        check_tokens("target", target, self.vocab_size)
        if target.shape[0] != encoded.shape[0]:
            raise ValueError(
                f"target: got shape {target.shape}, expected a batch of {encoded.shape[0]}, as in source"
            )
        checks.mask(source_mask, encoded.shape[:2], "[B, S]", "source_mask")
        source_mask = jnp.broadcast_to(source_mask, encoded.shape[:2])
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
        """Returns an empty cache for every layer, of shape [batch, hypotheses, H, length, D]."""
        shape = (batch, hypotheses, self.num_heads, length, self.features // self.num_heads)
        # Arrays of their own, so that a caller can donate them.
        empty = functools.partial(jnp.zeros, shape, self.dtype or self.param_dtype)
        return tuple(KeysAndValues(empty(), empty()) for _ in range(self.num_layers))

    def step(
        self,
        tokens: Int[Array, "B K"],
        past: tuple[KeysAndValues, ...],
        position: Int[Array, ""],
        memory: Memory,
    ) -> tuple[Float[Array, "B K V"], tuple[KeysAndValues, ...]]:
        """Computes logits after the symbols at one position, for K hypotheses per source.

        Args:
          tokens: symbol of each hypothesis at this position.
          past: cache returned for the previous position; `empty_past` at first.
          position: counted from 0; less than the capacity of `past`.
          memory: encoded source.

        Returns:
          Logits, and the cache with this position inserted.
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
                raise ValueError(f"{name}: got {getattr(self, name)}, expected at least 1")
        if self.features % self.num_heads or self.features % 2:
            raise ValueError(
                f"features: got {self.features}, expected an even multiple of num_heads = {self.num_heads}"
            )
        if self.initialization not in get_args(Initialization):
            known = ", ".join(map(repr, get_args(Initialization)))
            raise ValueError(f"initialization: got {self.initialization!r}, expected one of {known}")
        if not 0 <= self.dropout_rate < 1:
            raise ValueError(f"dropout_rate: got {self.dropout_rate}, expected a number in [0, 1)")
        symbols = {"pad": self.pad, "start": self.start, "end": self.end}
        given = {name: symbol for name, symbol in symbols.items() if symbol is not None}
        for name, symbol in given.items():
            if not 0 <= symbol < self.vocab_size:
                raise ValueError(f"{name}: got {symbol}, expected 0 to {self.vocab_size - 1}")
        if len(set(given.values())) < len(given):
            raise ValueError(f"pad, start, end: got {tuple(symbols.values())}, expected different ids")


class TPTransformer(EncoderDecoder):
    """The TP-Transformer: TP-attention throughout, and an embedding bound to its role (2)."""

    binds_roles: ClassVar[bool] = True
    attention_class: ClassVar[type[MultiHeadAttention]] = TPMultiHeadAttention


class Transformer(EncoderDecoder):
    """The baseline: the same layers with plain attention and a plain embedding."""


@struct.dataclass
class Attended:
    """Intermediate values of one attention layer.

    Attributes:
      weights: alpha of equation (5), the attention weights of each query over the keys.
      roles: r of equation (3), the role vector of each query; None in the Transformer.
    """

    weights: Float[Array, "B H T S"]
    roles: Float[Array, "B T H D"] | None = None


@struct.dataclass
class Traced:
    """A model's output with the intermediate values of its attention layers.

    Attributes:
      logits: logits of the next symbol.
      encoder: self-attention over the source, layer by layer.
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
    """Returns the output of `model.apply` with attention weights and role vectors."""
    logits, state = cast(
        tuple[Array, Mapping[str, Any]],
        model.apply(variables, source, target, mutable=["intermediates"]),
    )
    stacks = (("encoder", "attention"), ("decoder", "self_attention"), ("decoder", "cross_attention"))
    return Traced(logits, *(_attended(state, model.num_layers, *names) for names in stacks))


def encoder_attention(
    model: EncoderDecoder, variables: Mapping[str, Any], source: Int[Array, "B S"]
) -> tuple[Attended, ...]:
    """Returns self-attention over the source, layer by layer, without running the decoder."""
    _, state = cast(
        tuple[Array, Mapping[str, Any]],
        model.apply(variables, source, method="encode", mutable=["intermediates"]),
    )
    return _attended(state, model.num_layers, "encoder", "attention")


def _attended(state: Mapping[str, Any], num_layers: int, stack: str, attention: str) -> tuple[Attended, ...]:
    layers = (state["intermediates"][f"{stack}_{i}"][attention] for i in range(num_layers))
    return tuple(Attended(**{name: calls[0] for name, calls in layer.items()}) for layer in layers)


def check_tokens(name: str, tokens: Any, vocab_size: int) -> None:
    """Checks an array of ids [B, T] with at least one position; ids of a traced array pass unread.

    Raises:
      ValueError: the shape or dtype is wrong, or an id is not 0 to `vocab_size` - 1; names the array `name`.
    """
    if tokens.ndim != 2 or not jnp.issubdtype(tokens.dtype, jnp.integer):
        raise ValueError(
            f"{name}: got shape {tokens.shape} and dtype {tokens.dtype}, expected integers [B, T]"
        )
    if tokens.shape[1] == 0:
        raise ValueError(f"{name}: got shape {tokens.shape}, expected at least one symbol per row")
    if isinstance(tokens, jax.core.Tracer) or not getattr(tokens, "is_fully_addressable", True):
        return
    values = np.asarray(tokens)  # on the host, so as not to wait for what the devices compute
    if (wrong := (values < 0) | (values >= vocab_size)).any():
        row, position = np.argwhere(wrong)[0].tolist()
        raise ValueError(
            f"{name}: got id {values[row, position]} in row {row} at position {position}, expected 0 to "
            f"{vocab_size - 1}"
        )
