"""What every sequence task has: a batch, lengths, one-hot inputs, and sums to count errors with.

Axis letters: B sequences, T time steps, F input fields, C classes of the target.
"""

import abc
import dataclasses
import operator
from typing import SupportsIndex

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

type Length = int | Int[Array, ""]


@flax.struct.dataclass
class Batch:
    """Sequences of one task, all of one length.

    Attributes:
      tokens: what the network reads at each step, an integer per input field.
      targets: the class asked for at each step; a valid class also where it is not scored.
      mask: True at the steps that are scored.
    """

    tokens: Int[Array, "B T F"]
    targets: Int[Array, "B T"]
    mask: Bool[Array, "B T"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(abc.ABC):
    """A distribution over sequences for every length. Hashable, so it may be a static argument of `jax.jit`.

    Attributes:
      name: the name under which `tasks.make` knows the task.
      train_lengths: the shortest and the longest length to train on, both included.
      test_lengths: the lengths to report.
    """

    name: str
    train_lengths: tuple[int, int]
    test_lengths: tuple[int, ...]

    def __post_init__(self):
        if (
            len(self.train_lengths) != 2
            or not self.min_length <= self.train_lengths[0] <= self.train_lengths[1]
        ):
            raise ValueError(
                f"train_lengths must be (shortest, longest) with {self.min_length} <= shortest <= longest "
                f"for {self.name}, got {self.train_lengths}"
            )
        if not self.test_lengths or min(self.test_lengths) < self.min_length:
            raise ValueError(
                f"test_lengths must be lengths of at least {self.min_length} for {self.name}, "
                f"got {self.test_lengths}"
            )

    @property
    @abc.abstractmethod
    def fields(self) -> tuple[int, ...]:
        """Vocabulary size of each input field."""

    @property
    @abc.abstractmethod
    def num_outputs(self) -> int:
        """Classes of the target."""

    @property
    def min_length(self) -> int:
        """The shortest length at which the task is defined."""
        return 1

    @property
    def splits(self) -> tuple[str, ...]:
        """What `sample` can be asked for."""
        return ("train",)

    @abc.abstractmethod
    def steps(self, length: int) -> int:
        """The number of time steps T that a sequence of a length takes, its answer included."""

    @abc.abstractmethod
    def _sample(self, key: Array, batch_size: int, length: Length, max_length: int, split: str) -> Batch:
        """What `sample` does once its arguments have been checked."""

    def sample(
        self,
        key: Array,
        batch_size: int,
        length: SupportsIndex | Int[Array, ""],
        *,
        max_length: int | None = None,
        split: str = "train",
    ) -> Batch:
        """Draws sequences of one length.

        With `max_length` the shapes do not depend on `length`, so that one compiled step serves all lengths;
        the same key, `length` and `max_length` give the same batch whether `length` is traced or not.

        Args:
          key: a JAX random key.
          batch_size: the number of sequences B.
          length: the length, an integer or a traced integer scalar. A traced one cannot be checked here: keep
            it between `min_length` and `max_length`.
          max_length: the greatest length the shapes have room for; `length` itself by default.
          split: one of `splits`.

        Returns:
          A batch with T = `steps(max_length)`.

        Raises:
          ValueError: a size or length out of range, an unknown split, or a traced length without
            `max_length`.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if split not in self.splits:
            raise ValueError(f"split must be one of {self.splits} for {self.name}, got {split!r}")
        if isinstance(length, jax.core.Tracer):
            if length.shape != () or not jnp.issubdtype(length.dtype, jnp.integer):
                raise ValueError(
                    f"length must be an integer scalar, got shape {length.shape} and dtype {length.dtype}"
                )
            if max_length is None:
                raise ValueError("max_length must be given when length is traced: the shapes depend on it")
        else:
            try:
                length = operator.index(length)
            except TypeError as error:
                raise ValueError(f"length must be an integer, got {length!r}") from error
            max_length = length if max_length is None else max_length
            if not self.min_length <= length <= max_length:
                raise ValueError(
                    f"length must be from {self.min_length} to max_length = {max_length} for {self.name}, "
                    f"got {length}"
                )
        if max_length < self.min_length:
            raise ValueError(
                f"max_length must be at least {self.min_length} for {self.name}, got {max_length}"
            )
        return self._sample(key, batch_size, length, max_length, split)

    def encode(self, tokens: Int[Array, "*B F"]) -> Float[Array, "*B D"]:
        """One-hot vectors of the fields, one behind the other: D = sum(fields), float32.

        Raises:
          ValueError: the last axis of `tokens` is not the number of fields.
        """
        if tokens.ndim == 0 or tokens.shape[-1] != len(self.fields):
            raise ValueError(
                f"tokens must have shape [..., {len(self.fields)}] for {self.name}, got {tokens.shape}"
            )
        return jnp.concatenate(
            [jax.nn.one_hot(tokens[..., i], size, dtype=jnp.float32) for i, size in enumerate(self.fields)],
            axis=-1,
        )


def _hits(logits: Float[Array, "B T C"], batch: Batch) -> Bool[Array, "B T"]:
    if logits.ndim != 3 or logits.shape[:-1] != batch.targets.shape:
        raise ValueError(f"logits must have shape {batch.targets.shape} + (classes,), got {logits.shape}")
    return jnp.argmax(logits, axis=-1) == batch.targets


def error_per_symbol(logits: Float[Array, "B T C"], batch: Batch) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """Counts the scored steps where the greatest logit is not the target's: (wrong, count), int32.

    Two sums, not their ratio, so that batches and devices of unequal counts add up before the division.

    Raises:
      ValueError: the shape of `logits` is not that of the targets with classes behind it.
    """
    return jnp.sum(batch.mask & ~_hits(logits, batch)), jnp.sum(batch.mask)


def accuracy(logits: Float[Array, "B T C"], batch: Batch) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """Counts the scored steps where the greatest logit is the target's: (right, count), int32.

    Raises:
      ValueError: the shape of `logits` is not that of the targets with classes behind it.
    """
    return jnp.sum(batch.mask & _hits(logits, batch)), jnp.sum(batch.mask)
