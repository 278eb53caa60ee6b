"""What can be answered without reasoning: by counting symbols, and by looking for a similar problem.

    python -m experiments.reasoning.shallow --out=results/reasoning/shallow.json

Two classifiers are fitted to problems of training and asked those of the test that is each task's measure. If
either is far above a constant answer, then a part of the answers is not evidence for composition.

- Counts: a linear classifier of how often each symbol occurs, and of the symbols that the question is about.
- Nearest: the answer of the question that agrees in most places. Places are those of a sequence counted back
  from the question, or pairs of nodes with those of the question first; sets have none, and agree in how many
  of their elements are the same.

How often each answer occurs is counted in every split. Accuracies are means over the answers, so that
unequal frequencies help nobody.

Axis letters: Q questions; F features.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import flags
from jaxtyping import Float, Int

from experiments import runtime
from experiments.reasoning.tasks import TASKS, TRAIN, Problems, Task
from experiments.runtime.probes import linear_probe
from logic_zoo.writing import whole

TRAINED, TESTED = 2048, 512
"""Numbers of problems."""
MOST = 4096
"""Questions are chosen at random if there are more."""


class Questions(NamedTuple):
    """Questions of a task, and their answers.

    Attributes:
        counts: how often each symbol occurs in the problem, and the symbols that the question is about.
        places: one feature for each symbol in each place, so that the product of two rows is the number of
            places in which they agree.
        answers: classes.
    """

    counts: Float[np.ndarray, "Q F"]
    places: Float[np.ndarray, "Q F"]
    answers: Int[np.ndarray, "Q"]


def one_hot(symbols: Any, size: int) -> Float[np.ndarray, "*S F"]:
    """Returns a feature for each of `size` symbols, [*S]; none for -1."""
    return (symbols[..., None] == np.arange(size)).astype(np.float32)


def questions(task: Task, problems: Problems, width: int) -> Questions:
    """Returns the questions of some problems.

    Args:
        task: of the problems.
        problems: as NumPy arrays.
        width: number of symbols of a sequence, or of nodes, to which places are cut or filled.
    """
    asked = np.argwhere(problems.targets >= 0)
    if len(asked) > MOST:
        asked = np.random.default_rng(0).permutation(asked)[:MOST]
    describe = {"set": _of_set, "sequence": _of_sequence, "graph": _of_graph}[task.kind]
    parts = [describe(task, problems, place, width) for place in asked]
    counts, places = (np.stack(part) for part in zip(*parts, strict=True))
    return Questions(counts, places, np.asarray(problems.targets)[tuple(asked.T)])


def _of_set(task: Task, problems: Problems, place, width: int):
    row, element = place
    tokens = one_hot(problems.tokens[row], task.vocabulary)
    counts, own = tokens.sum(axis=0), tokens[element]
    repeated = (counts[None] > np.arange(width)[:, None]).ravel()  # products count common elements
    return np.concatenate([counts, own]), np.concatenate([repeated, np.sqrt(width) * own])


def _of_sequence(task: Task, problems: Problems, place, width: int):
    row, end = place
    tokens = one_hot(problems.tokens[row, : end + 1], task.vocabulary)
    places = np.zeros((width, task.vocabulary), np.float32)
    back = tokens[::-1][:width]
    places[: len(back)] = back
    return np.concatenate([tokens.sum(axis=0), tokens[-1]]), places.ravel()


def _of_graph(task: Task, problems: Problems, place, width: int):
    row, first, second = place
    assert problems.relations is not None
    relations = one_hot(problems.relations[row] + 1, task.relations + 1)
    tokens = one_hot(problems.tokens[row], task.vocabulary)
    own = [relations[first, second], relations[second, first], tokens[first], tokens[second]]
    counts = np.concatenate([relations.sum(axis=(0, 1)), tokens.sum(axis=0), *own, [first == second]])
    order = [*dict.fromkeys([first, second, *range(len(tokens))])]
    places = np.zeros((width, width, relations.shape[-1]), np.float32)
    places[: len(order), : len(order)] = relations[np.ix_(order, order)]
    return counts, places.ravel()


def nearest(train: Questions, test: Questions) -> float:
    """Returns the accuracy of the answers of the nearest questions, averaged over classes."""
    said = train.answers[np.argmax(test.places @ train.places.T, axis=1)]
    found = [np.mean(said[test.answers == answer] == answer) for answer in np.unique(test.answers)]
    return float(np.mean(found))


def drawn(task: Task, number: int, count: int, split: str) -> Problems:
    """Returns problems of a split, those of that number, as NumPy arrays."""
    draw = jax.jit(lambda key: task.draw(key, count, split))
    return jax.device_get(draw(jax.random.key(number)))


def measure(task: Task) -> dict[str, float]:
    """Measures both classifiers on the test that is a task's measure, and a constant answer.

    Accuracies are averaged over the answers that occur.
    """
    both = drawn(task, 0, TRAINED, TRAIN), drawn(task, 1, TESTED, task.measure)
    width = max(problems.tokens.shape[1] for problems in both)
    train, test = (questions(task, problems, width) for problems in both)
    return {
        "constant": 1 / len(np.unique(test.answers)),
        "counts": linear_probe((train.counts, train.answers), (test.counts, test.answers)),
        "nearest": nearest(train, test),
    }


def frequencies(task: Task) -> dict[str, list[float]]:
    """Returns by split how often each of the task's answers is right, of all that is asked, to 4 digits."""
    found = {}
    for number, split in enumerate((TRAIN, *task.tests)):
        targets = drawn(task, number, TRAINED, split).targets
        counts = np.bincount(targets[targets >= 0], minlength=task.classes)
        found[split] = (counts / counts.sum()).round(4).tolist()
    return found


def main() -> None:
    """Measures all tasks and writes them to `--out`."""
    out, found = Path(flags.FLAGS.out), {}
    out.parent.mkdir(parents=True, exist_ok=True)
    for name, task in TASKS.items():
        measured = measure(task)
        found[name] = {"test": task.measure, **measured, "answers": frequencies(task)}
        print(name, *(f"{key} {value:.3f}" for key, value in measured.items()))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(of_task)}" for name, of_task in found.items())
    with whole(out) as temporary:
        temporary.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    flags.DEFINE_string("out", None, "file for the accuracies", required=True)
    runtime.run_program(main)
