"""Outputs of models: fields by name, by key and by index, as in the Hugging Face ecosystem.

    out.logits
    out["logits"]
    loss, logits = out[:2]      # with labels

Axis letters: B batch; T tokens; C columns that tokens relate to; D1 properties; D2 relations.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from flax import struct
from jaxtyping import Array, Float

type Kernels = tuple[Mapping[str, Float[Array, "..."]], ...]
"""By layer, the kernels by operator; see `layers.ReasonerLayer.kernels`."""

_ASKED = ("hidden_states", "relation_hidden_states", "attentions")
_RANKS = {"loss": -1, **{of + name: 1 for of in ("", "decoder_", "encoder_") for name in _ASKED}}
"""The loss comes first and what must be asked for last; 0 for all others, which keep their order."""


class ModelOutput:
    """Adds keys and indices to a dataclass; fields that are None have neither."""

    def keys(self: Any) -> tuple[str, ...]:
        """Returns the names of the fields that are not None, in the order of their indices."""
        names = [field.name for field in dataclasses.fields(self) if getattr(self, field.name) is not None]
        return tuple(sorted(names, key=lambda name: _RANKS.get(name, 0)))

    def to_tuple(self) -> tuple[Any, ...]:
        """Returns the fields that are not None."""
        return tuple(getattr(self, name) for name in self.keys())

    def __getitem__(self, key: str | int | slice) -> Any:
        """Returns a field by name or index, or several as a tuple.

        Raises:
          KeyError: If no field has this name, or it is None.
          IndexError: If the index is out of range.
        """
        if not isinstance(key, str):
            return self.to_tuple()[key]
        if key not in self.keys():
            raise KeyError(f"{key}: expected one of {', '.join(self.keys())}")
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        """Iterates over the names, so that `dict(output)` has the fields."""
        return iter(self.keys())

    def __len__(self) -> int:
        """Returns the number of fields that are not None."""
        return len(self.keys())


@struct.dataclass
class HeadOutput(ModelOutput):
    """What the outputs of all models with heads have besides their logits.

    Attributes:
      loss: mean loss per label; None unless labels are given.
      hidden_states: u_l(x) of the encoder or decoder, as in `FOLNetOutput`; None unless requested.
      relation_hidden_states: u_l(x, y), likewise.
      attentions: kernels by layer and operator; None unless requested.
    """

    _: dataclasses.KW_ONLY
    loss: Float[Array, ""] | None = None
    hidden_states: tuple[Float[Array, "B T D1"], ...] | None = None
    relation_hidden_states: tuple[Float[Array, "B T C D2"], ...] | None = None
    attentions: Kernels | None = None
