"""FOLNet: first-order logic as a network, from token ids to properties of tokens and relations of pairs.

Chen, Learning Language Representations with Logical Inductive Bias (ICLR 2023): Section 3, Appendix A.

Axis letters: B batch; T tokens; D1 properties; D2 relations; K relations given per pair.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from folnet.configuration import FOLNetConfig
from folnet.embeddings import Embeddings
from folnet.layers import BINARY_AXES, UNARY_AXES, Reasoner
from folnet.linear import Linear
from folnet.outputs import Kernels, ModelOutput
from folnet.pretrained import Pretrained
from folnet.settings import ModelConfig, check_kind


@struct.dataclass
class FOLNetOutput(ModelOutput):
    """Outputs of an encoder.

    Attributes:
      last_hidden_state: u_L(x).
      pooler_output: tanh of an affine map of u_L at the first token, [CLS].
      relation_hidden_state: u_L(x, y); None for a Transformer.
      hidden_states: u_l(x) of the base atoms and after each layer; None unless requested. The last one is
        normalized and excludes the diagonal link.
      relation_hidden_states: u_l(x, y), likewise.
      attentions: kernels by layer and operator, as of `ReasonerLayer.kernels`; None unless requested. A
        Transformer has one operator, "attention".
    """

    last_hidden_state: Float[Array, "B T D1"]
    pooler_output: Float[Array, "B D1"]
    relation_hidden_state: Float[Array, "B T T D2"] | None
    hidden_states: tuple[Float[Array, "B T D1"], ...] | None = None
    relation_hidden_states: tuple[Float[Array, "B T T D2"], ...] | None = None
    attentions: Kernels | None = None


class FOLNet(nn.Module, Pretrained):
    """The encoder: base atoms, L steps of deduction, and the pooled first token."""

    config: FOLNetConfig

    def setup(self):
        check_kind(self.config, FOLNetConfig)
        self.embeddings = Embeddings(self.config)
        self.reasoner = Reasoner(self.config)
        self.pooler = Linear(self.config, self.config.hidden_size, self.config.hidden_size)
        self.diagonal = diagonal_link(self.config)

    def __call__(
        self,
        input_ids: Int[Array, "B T"] | None = None,
        token_type_ids: Int[Array, "B T"] | None = None,
        attention_mask: Bool[Array, "B T"] | Int[Array, "B T"] | None = None,
        deterministic: bool = True,
        *,
        inputs_embeds: Float[Array, "B T D1"] | None = None,
        relation_ids: Int[Array, "B T T *K"] | None = None,
        relation_embeds: Float[Array, "B T T D2"] | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> FOLNetOutput:
        """Deduces properties and relations from a text.

        Other facts about tokens and pairs can be given as base atoms in addition to the text or in place of
        it (Appendix A.4).

        Args:
          input_ids: tokens; optional if `inputs_embeds` is given.
          token_type_ids: segments, 0 by default. Relative positions distinguish them.
          attention_mask: True at real tokens. None masks nothing: padding then takes part in every softmax,
            as in the released models. With a mask, outputs at real tokens do not depend on the padding.
          deterministic: False enables dropout, which needs an RNG named "dropout".
          inputs_embeds: additional properties of each token, added to the embeddings of `input_ids` before
            normalization.
          relation_ids: relations of pairs by number, below `relation_vocab_size`; one or K per pair, -1 for
            none. Their learned embeddings are added to the pair's base atoms before normalization.
          relation_embeds: additional relations of each pair as vectors, added in the same way.
          output_hidden_states: whether to return the atoms of every layer.
          output_attentions: whether to return the kernels of every layer's operators, without dropout.

        Raises:
          ValueError: If a shape or type is wrong, or if ids are out of range (not checked while tracing).
        """
        atoms: dict[str, Any] = {
            "inputs_embeds": inputs_embeds,
            "relation_ids": relation_ids,
            "relation_embeds": relation_embeds,
        }
        texts = (input_ids, token_type_ids, attention_mask)
        input_ids, types, mask = encoder_arguments(self.config, *texts, **atoms)
        unary, relation = self.embeddings(input_ids, types, **atoms, deterministic=deterministic)
        unary = nn.with_logical_constraint(unary, UNARY_AXES)
        relation = nn.with_logical_constraint(relation, BINARY_AXES)
        states = self.reasoner(unary, relation, mask, None, deterministic)
        unary = linked_back(self.diagonal, *states[-1], 0)
        pooled = jnp.tanh(self.pooler(unary[:, 0]))
        kernels = self.reasoner.kernels(states, mask) if output_attentions else None
        fields = deduced(unary, states, output_hidden_states)
        return FOLNetOutput(pooler_output=pooled, attentions=kernels, **fields)


def diagonal_link(config: FOLNetConfig) -> Linear | None:
    """Returns the map from relations of tokens to themselves to properties, or None if it is disabled."""
    return Linear(config, config.relation_size, config.hidden_size) if config.diagonal_link else None


def linked_back(
    diagonal: Linear | None, unary: Float[Array, "B T D1"], relation: Float[Array, "B D2 T C"], inputs: int
) -> Float[Array, "B T D1"]:
    """Adds the mapped diagonal of the last binary atoms to the last unary atoms, if there is such a link.

    The first `inputs` of the C columns belong to an input text and are skipped.
    """
    if diagonal is None:
        return unary
    own = jnp.diagonal(relation[..., inputs:], axis1=2, axis2=3)
    return unary + diagonal(own.swapaxes(1, 2))


def deduced(
    unary: Float[Array, "B T D1"], states: Sequence[Any], output_hidden_states: bool
) -> dict[str, Any]:
    """Returns the fields shared by all outputs, with relations as the last axis."""
    every = states if output_hidden_states else []
    return {
        "last_hidden_state": unary,
        "relation_hidden_state": jnp.moveaxis(states[-1][1], 1, -1),
        "hidden_states": tuple(u for u, _ in every) or None,
        "relation_hidden_states": tuple(jnp.moveaxis(r, 1, -1) for _, r in every) or None,
    }


def check_inputs(
    config: ModelConfig,
    input_ids: Any = None,
    token_type_ids: Any = None,
    *,
    relation_ids: Any = None,
) -> None:
    """Checks on the host that ids of any shape are in range.

    Compiled functions cannot check values, and a compiled model returns NaN for ids out of range. Programs
    therefore call this on the data they read.

    Raises:
      ValueError: If ids are not integers or are out of range; names the argument, the first such id and its
        index.
    """
    check_ids("input_ids", input_ids, config.vocab_size, "vocab_size")
    check_ids("token_type_ids", token_type_ids, config.type_vocab_size, "type_vocab_size")
    check_ids("relation_ids", relation_ids, config.relation_vocab_size, "relation_vocab_size", least=-1)


def check_ids(name: str, ids: Any, count: int, what: str, least: int = 0) -> None:
    """Checks one argument of `check_inputs`; accepts None and traced values."""
    if ids is None:
        return
    if not jnp.issubdtype(jnp.result_type(ids), jnp.integer):
        raise ValueError(f"{name}: got type {jnp.result_type(ids)}, expected integers")
    if isinstance(ids, jax.core.Tracer):
        return
    ids = np.asarray(ids)
    wrong = (ids < least) | (ids >= count)
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"{name}: got {ids[place]} at {list(place)}, expected {least} to {count - 1} ({what} is {count})"
        )


def check_text(config: ModelConfig, name: str, first: Any, **others: Any) -> tuple[int, int]:
    """Checks the shapes of a batch of texts and returns (B, T).

    Args:
      config: the model's settings.
      name: name of the first argument.
      first: tokens [B, T], or properties of tokens [B, T, D1] if `name` is "inputs_embeds".
      **others: further arguments of shape [B, T], or None.

    Raises:
      ValueError: If a shape does not match, ids or a mask are out of range (not checked while tracing), or
        the text exceeds the number of absolute positions.
    """
    axes = "[B, T, D1]" if name == "inputs_embeds" else "[B, T]"
    if jnp.ndim(first) != len(axes.split()) or 0 in jnp.shape(first):
        raise ValueError(f"{name}: got shape {jnp.shape(first)}, expected {axes} without axes of size 0")
    if name != "inputs_embeds":
        check_ids(name, first, config.vocab_size, "vocab_size")
    batch, length = jnp.shape(first)[:2]
    for other, array in others.items():
        check_shape(other, array, (batch, length), f" as in {name}")
    check_inputs(config, None, others.get("token_type_ids"))
    # A float mask may be one that is added to logits, in which 0 stands for a real token.
    mask = others.get("attention_mask")
    if mask is not None and not jnp.issubdtype(jnp.result_type(mask), jnp.bool_):
        check_ids("attention_mask", mask, 2, "the number of values")
    if config.absolute_position and length > config.max_position_embeddings:
        raise ValueError(
            f"{name}: got {length} tokens, expected at most max_position_embeddings = "
            f"{config.max_position_embeddings} (positions are absolute)"
        )
    return batch, length


def check_shape(name: str, array: Any, expected: tuple[int, ...], because: str = "") -> None:
    """Raises ValueError if `array` is given and its shape differs from `expected`."""
    if array is not None and jnp.shape(array) != expected:
        raise ValueError(f"{name}: got shape {jnp.shape(array)}, expected {expected}{because}")


def encoder_arguments(
    config: Any,
    input_ids: Any,
    token_type_ids: Any,
    attention_mask: Any,
    *,
    inputs_embeds: Any = None,
    relation_ids: Any = None,
    relation_embeds: Any = None,
) -> tuple[jax.Array | None, jax.Array, jax.Array | None]:
    """Returns tokens, segments and the padding mask [B, 1, 1, T] for arguments of `FOLNet`.

    Raises:
      ValueError: If an argument does not fit, or the text exceeds the number of absolute positions.
    """
    if input_ids is None and inputs_embeds is None:
        raise ValueError("input_ids, inputs_embeds: got None for both, expected at least one")
    name, first = ("input_ids", input_ids) if input_ids is not None else ("inputs_embeds", inputs_embeds)
    others = {"token_type_ids": token_type_ids, "attention_mask": attention_mask}
    batch, length = check_text(config, name, first, **others)
    check_shape("inputs_embeds", inputs_embeds, (batch, length, config.hidden_size), f" as in {name}")
    pairs = (batch, length, length)
    if relation_ids is not None:
        if not config.relation_vocab_size:
            raise ValueError("relation_ids: got an array, expected None (relation_vocab_size is 0)")
        shape = jnp.shape(relation_ids)
        if shape[:3] != pairs or len(shape) not in (3, 4):
            raise ValueError(
                f"relation_ids: got shape {shape}, expected {pairs} or {pairs} and an axis of K relations"
            )
        check_inputs(config, relation_ids=relation_ids)
    if relation_embeds is not None:
        check_shape("relation_embeds", relation_embeds, (*pairs, config.relation_size))
    mask = None if attention_mask is None else jnp.asarray(attention_mask, bool)[:, None, None, :]
    return optional(input_ids), segments(token_type_ids, (batch, length)), mask


def optional(array: Any, dtype: Any = None) -> Any:
    """Converts an argument to an array; returns None unchanged."""
    return None if array is None else jnp.asarray(array, dtype)


def segments(token_type_ids: Any, shape: tuple[int, int]) -> Int[Array, "B T"]:
    """Returns the segments of tokens, zeros by default."""
    return jnp.zeros(shape, jnp.int32) if token_type_ids is None else jnp.asarray(token_type_ids)
