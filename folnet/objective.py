"""Losses as sums with counts, so that the losses of several batches or devices can be added.

Pretraining is masked language modelling plus the sentence task (Appendix A.4); fine-tuning is classification,
regression or span prediction. Labels of classes are ignored if they are -1 or -100: the values that the
released code and Hugging Face use.

Axis letters: B batch; M masked tokens; T tokens; V vocabulary; C classes.
"""

from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int, Shaped

from folnet.settings import ProblemType

IGNORED = (-1, -100)
"""Labels that do not count."""


@struct.dataclass
class Loss:
    """A loss over a batch.

    Attributes:
      sum: sum of the loss over `count` labels, in at least float32; `sum / count` is the mean.
      count: number of labels.
      correct: number of labels with the greatest logit; 0 for regression.
    """

    sum: Float[Array, ""]
    count: Int[Array, ""]
    correct: Int[Array, ""]

    def __add__(self, other: "Loss") -> "Loss":
        """Returns the loss of both batches together."""
        return jax.tree.map(jnp.add, self, other)

    @property
    def mean(self) -> Float[Array, ""]:
        """Mean loss per label; 0 if there are no labels."""
        return self.sum / jnp.maximum(self.count, 1)

    @property
    def accuracy(self) -> Float[Array, ""]:
        """Share of correct labels; 0 if there are no labels."""
        return self.correct / jnp.maximum(self.count, 1)


def cross_entropy(logits: Float[Array, "*B C"], labels: Int[Array, "*B"]) -> Loss:
    """Returns the cross-entropy in nats between logits and labels, over all labels that are not ignored.

    It is the loss of the masked language model, of the sentence task and of single-label classification.

    Raises:
      ValueError: If the shapes do not match.
    """
    if logits.shape[:-1] != labels.shape:
        raise ValueError(
            f"labels: got shape {labels.shape}, expected {logits.shape[:-1]}, the shape of logits without "
            "its last axis"
        )
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    labels = wide(labels)
    real = is_real(labels)
    labels = jnp.where(real, labels, 0)
    right = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    right = jnp.where(labels < 0, jnp.nan, right)  # as for labels that are too large
    losses = jnp.where(real, jax.nn.logsumexp(logits, axis=-1) - right, 0)
    hit = (jnp.argmax(logits, axis=-1) == labels) & real
    return Loss(losses.sum(), real.sum(), hit.sum())


masked_language_model = cross_entropy
sentence = cross_entropy


def binary_cross_entropy(
    logits: Float[Array, "B C"], labels: Float[Array, "B C"] | Int[Array, "B C"]
) -> Loss:
    """Returns the loss of several labels per row, each 0 or 1 or ignored.

    Raises:
      ValueError: If the shapes differ, or a label is not 0 to 1 (not checked while tracing).
    """
    _same("labels", labels, logits)
    real = is_real(labels)
    if not isinstance(labels, jax.core.Tracer):
        values = np.asarray(labels)
        _check_values("labels", values, (values >= 0) & (values <= 1), "0 to 1")
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    losses = jnp.where(real, jax.nn.softplus(logits) - labels * logits, 0)
    hit = ((logits > 0) == (labels > 0.5)) & real
    return Loss(losses.sum(), real.sum(), hit.sum())


def squared_error(predictions: Float[Array, "B C"], labels: Float[Array, "B C"] | Int[Array, "B C"]) -> Loss:
    """Returns the squared error over all numbers; raises ValueError if the shapes differ."""
    _same("labels", labels, predictions)
    dtype = jnp.promote_types(predictions.dtype, jnp.float32)
    losses = jnp.square(predictions.astype(dtype) - labels)
    return Loss(losses.sum(), jnp.asarray(losses.size), jnp.asarray(0))


def span(
    start_logits: Float[Array, "B T"],
    end_logits: Float[Array, "B T"],
    start_positions: Int[Array, "B"],
    end_positions: Int[Array, "B"],
) -> Loss:
    """Returns .5 * (start + end), the cross-entropies of an answer's start and end, over texts.

    A text counts as correct if both are. An ignored position must be ignored for both.

    Raises:
      ValueError: If the shapes do not match.
    """
    _same("end_logits", end_logits, start_logits)
    start = cross_entropy(start_logits, start_positions)
    end = cross_entropy(end_logits, end_positions)
    hit = (jnp.argmax(start_logits, axis=-1) == start_positions) & (
        jnp.argmax(end_logits, axis=-1) == end_positions
    )
    return Loss(0.5 * (start.sum + end.sum), start.count, hit.sum())


def sequence_classification(
    logits: Float[Array, "B C"],
    labels: Int[Array, "B"] | Float[Array, "B"] | Int[Array, "B C"] | Float[Array, "B C"],
    problem_type: ProblemType | None = None,
) -> Loss:
    """Returns the loss for a type of problem, as defined by Hugging Face.

    Args:
      logits: output of a sequence classification model.
      labels: integers [B] for a single label; numbers [B] or [B, C] for regression; 0 or 1 [B, C] for several
        labels.
      problem_type: None means "regression" for one logit and "single_label_classification" otherwise.

    Raises:
      ValueError: If the type is unknown, the shapes do not match, or one of several labels is not 0 to 1
        (not checked while tracing).
    """
    problem_type = problem_type or ("regression" if logits.shape[-1] == 1 else "single_label_classification")
    match problem_type:
        case "regression":
            return squared_error(logits, labels[:, None] if labels.ndim == 1 else labels)
        case "single_label_classification":
            return cross_entropy(logits, labels)
        case "multi_label_classification":
            return binary_cross_entropy(logits, labels)
    expected = ", ".join(map(repr, get_args(ProblemType)))
    raise ValueError(f"problem_type: got {problem_type!r}, expected one of {expected}")


def check_labels(name: str, labels: Int[Array, "*B"], classes: int) -> None:
    """Checks on the host that labels are ignored or below the number of classes; accepts traced values.

    Raises:
      ValueError: If they are not integers or are out of range; names the argument and the first such label.
    """
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(f"{name}: got type {labels.dtype}, expected integers")
    if isinstance(labels, jax.core.Tracer):
        return
    values = np.asarray(labels)
    _check_values(name, values, (values >= 0) & (values < classes), f"0 to {classes - 1}")


def wide(labels: Shaped[Array, "*B"]) -> Shaped[Array, "*B"]:
    """Returns integers of at least 32 bits, since in narrow ones the ignored labels may wrap round."""
    labels = jnp.asarray(labels)
    narrow = jnp.issubdtype(labels.dtype, jnp.integer) and labels.dtype.itemsize < 4
    return labels.astype(jnp.int32) if narrow else labels


def is_real(labels: Shaped[Array, "*B"]) -> Bool[Array, "*B"]:
    """Returns where labels are not to be ignored."""
    labels = wide(labels)
    return (labels != IGNORED[0]) & (labels != IGNORED[1])


def _check_values(name: str, values: np.ndarray, right: np.ndarray, expected: str) -> None:
    wrong = ~right & ~np.isin(values, IGNORED)
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"{name}: got {values[place]} at {list(place)}, expected {expected}, or one of {IGNORED} for none"
        )


def _same(name: str, array: Array, like: Array) -> None:
    if array.shape != like.shape:
        raise ValueError(f"{name}: got shape {array.shape}, expected {like.shape}")
