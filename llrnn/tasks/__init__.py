"""Sequence tasks: the authors' own, group tasks, and the usual length-generalisation tasks.

`make(name)` returns a task, `task.sample(key, batch_size, length)` a batch, `task.encode(batch.tokens)` the
inputs of a network, and `error_per_symbol(logits, batch)` counts its errors. `NAMES` lists the tasks. To add
one, subclass `Task` in one of the modules or a new one, and list it in the module's `TASKS`.
"""

import dataclasses
from typing import Any

from llrnn.tasks import binary, chomsky, expressions, groups, patterns
from llrnn.tasks.base import Batch, Task, accuracy, error_per_symbol
from llrnn.tasks.binary import BinaryAddition, BinaryMultiplication, ComputeSqrt
from llrnn.tasks.chomsky import (
    SCORED_LENGTHS,
    BucketSort,
    CycleNavigation,
    DuplicateString,
    EvenPairs,
    MissingDuplicateString,
    OddsFirst,
    Parity,
    ReverseString,
    StackManipulation,
    StringTask,
    deletang_score,
)
from llrnn.tasks.expressions import ModularArithmetic, ModularArithmeticBrackets, SolveEquation
from llrnn.tasks.groups import GroupPowers, GroupTask, NestedPowers, ProgramTask, WordProblem
from llrnn.tasks.patterns import (
    ListedPatternTask,
    MultiplePatternTask,
    PatternTask,
    RandomPatternTask,
    TapeTask,
    VariablePatternTask,
)
from llrnn.tasks.permutations import Group, group

_BY_NAME = {
    task.name: task
    for task in (*patterns.TASKS, *groups.TASKS, *chomsky.TASKS, *expressions.TASKS, *binary.TASKS)
}

NAMES: tuple[str, ...] = tuple(_BY_NAME)


def make(name: str, /, **options: Any) -> Task:
    """Returns the task `name`, one of `NAMES`, with some attributes changed; its class documents them.

    For example `make("word_problem", group="A5")` or `make("group_powers", powers=4, operators=8)`.

    Raises:
      ValueError: the name or an option is unknown, or an option has a value that the task does not allow.
    """
    if name not in _BY_NAME:
        raise ValueError(f"name: got {name!r}, expected one of {', '.join(map(repr, NAMES))}")
    task = _BY_NAME[name]
    known = [field.name for field in dataclasses.fields(task) if field.name != "name"]
    for option in options:
        if option not in known:
            raise ValueError(
                f"options of {name}: got {option!r}, expected one of {', '.join(map(repr, known))}"
            )
    return dataclasses.replace(task, **options)


__all__ = [
    "NAMES",
    "SCORED_LENGTHS",
    "Batch",
    "BinaryAddition",
    "BinaryMultiplication",
    "BucketSort",
    "ComputeSqrt",
    "CycleNavigation",
    "DuplicateString",
    "EvenPairs",
    "Group",
    "GroupPowers",
    "GroupTask",
    "ListedPatternTask",
    "MissingDuplicateString",
    "ModularArithmetic",
    "ModularArithmeticBrackets",
    "MultiplePatternTask",
    "NestedPowers",
    "OddsFirst",
    "Parity",
    "PatternTask",
    "ProgramTask",
    "RandomPatternTask",
    "ReverseString",
    "SolveEquation",
    "StackManipulation",
    "StringTask",
    "TapeTask",
    "Task",
    "VariablePatternTask",
    "WordProblem",
    "accuracy",
    "deletang_score",
    "error_per_symbol",
    "group",
    "make",
]
