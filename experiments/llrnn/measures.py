"""Measures the errors of a recurrent model by length and split, and the score of Deletang et al."""

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from experiments import runtime
from experiments.llrnn.encoders import Model, operators
from llrnn import cells, tasks
from llrnn import model as models
from llrnn.cells.coupling import COORDINATES

_SHARED, _AT_ONCE = 64, 8
EVALUATION_SEED = 2**31 - 1  # not used for training; every run is evaluated on the same sequences


def predict(model: Model, params: Any, inputs: Float[Array, "B T I"]) -> Float[Array, "B T O"]:
    """Applies the model, with room in its memory for all steps, and returns its logits."""
    roomy = models.with_room(model, inputs.shape[1])
    return cast(models.RecurrentOutput, roomy.apply({"params": params}, inputs)).logits


def predict_with_entropy(
    model: Model, params: Any, inputs: Float[Array, "B T I"]
) -> tuple[Float[Array, "B T O"], Float[Array, "B T"]]:
    """Returns the logits, and the summed entropy of the commands that the cell computes at each step.

    Raises:
      ValueError: the cell computes no command.
    """
    output = models.run_with_intermediates(model, {"params": params}, inputs)
    found = output.intermediates or {}
    commands = [value for name, value in found.items() if name.endswith(COORDINATES)]
    if not commands:
        raise ValueError("entropy: got a weight above 0, expected 0 for a cell that computes no command")
    return output.logits, sum(map(cells.entropy, commands[1:]), cells.entropy(commands[0]))


def operator_lengths(model: Model, params: Any) -> Float[Array, ""]:
    """Computes the mean of (|V|^2 / D - 1)^2 over the operators V of the model's cell, D x D.

    Programs that are learned with their operators are determined up to an affine change. For any a, the
    operators (V - (1 - a)) / a and, for the numeral k, the mixture of the numerals i with the binomial
    coordinates C(k, i) a^i (1 - a)^(k - i) denote the powers V^k, too. If V is orthogonal, V = 1 aside, the
    operators are longer for a < 1: so this term of a loss leads to a = 1, where mixtures are programs.
    """
    lengths = [
        jnp.sum(jnp.square(found), axis=(-2, -1)) / found.shape[-1]
        for found in operators(model, params).values()
    ]
    return jnp.mean(jnp.square(jnp.concatenate(lengths) - 1))


def orthogonality(model: Model, params: Any) -> Float[Array, ""]:
    """Computes the mean of |V^T V - 1|^2 / D over the operators V of the model's cell, D x D."""
    defects = []
    for found in operators(model, params).values():
        gram = jnp.einsum("iab,iac->ibc", found, found)
        size = found.shape[-1]
        defects.append(jnp.sum(jnp.square(gram - jnp.eye(size)[None]), axis=(-2, -1)) / size)
    return jnp.mean(jnp.concatenate(defects))


def learned_numerals(model: Model, task: tasks.Task, params: Any) -> dict[str, cells.LearnedNumerals]:
    """Names the numerals of a cell's tables, by table; {} unless it has one for each number of the task."""
    if not isinstance(task, tasks.ProgramTask) or not isinstance(model, models.RecurrentModel):
        return {}
    tables, orders = cells.read_tables(model.cell, params["cell"]), task.elements.element_orders()
    if len(tables) != len(task.powers_of):
        return {}
    return {
        name: cells.read_numerals(logits, orders[elements].tolist())
        for (name, logits), elements in zip(tables.items(), task.powers_of, strict=True)
    }


def buckets(lengths: Sequence[int]) -> list[list[int]]:
    """Returns the lengths in order, together with all up to the same multiple of 64."""
    return [list(group) for _, group in itertools.groupby(sorted(lengths), _rounded)]


def _rounded(length: int) -> int:
    return math.ceil(length / _SHARED) * _SHARED


def make_evaluation(
    task: tasks.Task, model: Model, examples: int
) -> Callable[[Any], dict[str, dict[str, int]]]:
    """Returns a function from parameters to `{"SPLIT/error_LENGTH": counts}`, for each split and length.

    The lengths are the task's test lengths and its longest training length; all sequences are new. The memory
    has room for the longest at every length, since what a Tape-RNN computes depends on it.
    """
    lengths = sorted({task.train_lengths[1], *task.test_lengths})
    model = models.with_room(model, task.steps(lengths[-1]))

    # The lengths of a bucket share one compiled program, whose shapes fit its longest. Sequences are drawn in
    # the shapes of the longest of all lengths, on which the draws depend.
    @functools.partial(jax.jit, static_argnames=("split", "longest"))
    def count(params, split, together, longest):
        def at(length):
            key = jax.random.fold_in(jax.random.key(EVALUATION_SEED), length)
            batch = task.sample(key, examples, length, max_length=lengths[-1], split=split)
            batch = jax.tree.map(lambda leaf: leaf[:, : task.steps(longest)], batch)
            logits = predict(model, params, task.encode(batch.tokens))
            wrong = batch.mask & (jnp.argmax(logits, axis=-1) != batch.targets)
            return {
                "wrong": jnp.sum(wrong),
                "symbols": jnp.sum(batch.mask),
                "sequences_wrong": jnp.sum(jnp.any(wrong, axis=1)),
                "sequences": jnp.sum(jnp.any(batch.mask, axis=1)),
            }

        return jax.lax.map(at, together)

    def evaluation(params) -> dict[str, dict[str, int]]:
        found = {}
        for split, together in itertools.product(task.splits, buckets(lengths)):
            counts = jax.device_get(count(params, split, jnp.asarray(together), together[-1]))
            for index, length in enumerate(together):
                if counts["symbols"][index]:  # short sequences may have no symbols that a split scores
                    found[f"{split}/error_{length}"] = {name: int(row[index]) for name, row in counts.items()}
        return found

    return evaluation


def summarize(counts: Mapping[str, int]) -> dict[str, Any]:
    """Returns the error per symbol, and the share of error-free sequences with its Wilson interval."""
    right = counts["sequences"] - counts["sequences_wrong"]
    low, high = runtime.intervals.wilson_interval(right, counts["sequences"])
    return {
        "error": counts["wrong"] / counts["symbols"],
        "symbols": counts["symbols"],
        "sequences_right": right / counts["sequences"],
        "sequences_right_interval": [low, high],
        "sequences": counts["sequences"],
    }


def score(
    task: tasks.StringTask,
    model: Model,
    params: Any,
    examples: int,
    lengths: Sequence[int] = tasks.SCORED_LENGTHS,
) -> float:
    """Computes the score of Deletang et al., the mean accuracy over lengths 41 to 500.

    Lengths are in one batch with those up to the next multiple of 64, and are padded no further. The memory
    has room for the longest at every length.
    """
    model = models.with_room(model, task.steps(max(lengths)))

    def draw(length, longest):
        key = jax.random.fold_in(jax.random.key(EVALUATION_SEED), length)
        return task.sample(key, examples, length, max_length=longest)

    @functools.partial(jax.jit, static_argnames="longest")
    def right(params, together, longest):
        def of_length(length):
            batch = draw(length, longest)
            return tasks.accuracy(predict(model, params, task.encode(batch.tokens)), batch)

        # A few lengths at a time: the attention of a Transformer to 64 of 2,000 steps would take 14 GB.
        return jax.lax.map(of_length, together, batch_size=_AT_ONCE)

    accuracies = {}
    for together in buckets(lengths):
        counts = right(params, jnp.asarray(together), min(_rounded(together[-1]), max(lengths)))
        for length, hits, symbols in zip(together, *map(np.asarray, counts), strict=True):
            accuracies[length] = int(hits) / int(symbols)
    return tasks.deletang_score(accuracies, lengths=lengths)
