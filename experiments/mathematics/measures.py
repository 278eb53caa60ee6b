"""Evaluates models on the Mathematics Dataset: exact match, and a most-frequent-answer baseline."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jaxtyping import Array, Bool, Float, Int

from experiments import runtime
from experiments.mathematics.config import Config
from experiments.runtime import mesh, processes
from tp_transformer import decoding, evaluation, mathematics, objective
from tp_transformer.mathematics.sources import Listed
from tp_transformer.model import EncoderDecoder

LONGEST = mathematics.MAX_ANSWER + 1
"""Maximum number of decoded symbols: the longest answer and the end symbol."""

VALIDATION: Any = "validation"
"""The split of training questions that are held back (`HeldBack`)."""

COUNTED = 10_000
"""Number of training questions per module used to find the most frequent answer."""


@dataclasses.dataclass(frozen=True)
class Sampled:
    """A source limited to `count` evenly spaced questions per module; 0 keeps all."""

    source: mathematics.Source
    count: int

    def modules(self, split: mathematics.Split) -> tuple[str, ...]:
        """Returns the source's modules of a split."""
        return self.source.modules(split)

    def questions(self, split: mathematics.Split, module: str) -> mathematics.Questions:
        """Returns at most `count` of the source's questions."""
        questions = self.source.questions(split, module)
        if not 0 < self.count < len(questions):
            return questions
        places = np.arange(self.count) * len(questions) // self.count
        return Listed(questions.take(places.tolist()))


@dataclasses.dataclass(frozen=True)
class HeldBack:
    """A source that holds back training questions, for choosing settings without a look at test questions.

    Of each module, `count` evenly spaced questions of a training split, and so of all levels, are the split
    `VALIDATION`. The training split has the others, but for those with the same text as one held back.
    """

    source: mathematics.Source
    split: mathematics.Split
    count: int

    def modules(self, split: mathematics.Split) -> tuple[str, ...]:
        """Returns the source's modules of a split."""
        return self.source.modules(self.split if split == VALIDATION else split)

    def questions(self, split: mathematics.Split, module: str) -> mathematics.Questions:
        """Returns the questions of a module; raises ValueError as the source does, or if none is left."""
        if split == VALIDATION:
            return Sampled(self.source, self.count).questions(self.split, module)
        questions = self.source.questions(split, module)
        if split != self.split:
            return questions
        held = {pair.question for pair in self.questions(VALIDATION, module)}
        kept = Listed(pair for pair in questions if pair.question not in held)
        if not len(kept):
            raise ValueError(
                f"data.validation: got {self.count}, expected fewer than the {len(questions)} questions of "
                f"{split} in {module}, of which none is left to learn from"
            )
        return kept


def held_back(config: Config, source: mathematics.Source) -> mathematics.Source:
    """Returns the source without the config's validation questions in training."""
    count = config.data.validation
    return HeldBack(source, config.data.split, count) if count else source


def test_batches(config: Config, source: mathematics.Source, count: int) -> dict[str, mathematics.Batches]:
    """Returns batches for each test split, and for validation, with `count` questions per module (0: all)."""
    source = held_back(config, source)
    modules = config.data.test_modules(source)
    if config.data.validation:
        modules[VALIDATION] = config.data.modules or source.modules(config.data.split)
    sizes = {"batch_size": config.eval_batch_size, "buckets": with_room(config.data.shapes())}
    return {split: _in_order(source, count, split, names, **sizes) for split, names in modules.items()}


def _in_order(
    source: mathematics.Source,
    count: int,
    split: mathematics.Split,
    modules: Sequence[str] | None,
    **sizes: Any,
) -> mathematics.Batches:
    """Returns unshuffled batches that contain `count` questions of each module once."""
    return mathematics.Batches(Sampled(source, count), split, modules, shuffle=False, keep_last=True, **sizes)


def with_room(buckets: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Adds a bucket for the longest possible question, which the training buckets may lack."""
    whole = mathematics.WHOLE[0]
    fitting = [bucket for bucket in buckets if bucket[0] <= whole[0] and bucket[1] <= whole[1]]
    return tuple(dict.fromkeys((*fitting, whole)))


def logits(
    model: EncoderDecoder,
    params: Any,
    source: Int[Array, "B S"],
    given: Int[Array, "B T"],
    *,
    dropout: jax.Array | None = None,
) -> Float[Array, "B T V"]:
    """Returns next-symbol logits after each symbol of `given`; applies dropout if a key is passed."""
    rngs = None if dropout is None else {"dropout": dropout}
    found = model.apply({"params": params}, source, given, deterministic=dropout is None, rngs=rngs)
    return cast(jax.Array, found)


def by_forcing(model: EncoderDecoder) -> Callable[[Any, mathematics.Batch], jax.Array]:
    """Returns a function that tests in one teacher-forced pass whether greedy decoding would be right."""

    @jax.jit
    def right(params, source, target):
        given, _ = objective.shifted(target)
        return evaluation.forced_match(logits(model, params, source, given), target, end=end_of(model))

    return lambda params, batch: right(params, *spread(batch))


def decode(
    model: EncoderDecoder,
    params: Any,
    source: Int[Array, "B S"],
    beams: int = 1,
) -> Int[Array, "B M+1"]:
    """Decodes answers, greedily or the best of several beams; the ids begin with the model's start symbol."""
    if beams == 1:
        return decoding.greedy_decode(model, params, source, max_length=LONGEST)
    return decoding.beam_search(model, params, source, max_length=LONGEST, beams=beams).tokens[:, 0]


def by_decoding(model: EncoderDecoder) -> Callable[[Any, mathematics.Batch], jax.Array]:
    """Returns a function that decodes answers greedily and tests whether they are right."""
    return lambda params, batch: answered(model, params, batch)[1]


def answered(
    model: EncoderDecoder, params: Any, batch: mathematics.Batch, beams: int = 1
) -> tuple[Int[Array, "B M+1"], Bool[Array, "B"]]:
    """Returns the ids of the decoded answers (see `decode`), and whether each is right to its end."""
    source, target = spread(batch)
    found = decode(model, params, source, beams)
    return found, evaluation.exact_match(found, target, end=end_of(model))


def end_of(model: EncoderDecoder) -> int:
    """Returns the id of the model's end symbol; ValueError if it has none."""
    if model.end is None:
        raise ValueError("model: got end None, expected the id of the end symbol")
    return model.end


def spread(batch: mathematics.Batch) -> tuple[jax.Array, jax.Array]:
    """Places source and target, sharded over the devices if the batch size divides evenly."""
    devices = runtime.Layout().mesh_to_measure()
    even = len(batch.source) % devices.size == 0
    spec = jax.sharding.PartitionSpec(mesh.AXIS) if even else jax.sharding.PartitionSpec()
    return tuple(jax.device_put((batch.source, batch.target), NamedSharding(devices, spec)))


def measure(
    right: Callable[[Any, mathematics.Batch], jax.Array],
    params: Any,
    batches: Mapping[str, mathematics.Batches],
) -> dict[str, evaluation.Scores]:
    """Computes exact match by split and module; several processes each evaluate a share of the batches."""
    found = {}
    for split, of_split in batches.items():
        names, mine = of_split.modules, processes.share(of_split)
        scores = evaluation.score(functools.partial(right, params), mine, names, split=split)
        counts = processes.total(np.asarray([scores.modules.get(name, (0, 0)) for name in names]))
        shares = (evaluation.Share(*pair) for pair in counts.tolist())
        whole = {name: share for name, share in zip(names, shares, strict=True) if share.total}
        found[split] = evaluation.Scores(split, whole)
    return found


def bits(
    model: EncoderDecoder, params: Any, batches: Mapping[str, mathematics.Batches]
) -> dict[str, dict[str, float]]:
    """Computes the cross-entropy of right answers in bits per symbol, by split and module.

    It tells models apart before any of them answers a question, and counts the end symbol. Several processes
    each measure a share of the batches.
    """

    @jax.jit
    def of_rows(params, source, target):
        given, labels = objective.shifted(target)
        sums = jax.vmap(objective.next_symbol_sums)(
            logits(model, params, source, given)[:, None], labels[:, None]
        )
        return sums.loss / jnp.log(2), sums.symbols

    found = {}
    for split, of_split in batches.items():
        sums = np.zeros((2, len(of_split.modules)))
        for batch in processes.share(of_split):
            real = np.flatnonzero(batch.index >= 0)
            for row, values in zip(sums, jax.device_get(of_rows(params, *spread(batch))), strict=True):
                np.add.at(row, batch.module[real], values[real])
        lost, symbols = processes.total(sums)
        shares = zip(of_split.modules, lost, symbols, strict=True)
        found[split] = {name: float(of / count) for name, of, count in shares if count}
    return found


def commonest_answers(config: Config, source: mathematics.Source) -> dict[str, str]:
    """Returns the most frequent training answer of each module."""
    data, buckets, source = config.data, mathematics.WHOLE, held_back(config, source)
    some = _in_order(source, COUNTED, data.split, data.modules or None, batch_size=1024, buckets=buckets)
    return evaluation.most_frequent_answers(some)


def always(answers: Mapping[str, str], batches: mathematics.Batches) -> evaluation.Scores:
    """Scores a constant answer per module.

    For a module of the extrapolation split this is the answer of the training module that it extends.
    """
    named = [answers.get(nearest(module, answers)) for module in batches.modules]

    def right(batch):
        rows = zip(batch.index.tolist(), batch.module.tolist(), strict=True)
        return np.asarray([i >= 0 and batches.question(i).answer == named[module] for i, module in rows])

    return evaluation.score(right, batches, batches.modules, split=batches.split)


def nearest(module: str, answers: Mapping[str, str]) -> str:
    """Returns the training module that an extrapolation module (`numbers__place_value_big`) extends."""
    return max((name for name in answers if module.startswith(name)), key=len, default="")


def summarize(scores: Mapping[str, evaluation.Scores]) -> dict[str, Any]:
    """Returns JSON-ready scores by split, with a Wilson interval for each module's exact match."""
    record = {split: of_split.to_json() for split, of_split in scores.items()}
    for of_split in record.values():
        for entry in of_split["modules"].values():
            entry["interval"] = list(runtime.intervals.wilson_interval(entry["right"], entry["total"]))
    return record
