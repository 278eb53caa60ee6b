"""Evaluation of models on kinship problems: correct answers by the length of the chain."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.sharding import NamedSharding, PartitionSpec

from experiments import runtime
from experiments.kinship import pairs
from experiments.kinship.config import Config
from experiments.kinship.encoders import EncoderClassifier
from experiments.kinship.inputs import Arrays
from experiments.kinship.stories import StoryClassifier
from experiments.runtime import mesh
from folnet import kinship
from folnet.tasks.clutrr_graphs import Published
from logic_zoo.writing import write_whole

METRIC = "metric"
"""Name of the main metric, "eval/metric" in a run's records."""
HELD_OUT = "held_out/"
"""Prefix of the names of tests that need compositions held out from training."""
PREDICTIONS = "predictions.jsonl"


class Point(NamedTuple):
    """A value measured during training, with the number of updates and the seconds of training."""

    step: int
    seconds: float
    value: float


class Count(NamedTuple):
    """The number of correct answers in a test, and the number of its problems."""

    right: int
    total: int


class Tests:
    """All test problems as a model's inputs, in order; they are the same for all seeds.

    Attributes:
        sources: the problems of each test by name.
        counts: number of problems in each test, by name.
        labels: labels of all problems [N].
    """

    def __init__(self, config: Config, name: str):
        """Draws the problems and reads them for the model `name`."""
        self.sources = dict(config.data.tests())
        generated = config.data.test_problems
        self.counts = {
            test: len(source) if isinstance(source, Published) else generated
            for test, source in self.sources.items()
        }
        largest = max(self.sources.values(), key=lambda source: source.max_people)
        read = config.reader(name, largest)
        parts = [read(source, range(self.counts[test])) for test, source in self.sources.items()]
        arrays = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        self.labels = arrays.pop("labels")
        count, size = len(self.labels), config.eval_batch_size
        # All batches have the same size: the last is padded with copies of the last problem.
        places = [np.minimum(np.arange(start, start + size), count - 1) for start in range(0, count, size)]
        self._batches = [{key: array[rows] for key, array in arrays.items()} for rows in places]

    def answers(self, answer: Callable[[Arrays], Any]) -> np.ndarray:
        """Returns the predicted class of each problem [N]; `answer` predicts those of a batch, unlabelled."""
        return np.concatenate([np.asarray(answer(batch)) for batch in self._batches])[: len(self.labels)]

    def right(self, answers: np.ndarray) -> dict[str, Count]:
        """Returns the numbers of correct answers and of problems in each test."""
        hits = self.split(answers == self.labels)
        return {test: Count(int(np.sum(some)), len(some)) for test, some in hits.items()}

    def split(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the values of all problems [N] by test."""
        ends = np.cumsum([*self.counts.values()])[:-1]
        return dict(zip(self.counts, np.split(values, ends), strict=True))


def logits(model: nn.Module, params: Any, batch: Mapping[str, Any], dropout: jax.Array | None = None) -> Any:
    """Returns the logits of the classes for a batch from a reader; dropout is applied if a key is given."""
    if isinstance(model, pairs.PairClassifier | EncoderClassifier | StoryClassifier):
        every = apply(model, params, batch, dropout, num_loops=model.pairs.loops_of_tests)
        return pairs.asked(every[-1], batch["query"])[:, pairs.ASKED]
    return apply(model, params, batch, dropout).logits


def apply(
    model: nn.Module,
    params: Any,
    batch: Mapping[str, Any],
    dropout: jax.Array | None = None,
    **options: Any,
) -> Any:
    """Returns a model's outputs for a batch from a reader; dropout is applied if a key is given."""
    rngs = None if dropout is None else {"dropout": dropout}
    if isinstance(model, StoryClassifier):
        story = batch["input_ids"], batch["mentions"], batch["names"]
        return model.apply({"params": params}, *story, dropout is None, rngs=rngs, **options)
    atoms = {"relation_ids": batch["relation_ids"]} if "relation_ids" in batch else {}
    texts = batch["input_ids"], batch.get("token_type_ids"), batch["attention_mask"]
    return model.apply({"params": params}, *texts, dropout is None, rngs=rngs, **atoms, **options)


def make_answer(
    config: Config, model: nn.Module, tests: Tests, parallel: str | runtime.Layout = "jit"
) -> Callable[[Any], np.ndarray]:
    """Returns `answer(params)`, which predicts the class of each test problem [N]."""
    devices = runtime.Layout.of(parallel).mesh_to_measure()
    even = config.eval_batch_size % devices.shape[mesh.AXIS] == 0
    split = NamedSharding(devices, PartitionSpec(mesh.AXIS) if even else PartitionSpec())

    @jax.jit
    def chosen(params, batch):
        return jnp.argmax(logits(model, params, batch), axis=-1)

    return lambda params: tests.answers(lambda batch: chosen(params, jax.device_put(batch, split)))


def of_generated(config: Config, params: Any) -> float:
    """Returns the metric on generated problems of a model that was trained on published ones."""
    data = dataclasses.replace(config.data, clutrr="", joined=False)
    config = dataclasses.replace(config, data=data)
    tests = Tests(config, config.model)
    answer = make_answer(config, config.make(config.model), tests)
    return accuracies(config, tests.right(answer(params)))[METRIC]


def accuracies(config: Config, right: Mapping[str, Count]) -> dict[str, float]:
    """Returns the records of an evaluation: the metric and the accuracy of each test.

    Tests that need held-out compositions have their own metric, over the lengths with such a test.
    """
    shares = {name: hits / total for name, (hits, total) in right.items()}
    found = {METRIC: float(np.mean([shares[str(length)] for length in config.metric_lengths]))}
    held_out = [shares[name] for k in config.metric_lengths if (name := f"{HELD_OUT}{k}") in shares]
    if held_out:
        found[f"{HELD_OUT}{METRIC}"] = float(np.mean(held_out))
    return found | {f"accuracy/{name}": share for name, share in shares.items()}


def summarize(config: Config, right: Mapping[str, Count]) -> dict[str, Any]:
    """Returns a run's results: the metric with its name, and each test with an interval over its problems."""
    tests = {}
    for name, (hits, total) in right.items():
        interval = list(runtime.intervals.wilson_interval(hits, total))
        tests[name] = {"right": hits, "total": total, "accuracy": hits / total, "interval": interval}
    metric = {"name": config.metric, "value": accuracies(config, right)[METRIC]}
    return {"metric": metric, "tests": tests}


def curve(workdir: Path) -> list[Point]:
    """Returns the metric at each evaluation of a run."""
    key = f"eval/{METRIC}"
    rows = runtime.metrics.read(workdir / "metrics.jsonl")
    return [Point(row["step"], row["train_seconds"], row[key]) for row in rows if row.get(key) is not None]


def line(config: Config, result: runtime.FitResult, workdir: Path) -> dict[str, Any]:
    """Returns the record of a finished run: its settings, accuracies and curve."""
    return {
        "model": result.results["model"],
        "seed": config.seed,
        "parameters": result.results["parameters"],
        "form": config.data.form,
        "train_lengths": list(config.data.train_lengths),
        "metric_lengths": list(config.metric_lengths),
        "metric": result.results["metric"],
        "accuracies": {name: test["accuracy"] for name, test in result.results["tests"].items()},
        "test_problems": {name: test["total"] for name, test in result.results["tests"].items()},
        "steps": result.step,
        "train_seconds": round(result.train_seconds, 1),
        "curve": [[point.step, point.seconds, round(point.value, 5)] for point in curve(workdir)],
    }


def points(of_line: Mapping[str, Any]) -> list[Point]:
    """Returns the curve in a run's record."""
    return [Point(*point) for point in of_line["curve"]]


def of_preset(file: Path, preset: str) -> dict[str, list[dict[str, Any]]]:
    """Returns the records of a preset's runs by model, ordered by seed; {} if the file does not exist.

    Raises:
        ValueError: a line is damaged.
    """
    if not file.exists():
        return {}
    lines = []
    for number, text in enumerate(file.read_bytes().splitlines(), 1):
        try:
            found_line = json.loads(text)
            for name, kind in {"preset": str, "model": str, "seed": int}.items():
                if not isinstance(found_line[name], kind):
                    raise TypeError(f"{name}: got {found_line[name]!r:.60}, expected type {kind.__name__}")
            points(found_line)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{file}, line {number}: not the record of a run ({error!r})") from error
        lines.append(found_line)
    found: dict[str, list[dict[str, Any]]] = {}
    for of_run in sorted(lines, key=lambda of_run: of_run["seed"]):
        if of_run["preset"] == preset:
            found.setdefault(of_run["model"], []).append(of_run)
    return found


def write_predictions(path: Path, tests: Tests, answers: np.ndarray) -> None:
    """Writes a JSON line for each test problem with its seed and number, its chain, and both answers.

    The problem is `folnet.kinship.Kinship(seed, (k,), ...)[number]`, with the settings of the config, or one
    of the published.
    """
    names = kinship.TARGET_NAMES
    lines = []
    for name, of_test in tests.split(answers).items():
        source = tests.sources[name]
        for number, given in enumerate(of_test.tolist()):
            problem = source[number]
            chain = [kinship.RELATIONS[relation] for relation in kinship.relations_of(problem)]
            entry = {"test": name, "seed": source.seed, "number": number, "chain": chain}
            entry |= {"answer": problem.answer_name, "given": names[given], "right": given == problem.label}
            lines.append(json.dumps(entry) + "\n")
    write_whole(path, "".join(lines))
