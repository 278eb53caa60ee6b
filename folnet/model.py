"""FOLNet: first-order logic as a network, from token ids to properties of tokens and relations of pairs.

Chen, Learning Language Representations with Logical Inductive Bias (ICLR 2023): Section 3, Appendix A.

Axis letters: B batch; T tokens; D1 properties; D2 relations; K relations named for a pair.
"""

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
from folnet.pretrained import Pretrained
from folnet.settings import ModelConfig


@struct.dataclass
class FOLNetOutput:
    """What a FOLNet deduces.

    Attributes:
      last_hidden_state: u_L(x).
      pooler_output: tanh of an affine map of the first token's, [CLS].
      relation_hidden_state: u_L(x, y); None of a Transformer.
      hidden_states: u_l(x) of the base atoms and after each layer; None unless asked for. The last is
        normalised, and without the diagonal link.
      relation_hidden_states: u_l(x, y), likewise.
    """

    last_hidden_state: Float[Array, "B T D1"]
    pooler_output: Float[Array, "B D1"]
    relation_hidden_state: Float[Array, "B T T D2"] | None
    hidden_states: tuple[Float[Array, "B T D1"], ...] | None = None
    relation_hidden_states: tuple[Float[Array, "B T T D2"], ...] | None = None


class FOLNet(nn.Module, Pretrained):
    """The encoder: base atoms, L steps of deduction, and the pooled first token.

    Attributes:
      config: the settings.
    """

    config: FOLNetConfig

    def setup(self):
        """Base atoms, the layers, the pooler, and the diagonal link back."""
        self.embeddings = Embeddings(self.config)
        self.reasoner = Reasoner(self.config)
        width = self.config.hidden_size
        self.pooler = Linear(self.config, width, width)
        self.diagonal = (
            Linear(self.config, self.config.relation_size, width) if self.config.diagonal_link else None
        )

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
    ) -> FOLNetOutput:
        """Properties and relations deduced from a text.

        Whatever else is known of tokens and pairs can be given as base atoms besides the text (Appendix A.4),
        or instead of it.

        Args:
          input_ids: tokens; may be left out where `inputs_embeds` are given.
          token_type_ids: segments, 0 by default. Relative positions tell them apart.
          attention_mask: true where a token is real. None masks nothing: padding then takes part in every
            softmax, as in the released models. With a mask, nothing at real tokens depends on the padding.
          deterministic: False to drop; needs a key "dropout".
          inputs_embeds: more properties of each token, added to those of `input_ids` before they are
            normalised.
          relation_ids: relations of pairs by number, less than `relation_vocab_size`, one or K a pair; -1 for
            none. Their learned rows are added to the pair's base atoms before they are normalised.
          relation_embeds: more relations of each pair as vectors, added likewise.
          output_hidden_states: whether atoms of all layers are given out.

        Raises:
          ValueError: an argument that does not fit, by its name; ids out of range, unless they are traced.
        """
        check_inputs(self.config, input_ids, token_type_ids, relation_ids=relation_ids)
        shape = check_shapes(
            self.config,
            input_ids,
            token_type_ids,
            attention_mask,
            inputs_embeds=inputs_embeds,
            relation_ids=relation_ids,
        )
        _check_relation_embeds(self.config, relation_embeds, shape)
        if token_type_ids is None:
            token_type_ids = jnp.zeros(shape, jnp.int32)
        unary, relation = self.embeddings(
            None if input_ids is None else jnp.asarray(input_ids),
            jnp.asarray(token_type_ids),
            inputs_embeds=inputs_embeds,
            relation_ids=None if relation_ids is None else jnp.asarray(relation_ids),
            relation_embeds=relation_embeds,
            deterministic=deterministic,
        )
        unary = nn.with_logical_constraint(unary, UNARY_AXES)
        relation = nn.with_logical_constraint(relation, BINARY_AXES)
        mask = None if attention_mask is None else jnp.asarray(attention_mask, bool)[:, None, None, :]
        states = self.reasoner(unary, relation, mask, None, deterministic)
        unary, relation = states[-1]
        if self.diagonal is not None:
            own = jnp.diagonal(relation, axis1=2, axis2=3).swapaxes(1, 2)
            unary = unary + self.diagonal(own)
        return FOLNetOutput(
            last_hidden_state=unary,
            pooler_output=jnp.tanh(self.pooler(unary[:, 0])),
            relation_hidden_state=jnp.moveaxis(relation, 1, -1),
            hidden_states=tuple(u for u, _ in states) if output_hidden_states else None,
            relation_hidden_states=(
                tuple(jnp.moveaxis(r, 1, -1) for _, r in states) if output_hidden_states else None
            ),
        )


def check_inputs(
    config: ModelConfig,
    input_ids: Any = None,
    token_type_ids: Any = None,
    *,
    relation_ids: Any = None,
) -> None:
    """Checks on the host that ids are in range; inside a compiled function there are no values to check.

    Programs call it on what they read, since a compiled model looks up ids that do not exist as nan.

    Args:
      config: of the model.
      input_ids: tokens, any shape.
      token_type_ids: segments, any shape.
      relation_ids: numbers of relations, any shape.

    Raises:
      ValueError: ids that are no integers, or out of range: the argument, the first such id, and where it is.
    """
    for name, ids, least, count, what in (
        ("input_ids", input_ids, 0, config.vocab_size, "vocab_size"),
        ("token_type_ids", token_type_ids, 0, config.type_vocab_size, "type_vocab_size"),
        ("relation_ids", relation_ids, -1, config.relation_vocab_size, "relation_vocab_size"),
    ):
        if ids is None:
            continue
        if not jnp.issubdtype(jnp.result_type(ids), jnp.integer):
            raise ValueError(f"{name} is of type {jnp.result_type(ids)}, expected integers")
        if isinstance(ids, jax.core.Tracer):
            continue
        ids = np.asarray(ids)
        wrong = (ids < least) | (ids >= count)
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise ValueError(
                f"{name} has {ids[place]} at {list(place)}, expected {least} to {count - 1}: "
                f"{what} is {count}"
            )


def check_shapes(
    config: ModelConfig,
    input_ids: Any,
    token_type_ids: Any = None,
    attention_mask: Any = None,
    *,
    inputs_embeds: Any = None,
    relation_ids: Any = None,
) -> tuple[int, int]:
    """[B, T] of what is given.

    Raises:
      ValueError: a shape that does not fit, by the argument's name; a text longer than the positions.
    """
    if input_ids is None and inputs_embeds is None:
        raise ValueError("input_ids and inputs_embeds are both None, expected either, or both to be added")
    name, first = ("input_ids", input_ids) if input_ids is not None else ("inputs_embeds", inputs_embeds)
    if jnp.ndim(first) != (2 if name == "input_ids" else 3) or 0 in jnp.shape(first):
        axes = "[B, T]" if name == "input_ids" else "[B, T, D1]"
        raise ValueError(f"{name} has shape {jnp.shape(first)}, expected {axes}, none of them 0")
    batch, length = jnp.shape(first)[:2]
    for other, array, expected in (
        ("token_type_ids", token_type_ids, (batch, length)),
        ("attention_mask", attention_mask, (batch, length)),
        ("inputs_embeds", inputs_embeds, (batch, length, config.hidden_size)),
    ):
        if array is not None and jnp.shape(array) != expected:
            raise ValueError(f"{other} has shape {jnp.shape(array)}, expected {expected} by {name}")
    if relation_ids is not None:
        if not config.relation_vocab_size:
            raise ValueError("relation_ids are given, expected none: relation_vocab_size is 0")
        shape = jnp.shape(relation_ids)
        if shape[:3] != (batch, length, length) or len(shape) not in (3, 4):
            raise ValueError(
                f"relation_ids has shape {shape}, expected {(batch, length, length)}, or with K relations a "
                "pair as one more axis"
            )
    if config.absolute_position and length > config.max_position_embeddings:
        raise ValueError(
            f"{name} has {length} tokens, expected at most max_position_embeddings = "
            f"{config.max_position_embeddings}: positions are absolute"
        )
    return batch, length


def _check_relation_embeds(config: FOLNetConfig, relation_embeds: Any, shape: tuple[int, int]) -> None:
    batch, length = shape
    expected = (batch, length, length, config.relation_size)
    if relation_embeds is not None and jnp.shape(relation_embeds) != expected:
        raise ValueError(f"relation_embeds has shape {jnp.shape(relation_embeds)}, expected {expected}")
