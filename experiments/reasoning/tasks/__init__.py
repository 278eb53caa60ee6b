"""The tasks of the suite. To add one, write a file with a subclass of `Task` and list it here."""

from experiments.reasoning.tasks.base import TRAIN, Kind, Problems, Task
from experiments.reasoning.tasks.compositions import Composition, Quotient
from experiments.reasoning.tasks.kinship import Kinship
from experiments.reasoning.tasks.match3 import Match3
from experiments.reasoning.tasks.paths import Paths
from experiments.reasoning.tasks.rcc8 import RCC8
from experiments.reasoning.tasks.words import ModularArithmetic, Words

__all__ = ["TASKS", "TRAIN", "Kind", "Problems", "Task"]

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        *(Match3(), Composition(), Quotient(), Paths(), Kinship(), RCC8()),
        *(Words(), ModularArithmetic()),
    )
}
