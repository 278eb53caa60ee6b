"""Exact match on the Mathematics Dataset: per module, averaged, and counted above 95 % (table 1).

An answer is right if all of it is, its end included. Two ways to find out give the same result:

- decode greedily and compare (`exact_match`);
- give the decoder the answer itself and look whether each next symbol is the likeliest (`forced_match`).
  Greedy decoding goes wrong at the first symbol where this does, and nowhere else. One pass instead of one
  a symbol.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from tp_transformer.mathematics.batches import Batch
from tp_transformer.mathematics.vocabulary import END, PAD

Arrays = Array | np.ndarray

THRESHOLD = 0.95
"""Accuracy above which table 1 counts a module."""


def exact_match(
    predicted: Int[Arrays, "B P"], target: Int[Arrays, "B T"], *, end: int = END, pad: int = PAD
) -> Bool[Array, "B"]:
    """Whether decoded answers are right, with their ends; False where the target has no end.

    Args:
        predicted: start, then what was decoded; only what comes up to the target's end counts. The longest
            answers of the data set need 31 decoded symbols, 30 and the end.
        target: start, answer, end, padding.
        end: id of the end.
        pad: id of padding.

    Raises:
        ValueError: the shapes do not belong together.
    """
    if predicted.ndim != 2 or target.ndim != 2 or predicted.shape[0] != target.shape[0]:
        raise ValueError(
            f"predicted and target must be [B, P] and [B, T], got {predicted.shape} and {target.shape}"
        )
    predicted, target = jnp.asarray(predicted)[:, 1:], jnp.asarray(target)[:, 1:]
    if (short := target.shape[1] - predicted.shape[1]) > 0:
        predicted = jnp.pad(predicted, ((0, 0), (0, short)), constant_values=pad)
    predicted = predicted[:, : target.shape[1]]
    return _all_agree(predicted == target, target, end)


def forced_match(
    logits: Float[Arrays, "B T-1 V"], target: Int[Arrays, "B T"], *, end: int = END
) -> Bool[Array, "B"]:
    """Whether greedy decoding would give the right answers: whether each next symbol is the likeliest.

    Args:
        logits: of a decoder that was given `target[:, :-1]`.
        target: start, answer, end, padding; the result is False where there is no end.
        end: id of the end.

    Raises:
        ValueError: the shapes do not belong together.
    """
    if logits.ndim != 3 or target.ndim != 2 or logits.shape[:2] != (target.shape[0], target.shape[1] - 1):
        raise ValueError(
            f"logits must be [B, T - 1, V] for target [B, T], got {logits.shape} and {target.shape}"
        )
    following = jnp.asarray(target)[:, 1:]
    return _all_agree(jnp.argmax(logits, axis=-1) == following, following, end)


def _all_agree(agree: Bool[Array, "B T"], target: Int[Array, "B T"], end: int) -> Bool[Array, "B"]:
    """Whether all symbols up to and with the target's first end agree."""
    is_end = target == end
    before_or_at = jnp.cumsum(is_end, axis=1) - is_end == 0
    return jnp.all(agree | ~before_or_at, axis=1) & jnp.any(is_end, axis=1)


class Share(NamedTuple):
    """Right answers among questions."""

    right: int
    total: int

    @property
    def accuracy(self) -> float:
        """Their share, 0 to 1; not a number if there were no questions."""
        return self.right / self.total if self.total else float("nan")


@dataclasses.dataclass(frozen=True)
class Scores:
    """The result on one split: a number of right answers for each module."""

    split: str
    modules: Mapping[str, Share]

    @property
    def accuracies(self) -> dict[str, float]:
        """Exact match of each module, 0 to 1, in the modules' order: the bars of figure 3."""
        return {module: share.accuracy for module, share in self.modules.items()}

    @property
    def average(self) -> float:
        """Exact match averaged over modules, each counting alike, as in table 1."""
        return float(np.mean(list(self.accuracies.values())))

    def above(self, threshold: float = THRESHOLD) -> int:
        """How many modules are above a threshold (table 1: 95 %)."""
        return sum(accuracy > threshold for accuracy in self.accuracies.values())

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, for a record."""
        return {
            "split": self.split,
            "average": self.average,
            "above_95": self.above(),
            "modules": {module: share._asdict() for module, share in self.modules.items()},
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Scores":
        """What `to_json` wrote."""
        modules = {name: Share(entry["right"], entry["total"]) for name, entry in record["modules"].items()}
        return cls(record["split"], modules)

    def __add__(self, other: "Scores") -> "Scores":
        """The results of two halves of a split, or of two hosts, as one."""
        if self.split != other.split:
            raise ValueError(f"scores must be of one split, got {self.split} and {other.split}")
        modules = dict(self.modules)
        for name, share in other.modules.items():
            mine = modules.get(name, Share(0, 0))
            modules[name] = Share(mine.right + share.right, mine.total + share.total)
        return Scores(self.split, modules)


def score(
    right: Callable[[Batch], Any], batches: Iterable[Batch], modules: Sequence[str], *, split: str
) -> Scores:
    """Counts right answers by module; modules without a question are left out.

    Args:
        right: from a batch to whether each answer is right [B]; made of `exact_match` or `forced_match`. It
            may return device arrays: the results of a batch are only waited for when the next is under way.
        batches: of the split, each question once.
        modules: names by `Batch.module`.
        split: name of the split.

    Raises:
        ValueError: `right` returned another shape.
    """
    totals = np.zeros((len(modules), 2), np.int64)

    def count(batch: Batch, result: Any) -> None:
        result = np.asarray(result)
        if result.shape != batch.index.shape:
            raise ValueError(f"right must return one value a row {batch.index.shape}, got {result.shape}")
        valid = batch.valid
        np.add.at(totals, batch.module[valid], np.stack([result[valid], np.ones(valid.sum())], 1).astype(int))

    begun = ((batch, right(batch)) for batch in batches)
    waiting = next(begun, None)
    while waiting is not None:
        waiting, (batch, result) = next(begun, None), waiting
        count(batch, result)
    shares = (Share(int(correct), int(total)) for correct, total in totals)
    return Scores(
        split, {module: share for module, share in zip(modules, shares, strict=True) if share.total}
    )


def most_frequent_answers(batches: Any) -> dict[str, str]:
    """The most frequent answer of each module in the `Batches` of a training split.

    A model must beat it to have learned anything. Of equally frequent answers it is the first as a string.
    """
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for batch in batches:
        for module, index in zip(batch.module[batch.valid], batch.index[batch.valid], strict=True):
            counts[batches.modules[int(module)]][batches.question(int(index)).answer] += 1
    return {
        module: min(answers, key=lambda answer: (-answers[answer], answer))
        for module, answers in counts.items()
    }
