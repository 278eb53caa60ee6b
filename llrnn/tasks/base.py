"""Base class of sequence tasks: batches, lengths, one-hot inputs, and the sums that count errors.

Axis letters: B sequences, T time steps, F input fields, D coordinates of an input, C classes of the target.
"""

import abc
import dataclasses
import operator
from typing import Any, Literal, SupportsIndex

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

Split = Literal["train", "held_out", "held_out_once"]
type Length = int | Int[Array, ""]


@flax.struct.dataclass
class Batch:
    """Sequences of one task, all of the same length.

    Attributes:
      tokens: the input at each step, an integer per input field.
      targets: the correct class at each step; a valid class also at steps that are not scored.
      mask: True at the steps that are scored.
    """

    tokens: Int[Array, "B T F"]
    targets: Int[Array, "B T"]
    mask: Bool[Array, "B T"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(abc.ABC):
    """A distribution over sequences for every length; hashable, so it may be a static argument of `jax.jit`.

    Attributes:
      name: the name of the task in `tasks.make`.
      train_lengths: the shortest and the longest training length, both inclusive.
      test_lengths: the lengths to report.
    """

    name: str
    train_lengths: tuple[int, int]
    test_lengths: tuple[int, ...]

    def __post_init__(self):
        for field in dataclasses.fields(self):  # lists, as in a config of JSON, have no hash
            object.__setattr__(self, field.name, _without_lists(getattr(self, field.name)))
        if (
            len(self.train_lengths) != 2
            or not self.min_length <= self.train_lengths[0] <= self.train_lengths[1]
        ):
            raise ValueError(
                f"train_lengths of {self.name}: got {self.train_lengths}, expected (shortest, longest) with "
                f"{self.min_length} <= shortest <= longest"
            )
        if not self.test_lengths or min(self.test_lengths) < self.min_length:
            raise ValueError(
                f"test_lengths of {self.name}: got {self.test_lengths}, expected one or more lengths of at "
                f"least {self.min_length}"
            )

    @property
    @abc.abstractmethod
    def fields(self) -> tuple[int, ...]:
        """The vocabulary size of each input field."""

    @property
    @abc.abstractmethod
    def num_outputs(self) -> int:
        """The number of classes of the target, C."""

    @property
    def min_length(self) -> int:
        """The shortest length at which the task is defined."""
        return 1

    @property
    def splits(self) -> tuple[Split, ...]:
        """The splits from which `sample` can draw."""
        return ("train",)

    @abc.abstractmethod
    def steps(self, length: int) -> int:
        """Returns the number of time steps T of a sequence of the given length, including its answer."""

    @abc.abstractmethod
    def _sample(
        self, key: PRNGKeyArray, batch_size: int, length: Length, max_length: int, split: Split
    ) -> Batch:
        """Draws the sequences for `sample`, which has checked the arguments."""

    def sample(
        self,
        key: PRNGKeyArray,
        batch_size: int,
        length: SupportsIndex | Int[Array, ""],
        *,
        max_length: int | None = None,
        split: Split = "train",
    ) -> Batch:
        """Draws sequences of one length.

        With `max_length` the shapes do not depend on `length`, so that one compiled step serves all lengths;
        the same key, `length` and `max_length` give the same batch whether or not `length` is traced.

        Args:
          key: a JAX random key.
          batch_size: the number of sequences B.
          length: the length, an integer or a traced integer scalar. A traced length is not checked and must
            be between `min_length` and `max_length`.
          max_length: the length that determines the shapes; `length` itself by default.
          split: one of `splits`.

        Returns:
          A batch with T = `steps(max_length)`.

        Raises:
          ValueError: a size or length is out of range, the split is unknown, or the length is traced and
            `max_length` is missing.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size: got {batch_size}, expected at least 1")
        if split not in self.splits:
            expected = ", ".join(map(repr, self.splits))
            raise ValueError(f"split of {self.name}: got {split!r}, expected one of {expected}")
        if isinstance(length, jax.core.Tracer):
            if length.shape != () or not jnp.issubdtype(length.dtype, jnp.integer):
                raise ValueError(
                    f"length: got shape {length.shape} and dtype {length.dtype}, expected an integer scalar"
                )
            if max_length is None:
                raise ValueError(
                    "max_length: got None, expected an integer, since length is traced and the shapes depend "
                    "on max_length"
                )
        else:
            try:
                length = operator.index(length)
            except TypeError as error:
                raise ValueError(f"length: got {length!r}, expected an integer") from error
            max_length = length if max_length is None else max_length
            if not self.min_length <= length <= max_length:
                raise ValueError(
                    f"length of {self.name}: got {length}, expected {self.min_length} to max_length = "
                    f"{max_length}"
                )
        if max_length < self.min_length:
            raise ValueError(
                f"max_length of {self.name}: got {max_length}, expected at least {self.min_length}"
            )
        return self._sample(key, batch_size, length, max_length, split)

    def encode(self, tokens: Int[Array, "*B F"]) -> Float[Array, "*B D"]:
        """Concatenates one-hot vectors of the fields: D = sum(fields), float32.

        Raises:
          ValueError: the last axis of `tokens` is not the number of fields.
        """
        if tokens.ndim == 0 or tokens.shape[-1] != len(self.fields):
            raise ValueError(
                f"tokens: got shape {tokens.shape}, expected [*B, {len(self.fields)}] for {self.name}"
            )
        return jnp.concatenate(
            [jax.nn.one_hot(tokens[..., i], size, dtype=jnp.float32) for i, size in enumerate(self.fields)],
            axis=-1,
        )


def _without_lists(value: Any) -> Any:
    return tuple(map(_without_lists, value)) if isinstance(value, (list, tuple)) else value


def _hits(logits: Float[Array, "B T C"], batch: Batch) -> Bool[Array, "B T"]:
    if logits.ndim != 3 or logits.shape[:-1] != batch.targets.shape:
        raise ValueError(
            f"logits: got shape {logits.shape}, expected [B, T, C] with [B, T] = {list(batch.targets.shape)}"
        )
    return jnp.argmax(logits, axis=-1) == batch.targets


def error_per_symbol(logits: Float[Array, "B T C"], batch: Batch) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """Counts the scored steps where the target does not have the greatest logit: (wrong, count), int32.

    It returns two sums rather than their ratio, so that batches and devices with unequal counts can be added
    before the division.

    Raises:
      ValueError: the leading axes of `logits` are not those of the targets.
    """
    return jnp.sum(batch.mask & ~_hits(logits, batch)), jnp.sum(batch.mask)


def accuracy(logits: Float[Array, "B T C"], batch: Batch) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """Counts the scored steps where the target has the greatest logit: (right, count), int32.

    Raises:
      ValueError: the leading axes of `logits` are not those of the targets.
    """
    return jnp.sum(batch.mask & _hits(logits, batch)), jnp.sum(batch.mask)
