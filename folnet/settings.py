"""Settings that all encoders share, and the checks on them.

`configuration.FOLNetConfig` adds the settings of FOLNets, `transformer_configuration.TransformerConfig` those
of the Transformers they are compared with. Heads read only the shared settings.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeVar, get_args

import jax.numpy as jnp

HeadActivation = Literal["gelu", "relu"]
ProblemType = Literal["regression", "single_label_classification", "multi_label_classification"]

C = TypeVar("C", bound="ModelConfig")
"""The class of some settings. (A type parameter `C: ModelConfig` would be evaluated within that class.)"""

MOST_LAYERS = 1000
"""Layers are built one by one, so a number from a damaged file could take practically forever."""


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Settings shared by FOLNets and Transformers; the subclasses document the fields."""

    model_type: ClassVar[str]
    """The `model_type` in config.json."""
    positive: ClassVar[tuple[str, ...]] = (
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "head_size",
        "intermediate_size",
        "relative_attention_num_buckets",
        "max_position_embeddings",
        "type_vocab_size",
        "num_labels",
    )
    """Fields that must be integers of at least 1."""
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "head_activation": get_args(HeadActivation),
        "problem_type": (None, *get_args(ProblemType)),
    }
    """Fields with a closed set of values."""
    switches: ClassVar[tuple[str, ...]] = ("absolute_position",)
    """Fields that must be True or False."""

    vocab_size: int = 30528
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    head_size: int = 64
    intermediate_size: int = 3072
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    absolute_position: bool = False
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    relation_vocab_size: int = 0
    head_activation: HeadActivation = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    num_labels: int = 2
    problem_type: ProblemType | None = None
    pretrain_loss: str = "MLM.NSP"
    dtype: str = "float32"
    param_dtype: str = "float32"
    labels: tuple[str, ...] = ()
    foreign: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for a field out of range, with its value and what was expected."""
        for name in self.positive:
            expect_integer(name, getattr(self, name), 1)
        if self.num_hidden_layers > MOST_LAYERS:
            raise misfit("num_hidden_layers", self.num_hidden_layers, f"at most {MOST_LAYERS}")
        expect_integer("relation_vocab_size", self.relation_vocab_size, 0)
        for name, choices in self.choices.items():
            if getattr(self, name) not in choices:
                raise misfit(name, getattr(self, name), f"one of {', '.join(map(repr, choices))}")
        for name in self.switches:
            if not isinstance(getattr(self, name), bool):
                raise misfit(name, getattr(self, name), "True or False")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            if not (is_number(value := getattr(self, name)) and 0 <= value < 1):
                raise misfit(name, value, "a number of at least 0 and below 1")
        if not (is_number(self.layer_norm_eps) and self.layer_norm_eps > 0):
            raise misfit("layer_norm_eps", self.layer_norm_eps, "a number above 0")
        if not is_number(self.initializer_range):
            raise misfit("initializer_range", self.initializer_range, "a number")
        _check_pretrain_loss(self.pretrain_loss)
        for name in ("dtype", "param_dtype"):
            _check_dtype(name, getattr(self, name))
        if not (isinstance(self.labels, tuple) and all(isinstance(name, str) for name in self.labels)):
            raise misfit("labels", self.labels, "a tuple of names")
        if self.labels and (len(self.labels), len(set(self.labels))) != (self.num_labels, self.num_labels):
            raise misfit("labels", self.labels, f"num_labels = {self.num_labels} different names, or none")

    def replace(self: C, **changes: Any) -> C:
        """Returns a copy with some fields changed; raises ValueError for unknown names and bad values.

        With another number of labels their names are dropped, unless new ones are given.
        """
        if changes.get("num_labels", self.num_labels) != self.num_labels:
            changes = {"labels": (), **changes}
        return self.from_dict({**self.to_dict(), **changes})

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields in a form that JSON can represent."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls: type[C], fields: Mapping[str, Any]) -> C:
        """Builds settings from fields and defaults; raises ValueError if any is unknown or unfit."""
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(set(fields) - known):
            raise ValueError(
                f"fields: got {', '.join(map(repr, unknown))}, expected only {', '.join(sorted(known))}"
            )
        if isinstance(names := fields.get("labels"), list):  # as JSON has a tuple
            fields = {**fields, "labels": tuple(names)}
        return cls(**fields)


def check_kind[C: ModelConfig](config: object, kind: type[C]) -> C:
    """Returns a model's settings; raises ValueError unless they are of its kind."""
    if not isinstance(config, kind):
        raise ValueError(f"config: got a {type(config).__name__}, expected a {kind.__name__}")
    return config


def misfit(name: str, value: object, expected: str) -> ValueError:
    """Returns the error for a field that does not fit."""
    return ValueError(f"{name}: got {value!r}, expected {expected}")


def is_number(value: object) -> bool:
    """Returns whether a value is a number; True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def expect_integer(name: str, value: object, least: int) -> None:
    """Raises ValueError unless the field is an integer of at least `least` that fits in 32 bits."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise misfit(name, value, f"an integer of at least {least}")
    if value >= 2**31:
        raise misfit(name, value, "an integer below 2**31")


def at_least(least: int, **values: int) -> None:
    """Raises ValueError if one of the named values is below `least`."""
    for name, value in values.items():
        if value < least:
            raise misfit(name, value, f"at least {least}")


def check_buckets(count: int, distance: int) -> None:
    """Raises ValueError unless T5's buckets can be built from these; see `positions.t5_buckets`."""
    if count % 4:
        raise misfit(
            "relative_attention_num_buckets",
            count,
            "a multiple of 4 (half of the buckets per direction, half of those for single distances)",
        )
    if distance <= count // 4:
        raise misfit("relative_attention_max_distance", distance, f"more than a quarter of {count} buckets")


def _check_pretrain_loss(loss: object) -> None:
    parts = loss.split(".") if isinstance(loss, str) else [""]
    if not set(parts) <= {"MLM", "NSP", "SOP"} or len(set(parts)) != len(parts):
        raise misfit("pretrain_loss", loss, "'MLM', 'NSP', 'SOP', each at most once, separated by dots")


def _check_dtype(name: str, value: object) -> None:
    try:
        floating = isinstance(value, str) and jnp.issubdtype(jnp.dtype(value), jnp.floating)
    except TypeError:
        floating = False
    if not floating:
        raise misfit(name, value, "the name of a floating-point type, such as 'float32' or 'bfloat16'")
