"""The tasks of the paper's evaluation: GLUE, SQuAD 2.0, FOLIO, CLUTRR (Section 4, Appendices B and C).

    task = tasks.TASKS["rte"]
    task.check("data", ["train", "validation"])     # what is missing and how to get it
    train = task.examples("data", "train")
    features = task.features(train, tokenizer)       # arrays of fixed shape, T as in Table 9

Each reads its data set's own files from a directory and, where TensorFlow Datasets has it (GLUE, SQuAD 2.0),
a prepared copy. Nothing is downloaded; `task.download` says how.

`task_interface` is what they share, `task_glue`, `task_folio`, `task_clutrr` and `task_squad` read the files,
`task_metrics` and `task_squad_metrics` score, `task_prompts` asks a language model without any training.
"""

from collections.abc import Mapping
from typing import Any

from folnet.task_clutrr import CLUTRR, ClutrrTask
from folnet.task_folio import FOLIO, FolioTask
from folnet.task_glue import COLUMNS, GLUE, SMALL, GlueTask
from folnet.task_interface import NO_LABEL, Example, Examples, Features, SequenceTask, Task
from folnet.task_metrics import FINE_TUNED, ZERO_SHOT, glue_average, median_over_seeds, zero_shot_average
from folnet.task_prompts import PROMPTS, Prompt, PromptFeatures, prompt_features
from folnet.task_squad import SQUAD, SquadTask
from folnet.task_squad_answers import Answer, Candidate
from folnet.task_squad_features import SpanFeatures
from folnet.task_squad_questions import Gold, Question

SEQUENCE_TASKS: Mapping[str, SequenceTask] = {task.name: task for task in (*GLUE, FOLIO, *CLUTRR)}
"""Those that put one or two texts into a class or give them a number, by name."""

TASKS: Mapping[str, Task[Any, Any]] = {**SEQUENCE_TASKS, SQUAD.name: SQUAD}
"""All of them, by name."""

__all__ = [
    "CLUTRR",
    "COLUMNS",
    "FINE_TUNED",
    "FOLIO",
    "GLUE",
    "NO_LABEL",
    "PROMPTS",
    "SEQUENCE_TASKS",
    "SMALL",
    "SQUAD",
    "TASKS",
    "ZERO_SHOT",
    "Answer",
    "Candidate",
    "ClutrrTask",
    "Example",
    "Examples",
    "Features",
    "FolioTask",
    "GlueTask",
    "Gold",
    "Prompt",
    "PromptFeatures",
    "Question",
    "SequenceTask",
    "SpanFeatures",
    "SquadTask",
    "Task",
    "glue_average",
    "median_over_seeds",
    "open_task",
    "prompt_features",
    "zero_shot_average",
]


def open_task(name: str) -> Task[Any, Any]:
    """A task by its name.

    Raises:
        ValueError: there is no such task; which there are.
    """
    if name not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, got {name!r}")
    return TASKS[name]
