"""The losses, as sums with their counts: those of several batches, or devices, add up.

Pretraining is masked language modelling plus the sentence task (Appendix A.4); fine-tuning is classification,
regression or spans. Labels -1 and -100 are ignored: the released code's sign, and Hugging Face's.

Axis letters: B batch; M masked tokens; T tokens; V vocabulary; C classes.
"""

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

IGNORED = (-1, -100)


@struct.dataclass
class Loss:
    """A loss over a batch.

    Attributes:
      sum: of the loss, float32 at least.
      count: of what it is a sum over; their quotient is the mean.
      correct: how many had their label's logit greatest; 0 where that makes no sense.
    """

    sum: Float[Array, ""]
    count: Int[Array, ""]
    correct: Int[Array, ""]

    def __add__(self, other: "Loss") -> "Loss":
        """Of both batches."""
        return jax.tree.map(jnp.add, self, other)

    @property
    def mean(self) -> Float[Array, ""]:
        """0 where there is nothing."""
        return self.sum / jnp.maximum(self.count, 1)

    @property
    def accuracy(self) -> Float[Array, ""]:
        """0 where there is nothing."""
        return self.correct / jnp.maximum(self.count, 1)


def cross_entropy(logits: Float[Array, "*B C"], labels: Int[Array, "*B"]) -> Loss:
    """Of labels given logits, in nats, over all that are not ignored.

    It is the masked language model's loss, the sentence task's, and that of single-label classification.

    Raises:
      ValueError: shapes that do not fit.
    """
    if logits.shape[:-1] != labels.shape:
        raise ValueError(
            f"labels have shape {labels.shape}, expected logits' {logits.shape} without the last"
        )
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    real = is_real(labels)
    right = jnp.take_along_axis(logits, jnp.where(real, labels, 0)[..., None], axis=-1)[..., 0]
    losses = jnp.where(real, jax.nn.logsumexp(logits, axis=-1) - right, 0)
    hit = (jnp.argmax(logits, axis=-1) == labels) & real
    return Loss(losses.sum(), real.sum(), hit.sum())


masked_language_model = cross_entropy
sentence = cross_entropy


def binary_cross_entropy(logits: Float[Array, "B C"], labels: Float[Array, "B C"]) -> Loss:
    """Of several labels a row, each true (1) or not (0), [B, C]; other shapes raise ValueError."""
    _same("labels", labels, logits)
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    labels = labels.astype(logits.dtype)
    losses = jax.nn.softplus(logits) - labels * logits
    hit = (logits > 0) == (labels > 0.5)
    return Loss(losses.sum(), jnp.asarray(losses.size), hit.sum())


def squared_error(predictions: Float[Array, "B C"], labels: Float[Array, "B C"]) -> Loss:
    """Regression, over [B, C] numbers; labels of another shape raise ValueError."""
    _same("labels", labels, predictions)
    dtype = jnp.promote_types(predictions.dtype, jnp.float32)
    losses = jnp.square(predictions.astype(dtype) - labels.astype(dtype))
    return Loss(losses.sum(), jnp.asarray(losses.size), jnp.asarray(0))


def span(
    start_logits: Float[Array, "B T"],
    end_logits: Float[Array, "B T"],
    start_positions: Int[Array, "B"],
    end_positions: Int[Array, "B"],
) -> Loss:
    """.5 * (start + end): cross-entropy of where an answer begins and ends, over texts.

    A text counts as correct when both are; a position that is ignored must be so for both.

    Raises:
      ValueError: shapes that do not fit.
    """
    _same("end_logits", end_logits, start_logits)
    start = cross_entropy(start_logits, start_positions)
    end = cross_entropy(end_logits, end_positions)
    hit = (jnp.argmax(start_logits, axis=-1) == start_positions) & (
        jnp.argmax(end_logits, axis=-1) == end_positions
    )
    return Loss(0.5 * (start.sum + end.sum), start.count, hit.sum())


def sequence_classification(
    logits: Float[Array, "B C"], labels: Array, problem_type: str | None = None
) -> Loss:
    """The loss that a problem's type names, as Hugging Face has it.

    Args:
      logits: of a sequence classification model.
      labels: integers [B]; floats [B] or [B, C] for regression; 0 and 1, [B, C], for several labels.
      problem_type: "regression", "single_label_classification", "multi_label_classification"; None: the first
        with one logit, else the second.

    Raises:
      ValueError: another type, or shapes that do not fit.
    """
    problem_type = problem_type or ("regression" if logits.shape[-1] == 1 else "single_label_classification")
    match problem_type:
        case "regression":
            return squared_error(logits, labels[:, None] if labels.ndim == 1 else labels)
        case "single_label_classification":
            return cross_entropy(logits, labels)
        case "multi_label_classification":
            return binary_cross_entropy(logits, labels)
    raise ValueError(
        f"problem_type is {problem_type!r}, expected 'regression', 'single_label_classification' or "
        "'multi_label_classification'"
    )


def is_real(labels: Int[Array, "*B"]) -> Bool[Array, "*B"]:
    """Where a label is not one of those to be ignored."""
    return (labels != IGNORED[0]) & (labels != IGNORED[1])


def _same(name: str, array: Array, like: Array) -> None:
    if array.shape != like.shape:
        raise ValueError(f"{name} has shape {array.shape}, expected {like.shape}")
