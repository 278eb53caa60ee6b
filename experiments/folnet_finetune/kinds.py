"""What a run does for each kind of task: the model's head, its loss, scores, and files of predictions.

N examples, W rows of the model, T tokens, C classes, K choices.
"""

import abc
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from experiments import runtime
from experiments.runtime.training import Scalar
from folnet import (
    FOLNetForMultipleChoice,
    FOLNetForQuestionAnswering,
    FOLNetForSequenceClassification,
    FOLNetForTokenClassification,
    objective,
    tasks,
)
from folnet.tasks import own
from folnet.tasks.own.choices import NEVER
from logic_zoo.writing import write_whole

THRESHOLD = "f1/best_threshold"
"""The score of spans at which test splits and new texts are answered."""


class Split(NamedTuple):
    """A split of a task's data."""

    name: str
    examples: Sequence[Any]
    features: Any
    """What the task's `features` returned."""
    labelled: bool = True
    """Whether all examples have labels; those of most test splits are not published."""

    @property
    def rows(self) -> int:
        """The number of model inputs: examples or, of long texts, windows."""
        return len(self.features.input_ids)


class Measured(NamedTuple):
    """The evaluation of a model on a split."""

    metrics: dict[str, float]
    """Metrics by the task's names; empty for a split without labels."""
    predictions: Any
    """The predictions, as the task's `score` takes them."""
    logits: tuple[np.ndarray, ...]
    """Logits of texts or words [N, C], or of choices [N, K]; for spans those of start and end [W, T]."""


class Kind(abc.ABC):
    """What a run does with a task; see `of`."""

    head: ClassVar[Any]
    """The class of the model."""
    pipeline: ClassVar[str]
    """The name of the task on hubs and in `transformers`; "" if there is none."""
    of_own: ClassVar[own.Kind]
    """Its name among the kinds of data of your own."""
    per_token: ClassVar[bool] = False
    """Whether the second axis of logits is that of tokens."""
    chooses: ClassVar[bool] = True
    """Whether an answer is one of a few, so that it has a probability and can be wrong."""

    def __init__(self, task: Any):
        """Prepares for a task."""
        self.task = task

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the model that depend on the task."""
        return {}

    @property
    def main(self) -> Sequence[str]:
        """The metrics whose mean selects the best model, as in the authors' programs."""
        return self.task.metrics[:1]

    @abc.abstractmethod
    def texts(self, examples: Sequence[Any]) -> Iterator[str]:
        """Yields the texts of examples, to learn a vocabulary from."""

    @abc.abstractmethod
    def sums(self, out: Any, batch: Any, weights: Float[np.ndarray, "C"] | None) -> runtime.Sums:
        """Returns the loss of a batch from the model's output; `weights` are those of classes."""

    @abc.abstractmethod
    def measured(self, split: Split, logits: tuple[np.ndarray, ...], threshold: float | None) -> Measured:
        """Evaluates the logits of a split's rows; for the threshold see `measures.Measure`."""

    @abc.abstractmethod
    def lines(self, split: Split, found: Measured) -> list[str]:
        """Returns a JSON line for each example: `index`, `prediction`, and what else is known."""

    def labels(self, examples: Sequence[Any]) -> Int[np.ndarray, "N"] | None:
        """Returns the numbers of the classes of what is classified; None if there are no fixed classes."""
        del examples
        return None

    def wrong(self, split: Split, found: Measured) -> Iterator[dict[str, Any]]:
        """Yields what is classified wrongly, with texts, `prediction`, `label` and `probability`."""
        del split, found
        yield from ()

    def write(self, directory: Path, split: Split, found: Measured) -> list[str]:
        """Writes a split's predictions and returns the names of the files."""
        path = directory / f"{self.task.name}_{split.name}.jsonl"
        return [write_whole(path, "".join(self.lines(split, found))).name]


class Texts(Kind):
    """Classes of texts, or numbers for them. The main metric is the mean of the task's one or two."""

    head = FOLNetForSequenceClassification
    pipeline = "text-classification"
    of_own = "class"

    @property
    def settings(self) -> dict[str, Any]:
        """See `Kind`."""
        kind = "single_label_classification" if self.task.classes else "regression"
        return {
            "num_labels": len(self.task.classes) or 1,
            "problem_type": kind,
            "labels": self.task.classes,
        }

    @property
    def main(self) -> Sequence[str]:
        """See `Kind`."""
        return self.task.metrics

    def texts(self, examples: Sequence[Any]) -> Iterator[str]:
        """See `Kind`."""
        return (text for example in examples for text in (example.first, example.second) if text)

    def sums(self, out: Any, batch: Any, weights: Float[np.ndarray, "C"] | None) -> runtime.Sums:
        """See `Kind`; numbers have the squared error."""
        if self.task.classes:
            return _of_classes(out.logits, batch["label"], weights)
        weight = batch["weight"]
        found = objective.squared_error(out.logits[:, 0] * weight, batch["label"] * weight)
        return runtime.Sums(found.sum, weight.sum(), {})  # padding rows do not count

    def measured(self, split: Split, logits: tuple[np.ndarray, ...], threshold: float | None) -> Measured:
        """See `Kind`."""
        del threshold
        (found,) = logits
        if isinstance(self.task, own.TextTask):
            found = self.task.of_windows(split.features, found)
        predictions = self.task.predict(found)
        scores = self.task.score(split.examples, predictions) if split.labelled else {}
        return Measured(scores, predictions, (found,))

    def labels(self, examples: Sequence[Any]) -> Int[np.ndarray, "N"] | None:
        """See `Kind`."""
        return self.task.labels(examples) if self.task.classes else None

    def lines(self, split: Split, found: Measured) -> list[str]:
        """See `Kind`: also `label`, `group`, and of a class its `probability`."""
        lines = []
        sure = _sure(found.logits[0])
        for example, number, probability in zip(split.examples, found.predictions, sure, strict=True):
            line = {"index": example.index, "prediction": self.task.written(number)}
            line |= {} if example.label is None else {"label": self.task.written(example.label)}
            line |= {"group": example.group} if example.group else {}
            line |= {"probability": round(float(probability), 6)} if self.task.classes else {}
            lines.append(json.dumps(line) + "\n")
        return lines

    def wrong(self, split: Split, found: Measured) -> Iterator[dict[str, Any]]:
        """See `Kind`; none of numbers."""
        for example, line in zip(split.examples, map(json.loads, self.lines(split, found)), strict=True):
            if self.task.classes and line["prediction"] != line["label"]:
                second = {} if example.second is None else {"second": example.second}
                yield line | {"first": example.first} | second

    def write(self, directory: Path, split: Split, found: Measured) -> list[str]:
        """See `Kind`; for GLUE, writes the table for its server."""
        if not isinstance(self.task, tasks.GlueTask):
            return super().write(directory, split, found)
        return [self.task.write_predictions(directory, split.name, split.examples, found.predictions).name]


class Spans(Kind):
    """Answers that are parts of a context. The main metric is the F1 at the best threshold."""

    head = FOLNetForQuestionAnswering
    pipeline = "question-answering"
    of_own = "spans"
    per_token = True
    chooses = False

    @property
    def main(self) -> Sequence[str]:
        """See `Kind`."""
        return [f"{self.task.metrics[0]}/best"]

    def texts(self, examples: Sequence[Any]) -> Iterator[str]:
        """See `Kind`; a context of several questions counts once."""
        yield from dict.fromkeys(question.context for question in examples)
        yield from (question.question for question in examples)

    def sums(self, out: Any, batch: Any, weights: Float[np.ndarray, "C"] | None) -> runtime.Sums:
        """See `Kind`: the mean of the cross-entropies of start and end."""
        del weights
        found = objective.span(out.start_logits, out.end_logits, batch["start"], batch["end"])
        return runtime.Sums(found.sum, found.count, {"accuracy": (found.correct, found.count)})

    def measured(self, split: Split, logits: tuple[np.ndarray, ...], threshold: float | None) -> Measured:
        """See `Kind`."""
        answers = self.task.answers(split.examples, split.features, *logits, threshold=threshold or 0.0)
        scores = self.task.score(split.examples, answers) if split.labelled else {}
        if threshold is not None:  # the best ones of this split are not what is measured
            scores = {name: value for name, value in scores.items() if "/best" not in name}
        elif scores:
            answers = [answer.at(scores[THRESHOLD]) for answer in answers]
        return Measured(scores, answers, logits)

    def lines(self, split: Split, found: Measured) -> list[str]:
        """See `Kind`: also `null_odds`, and `answers` if they are known."""
        lines = []
        for question, answer in zip(split.examples, found.predictions, strict=True):
            line: dict[str, Any] = {"index": question.index, "prediction": answer.text}
            line |= {"answers": [gold.text for gold in question.golds]} if split.labelled else {}
            line["null_odds"] = round(answer.null_odds, 6)
            lines.append(json.dumps(line, ensure_ascii=False) + "\n")
        return lines

    def write(self, directory: Path, split: Split, found: Measured) -> list[str]:
        """See `Kind`; for SQuAD, writes answers and null odds as its script reads them."""
        if isinstance(self.task, own.SpanTask):
            return super().write(directory, split, found)
        path = self.task.write_predictions(directory, split.name, found.predictions)
        return [path.name, f"{path.stem}_null_odds.json"]


class Words(Kind):
    """Classes of words."""

    head = FOLNetForTokenClassification
    pipeline = "token-classification"
    of_own = "words"
    per_token = True

    @property
    def settings(self) -> dict[str, Any]:
        """See `Kind`."""
        return {"num_labels": len(self.task.classes), "labels": self.task.classes}

    def texts(self, examples: Sequence[Any]) -> Iterator[str]:
        """See `Kind`."""
        return (" ".join(example.words) for example in examples)

    def sums(self, out: Any, batch: Any, weights: Float[np.ndarray, "C"] | None) -> runtime.Sums:
        """See `Kind`."""
        return _of_classes(out.logits, batch["tags"], weights)

    def measured(self, split: Split, logits: tuple[np.ndarray, ...], threshold: float | None) -> Measured:
        """See `Kind`."""
        del threshold
        found = self.task.of_words(split.features, logits[0])
        predictions = np.argmax(found, axis=1)
        scores = self.task.score(split.examples, predictions) if split.labelled else {}
        return Measured(scores, predictions, (found,))

    def labels(self, examples: Sequence[Any]) -> Int[np.ndarray, "N"] | None:
        """See `Kind`."""
        return self.task.tags(examples)

    def lines(self, split: Split, found: Measured) -> list[str]:
        """See `Kind`: the words, a `prediction` of each with its `probability`, and their `labels`."""
        names, sure = self.task.classes, _sure(found.logits[0])
        lines, start = [], 0
        for example in split.examples:
            place = slice(start, start := start + len(example.words))
            line: dict[str, Any] = {"index": example.index, "words": example.words}
            line["prediction"] = [names[number] for number in found.predictions[place]]
            line |= {} if example.tags is None else {"label": [names[number] for number in example.tags]}
            line["probability"] = [round(float(each), 6) for each in sure[place]]
            lines.append(json.dumps(line, ensure_ascii=False) + "\n")
        return lines

    def wrong(self, split: Split, found: Measured) -> Iterator[dict[str, Any]]:
        """See `Kind`: a `word`, its row's `words`, and the `place` among them, from 0."""
        for line in map(json.loads, self.lines(split, found)):
            each = zip(line["words"], line["prediction"], line["label"], line["probability"], strict=True)
            for place, (word, prediction, label, probability) in enumerate(each):
                if prediction != label:
                    yield {
                        "index": line["index"],
                        "place": place,
                        "word": word,
                        "prediction": prediction,
                        "label": label,
                        "probability": probability,
                        "words": line["words"],
                    }


class Choices(Kind):
    """The right one of several texts."""

    head = FOLNetForMultipleChoice
    pipeline = ""
    of_own = "choices"

    def texts(self, examples: Sequence[Any]) -> Iterator[str]:
        """See `Kind`."""
        return (text for example in examples for text in (example.question, *example.choices))

    def sums(self, out: Any, batch: Any, weights: Float[np.ndarray, "C"] | None) -> runtime.Sums:
        """See `Kind`; choices that a question lacks have no probability."""
        del weights
        return _of_classes(jnp.where(batch["exists"], out.logits, NEVER), batch["label"], None)

    def measured(self, split: Split, logits: tuple[np.ndarray, ...], threshold: float | None) -> Measured:
        """See `Kind`."""
        del threshold
        found = self.task.of_choices(split.features, logits[0])
        predictions = np.argmax(found, axis=1)
        scores = self.task.score(split.examples, predictions) if split.labelled else {}
        return Measured(scores, predictions, (found,))

    def lines(self, split: Split, found: Measured) -> list[str]:
        """See `Kind`: the text of the choice with its `number` and `probability`, and the `label`."""
        lines = []
        sure = _sure(found.logits[0])
        for example, number, probability in zip(split.examples, found.predictions, sure, strict=True):
            line: dict[str, Any] = {"index": example.index, "prediction": example.choices[number]}
            line["number"] = int(number)
            line |= {} if example.label is None else {"label": example.choices[example.label]}
            line["probability"] = round(float(probability), 6)
            lines.append(json.dumps(line, ensure_ascii=False) + "\n")
        return lines

    def wrong(self, split: Split, found: Measured) -> Iterator[dict[str, Any]]:
        """See `Kind`."""
        for example, line in zip(split.examples, map(json.loads, self.lines(split, found)), strict=True):
            if line["prediction"] != line["label"]:
                yield line | {"question": example.question}


KINDS: Mapping[type[tasks.Task[Any, Any]], type[Kind]] = {
    tasks.SequenceTask: Texts,
    tasks.SquadTask: Spans,
    own.WordTask: Words,
    own.ChoiceTask: Choices,
}


def of(task: tasks.Task[Any, Any]) -> Kind:
    """Returns what a run does with a task; raises ValueError for a task of another kind."""
    for cls, kind in KINDS.items():
        if isinstance(task, cls):
            return kind(task)
    known = ", ".join(cls.__name__ for cls in KINDS)
    raise ValueError(f"task: got a {type(task).__name__}, expected one of {known}")


def reading(task: own.OwnTask[Any, Any]) -> dict[str, str]:
    """Returns the kind of your own rows and their columns, named or found, by field of `own`."""
    kind = of(task).of_own
    columns = {name: column for name, column in task.columns._asdict().items() if column}
    return {"kind": "number" if kind == "class" and not task.classes else kind, **columns}


def _of_classes(
    logits: Float[Array, "*B C"], labels: Int[Array, "*B"], weights: Float[np.ndarray, "C"] | None
) -> runtime.Sums:
    """The cross-entropy, weighted by the classes of the labels if weights are given."""
    found = objective.cross_entropy(logits, labels)
    metrics: dict[str, tuple[Scalar, Scalar]] = {"accuracy": (found.correct, found.count)}
    if weights is None:
        return runtime.Sums(found.sum, found.count, metrics)
    each = jax.vmap(objective.cross_entropy)(logits.reshape(-1, 1, logits.shape[-1]), labels.reshape(-1, 1))
    weight = jnp.asarray(weights)[labels.reshape(-1)]  # of padding that of any class: its count is 0
    return runtime.Sums(jnp.sum(weight * each.sum), jnp.sum(weight * each.count), metrics)


def _sure(logits: Float[np.ndarray, "N C"]) -> Float[np.ndarray, "N"]:
    """The probability of the most probable class."""
    logits = logits.astype(np.float64)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds.max(axis=1) / odds.sum(axis=1)
