"""A higher-order cell with known parameters that computes g^k in a group without an error.

Its state is the one-hot vector of the product so far. The operator of g maps the vector of h to that of g h,
and the numeral k, which the tokens give, applies it k times.
"""

import numpy as np

from experiments.llrnn.config import Config
from experiments.llrnn.parts import CellConfig, TaskOptions
from llrnn import tasks

CONFIG = Config(
    task="group_powers",
    task_options=TaskOptions(
        group="S3", powers=4, operators=3, held_out=3, train_lengths=(1, 3), test_lengths=(2, 5)
    ),
    cell=CellConfig.of("higher_order", features=6, update="linear", coupling="given", max_power=3),
    eval_examples=12,
    final_examples=9,
)


def make_task() -> tasks.GroupPowers:
    """Returns the task of `CONFIG`."""
    task = CONFIG.make_task()
    assert isinstance(task, tasks.GroupPowers)
    return task


def params(confused=()):
    """Returns the parameters; the classes in `confused` are answered by the class after them."""
    task = make_task()
    table = task.elements.table
    operators = np.zeros((3, 6, 6), np.float32)
    for number, g in enumerate(task.operator_elements):
        operators[number, table[g], np.arange(6)] = 1
    shown = [(c + 1) % 6 if c in confused else c for c in range(6)]
    kernel = np.eye(6, dtype=np.float32)[shown]
    return {"cell": {"operators": operators}, "outputs": {"kernel": kernel, "bias": np.zeros(6, np.float32)}}


def products(tokens):
    """Returns the product so far at each step of the tokens [B, T, 2], by moving points."""
    task = make_task()
    permutations = [tuple(p) for p in task.elements.permutations.tolist()]
    result = np.zeros(tokens.shape[:2], int)
    for row, word in enumerate(np.asarray(tokens).tolist()):
        points = (0, 1, 2)
        for step, (k, g) in enumerate(word):
            for _ in range(k):
                points = tuple(permutations[task.operator_elements[g]][point] for point in points)
            result[row, step] = permutations.index(points)
    return result
