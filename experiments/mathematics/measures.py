"""What is measured of a model of the Mathematics Dataset: exact match, and what it has to beat."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jax
import numpy as np
from jax.sharding import NamedSharding
from jaxtyping import Array, Float, Int

from experiments import runtime
from experiments.mathematics.config import Config
from experiments.runtime import mesh, processes
from tp_transformer import decoding, evaluation, mathematics, objective
from tp_transformer.mathematics.sources import Listed
from tp_transformer.model import EncoderDecoder

LONGEST = mathematics.MAX_ANSWER + 1
"""Symbols decoded at most: the longest answer and its end."""

COUNTED = 10_000
"""Training questions of a module among which the commonest answer is found."""


@dataclasses.dataclass(frozen=True)
class Sampled:
    """A source with at most so many questions of each module, evenly spaced; 0 leaves all."""

    source: mathematics.Source
    count: int

    def modules(self, split: str) -> tuple[str, ...]:
        """As the source's."""
        return self.source.modules(split)

    def questions(self, split: str, module: str) -> mathematics.Questions:
        """Some of the source's."""
        questions = self.source.questions(split, module)
        if not 0 < self.count < len(questions):
            return questions
        places = np.arange(self.count) * len(questions) // self.count
        return Listed(questions.take(places.tolist()))


def test_batches(config: Config, source: mathematics.Source, count: int) -> dict[str, mathematics.Batches]:
    """Batches of the test splits, `count` questions of each module (0: all)."""
    return {
        split: mathematics.Batches(
            Sampled(source, count),
            split,
            modules,
            batch_size=config.eval_batch_size,
            buckets=with_room(config.data.shapes()),
            shuffle=False,
            keep_last=True,
        )
        for split, modules in config.data.test_modules(source).items()
    }


def with_room(buckets: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Buckets that also take the longest question there may be; training's need not."""
    whole = mathematics.WHOLE[0]
    return (
        buckets
        if buckets[-1] == whole
        else (*(b for b in buckets if max(b[0] - whole[0], b[1] - whole[1]) <= 0), whole)
    )


def logits(
    model: EncoderDecoder,
    params: Any,
    source: Int[Array, "B S"],
    given: Int[Array, "B T"],
    *,
    dropout: jax.Array | None = None,
) -> Float[Array, "B T V"]:
    """The model's logits of the symbol after each one given; with a key, something is dropped."""
    rngs = None if dropout is None else {"dropout": dropout}
    found = model.apply({"params": params}, source, given, deterministic=dropout is None, rngs=rngs)
    return cast(jax.Array, found)


def by_forcing(model: EncoderDecoder) -> Callable[[Any, mathematics.Batch], jax.Array]:
    """Whether greedy decoding would answer rightly, by one pass over the right answers: for training."""

    @jax.jit
    def right(params, source, target):
        given, _ = objective.shifted(target)
        return evaluation.forced_match(logits(model, params, source, given), target)

    return lambda params, batch: right(params, *spread(batch))


def by_decoding(model: EncoderDecoder) -> Callable[[Any, mathematics.Batch], jax.Array]:
    """Whether the answers that are decoded greedily are right: for the end."""
    decode = functools.partial(
        decoding.greedy_decode, model, max_length=LONGEST, start=mathematics.START, end=mathematics.END
    )

    def right(params, batch):
        source, target = spread(batch)
        return evaluation.exact_match(decode(params, source), target)

    return right


def spread(batch: mathematics.Batch) -> tuple[jax.Array, jax.Array]:
    """Source and target, split over the devices if they can be."""
    devices = runtime.Layout().mesh_to_measure()
    even = len(batch.source) % devices.size == 0
    spec = jax.sharding.PartitionSpec(mesh.AXIS) if even else jax.sharding.PartitionSpec()
    return tuple(jax.device_put((batch.source, batch.target), NamedSharding(devices, spec)))


def measure(
    right: Callable[[Any, mathematics.Batch], jax.Array],
    params: Any,
    batches: Mapping[str, mathematics.Batches],
) -> dict[str, evaluation.Scores]:
    """Exact match by split and module; in several processes, each answers its share of the batches."""

    def score(split, of_split):
        mine = processes.share(of_split)
        found = evaluation.score(functools.partial(right, params), mine, of_split.modules, split=split)
        none = evaluation.Share(0, 0)
        shares = [found.modules.get(module, none) for module in of_split.modules]
        counts = processes.total(np.asarray([(one.right, one.total) for one in shares], np.int64))
        whole = {
            module: evaluation.Share(int(right), int(count))
            for module, (right, count) in zip(of_split.modules, counts, strict=True)
            if count
        }
        return evaluation.Scores(split, whole)

    return {split: score(split, of_split) for split, of_split in batches.items()}


def commonest_answers(config: Config, source: mathematics.Source) -> dict[str, str]:
    """The commonest answer of each module in training."""
    some = mathematics.Batches(
        Sampled(source, COUNTED),
        config.data.split,
        config.data.modules or None,
        batch_size=1024,
        buckets=mathematics.WHOLE,
        shuffle=False,
        keep_last=True,
    )
    return evaluation.most_frequent_answers(some)


def always(answers: Mapping[str, str], batches: mathematics.Batches) -> evaluation.Scores:
    """The exact match of one who gives the same answer to all questions of a module.

    A module of the extrapolation set is given the answer of the training module that it extends.
    """
    named = [answers.get(nearest(module, answers)) for module in batches.modules]

    def right(batch):
        return np.asarray(
            [
                index >= 0 and batches.question(int(index)).answer == named[int(module)]
                for index, module in zip(batch.index, batch.module, strict=True)
            ]
        )

    return evaluation.score(right, batches, batches.modules, split=batches.split)


def nearest(module: str, answers: Mapping[str, str]) -> str:
    """The training module that one of the extrapolation set extends: `numbers__place_value_big` and the
    like.
    """
    return max((name for name in answers if module.startswith(name)), key=len, default="")


def summarize(scores: evaluation.Scores) -> dict[str, Any]:
    """Plain numbers, with Wilson intervals of each module's exact match."""
    record = scores.to_json()
    for entry in record["modules"].values():
        entry["interval"] = list(runtime.intervals.wilson_interval(entry["right"], entry["total"]))
    return record


@dataclasses.dataclass(frozen=True)
class Worked:
    """A question and what the model answers."""

    module: str
    question: str
    answer: str
    given: str

    @property
    def right(self) -> bool:
        """Whether it is the right one."""
        return self.given == self.answer


def work(
    model: EncoderDecoder, params: Any, source: mathematics.Source, module: str, count: int, *, split: str
) -> list[Worked]:
    """Answers to some questions of a module."""
    questions = list(Sampled(source, count).questions(split, module))
    ids = mathematics.DEFAULT.encode_batch([question for question, _ in questions], mathematics.WHOLE[0][0])
    tokens = decoding.greedy_decode(
        model, params, ids, max_length=LONGEST, start=mathematics.START, end=mathematics.END
    )
    return [
        Worked(module, question, answer, mathematics.DEFAULT.decode(row))
        for (question, answer), row in zip(questions, np.asarray(tokens), strict=True)
    ]


def mix(tried: Sequence[Worked]) -> list[Worked]:
    """The same, a right one before each wrong one for as long as there are both."""
    right = [worked for worked in tried if worked.right]
    wrong = [worked for worked in tried if not worked.right]
    mixed = []
    while right or wrong:
        mixed += [*right[:1], *wrong[:1]]
        right, wrong = right[1:], wrong[1:]
    return mixed
