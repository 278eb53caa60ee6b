"""Exact match on the Mathematics Dataset: per module, averaged, and the number of modules above 95 % (table
1).

An answer counts as correct if all of it is correct, including its end. Two methods give the same result:

- `exact_match` compares greedily decoded answers with the targets.
- `forced_match` feeds the target to the decoder and checks that each next symbol is the most probable one.
  Greedy decoding makes its first mistake at the first symbol where this check fails. This takes one pass
  instead of one per symbol.

Axis letters: B batch, P symbols of a prediction, A = T + 1 symbols of a target, V vocabulary.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from tp_transformer.mathematics.batches import Batch
from tp_transformer.mathematics.vocabulary import END

Arrays = Array | np.ndarray

THRESHOLD = 0.95
"""Accuracy above which a module is counted in table 1."""


def exact_match(
    predicted: Int[Arrays, "B P"], target: Int[Arrays, "B A"], *, end: int = END
) -> Bool[Array, "B"]:
    """Returns whether decoded answers are correct, including their ends; False for targets without an end.

    Args:
        predicted: start symbol and decoded symbols; symbols after the target's end are ignored. The longest
            answers of the dataset take 31 decoded symbols, 30 and the end.
        target: start, answer, end, padding.
        end: id of the end symbol.

    Raises:
        ValueError: the arguments are not two batches of the same size.
    """
    if predicted.ndim != 2 or target.ndim != 2 or predicted.shape[0] != target.shape[0]:
        raise ValueError(
            f"predicted, target: got shapes {predicted.shape} and {target.shape}, expected [B, P] and [B, A]"
        )
    predicted, target = jnp.asarray(predicted)[:, 1:], jnp.asarray(target)[:, 1:]
    if (short := target.shape[1] - predicted.shape[1]) > 0:
        predicted = jnp.pad(predicted, ((0, 0), (0, short)), constant_values=-1)
    predicted = predicted[:, : target.shape[1]]
    return _all_agree(predicted == target, target, end)


def forced_match(
    logits: Float[Arrays, "B T V"], target: Int[Arrays, "B A"], *, end: int = END
) -> Bool[Array, "B"]:
    """Returns whether greedy decoding would be correct, from logits computed with the target as input.

    Args:
        logits: output of a decoder whose input was `target[:, :-1]`.
        target: start, answer, end, padding; the result is False without an end.
        end: id of the end symbol.

    Raises:
        ValueError: the shapes do not match.
    """
    if logits.ndim != 3 or target.ndim != 2 or logits.shape[:2] != (target.shape[0], target.shape[1] - 1):
        raise ValueError(
            f"logits: got shape {logits.shape}, expected [B, T, V] for target [B, T + 1] = {target.shape}"
        )
    following = jnp.asarray(target)[:, 1:]
    return _all_agree(jnp.argmax(logits, axis=-1) == following, following, end)


def _all_agree(agree: Bool[Array, "B T"], target: Int[Array, "B T"], end: int) -> Bool[Array, "B"]:
    """Returns whether all symbols up to and including the target's first end agree."""
    is_end = target == end
    before_or_at = jnp.cumsum(is_end, axis=1) - is_end == 0
    return jnp.all(agree | ~before_or_at, axis=1) & jnp.any(is_end, axis=1)


class Share(NamedTuple):
    """Number of correct answers out of a number of questions."""

    right: int
    total: int

    @property
    def accuracy(self) -> float:
        """Fraction of correct answers, 0 to 1; NaN if there were no questions."""
        return self.right / self.total if self.total else float("nan")


@dataclasses.dataclass(frozen=True)
class Scores:
    """Result on one split: the number of correct answers for each module."""

    split: str
    modules: Mapping[str, Share]

    @property
    def accuracies(self) -> dict[str, float]:
        """Exact match of each module, 0 to 1, in the order of `modules`: the bars of figure 3."""
        return {module: share.accuracy for module, share in self.modules.items()}

    @property
    def average(self) -> float:
        """Exact match averaged over modules with equal weights, as in table 1."""
        return float(np.mean(list(self.accuracies.values())))

    def above(self, threshold: float = THRESHOLD) -> int:
        """Returns the number of modules whose accuracy exceeds a threshold (95 % in table 1)."""
        return sum(accuracy > threshold for accuracy in self.accuracies.values())

    def to_json(self) -> dict[str, Any]:
        """Returns a record of plain numbers and strings."""
        return {
            "split": self.split,
            "average": self.average,
            "above_95": self.above(),
            "modules": {module: share._asdict() for module, share in self.modules.items()},
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Scores":
        """Reads a record written by `to_json`."""
        modules = {name: Share(entry["right"], entry["total"]) for name, entry in record["modules"].items()}
        return cls(record["split"], modules)

    def __add__(self, other: "Scores") -> "Scores":
        """Combines the results of two parts of a split. Raises ValueError if the splits differ."""
        if self.split != other.split:
            raise ValueError(f"scores: got splits {self.split} and {other.split}, expected one split")
        modules = dict(self.modules)
        for name, share in other.modules.items():
            mine = modules.get(name, Share(0, 0))
            modules[name] = Share(mine.right + share.right, mine.total + share.total)
        return Scores(self.split, modules)


def score(
    right: Callable[[Batch], Any], batches: Iterable[Batch], modules: Sequence[str], *, split: str
) -> Scores:
    """Counts correct answers per module; modules without questions are left out.

    Args:
        right: maps a batch to whether each answer is correct, [B], using `exact_match` or `forced_match`. It
            may return device arrays: the result of a batch is fetched only after the next batch was started.
        batches: batches of the split, each question once.
        modules: names of the modules by `Batch.module`.
        split: name of the split.

    Raises:
        ValueError: `right` returned an array of the wrong shape.
    """
    totals = np.zeros((len(modules), 2), np.int64)

    def count(batch: Batch, result: Any) -> None:
        result = np.asarray(result)
        if result.shape != batch.index.shape:
            raise ValueError(
                f"right: got shape {result.shape}, expected {batch.index.shape}, one value per row"
            )
        modules_there = batch.module[batch.valid]
        np.add.at(totals[:, 0], modules_there, result[batch.valid])
        np.add.at(totals[:, 1], modules_there, 1)

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
    """Returns the most frequent answer of each module in the `Batches` of a training split.

    A model has learned something only if it beats this baseline. Ties are broken by string order.
    """
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for batch in batches:
        for module, index in zip(batch.module[batch.valid], batch.index[batch.valid], strict=True):
            counts[batches.modules[int(module)]][batches.question(int(index)).answer] += 1
    return {
        module: min(answers, key=lambda answer: (-answers[answer], answer))
        for module, answers in counts.items()
    }
