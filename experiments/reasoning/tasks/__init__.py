"""The tasks of the suite. To add one, write a file with `TASKS` and list it here."""

import importlib

from experiments.reasoning.tasks.base import TRAIN, Kind, Problems, Task

__all__ = ["FILES", "TASKS", "TRAIN", "Kind", "Problems", "Task"]

FILES = ("match3", "paths", "compositions", "kinship", "rcc8", "words")
"""The files of this folder, each with a tuple `TASKS`."""

TASKS: dict[str, Task] = {
    task.name: task for file in FILES for task in importlib.import_module(f"{__name__}.{file}").TASKS
}
