"""The tasks of the paper's evaluation: GLUE, SQuAD 2.0, FOLIO, CLUTRR (Section 4, Appendices B and C).

    task = tasks.TASKS["rte"]
    task.check("data", ["train", "validation"])     # reports missing files and how to get them
    train = task.examples("data", "train")
    features = task.features(train, tokenizer)       # arrays of fixed shape, T as in Table 9

Each task reads its data set's own files from a directory or, where TensorFlow Datasets provides it (GLUE,
SQuAD 2.0), a prepared copy. Nothing is downloaded; `task.download` gives the commands.

`interface` is common to all tasks; `glue`, `folio`, `clutrr` and `squad` read the files; `metrics` and
`squad_metrics` compute scores; `prompts` evaluates a language model without training.
"""

from collections.abc import Mapping
from typing import Any

from folnet.tasks.clutrr import CLUTRR, ClutrrTask
from folnet.tasks.folio import FOLIO, FolioTask
from folnet.tasks.glue import COLUMNS, GLUE, SMALL, GlueTask
from folnet.tasks.interface import NO_LABEL, Example, Examples, Features, SequenceTask, Task
from folnet.tasks.metrics import FINE_TUNED, ZERO_SHOT, glue_average, median_over_seeds, zero_shot_average
from folnet.tasks.prompts import PROMPTS, Prompt, PromptFeatures, prompt_features
from folnet.tasks.squad import SQUAD, SquadTask
from folnet.tasks.squad_answers import Answer, Candidate
from folnet.tasks.squad_features import SpanFeatures
from folnet.tasks.squad_questions import Gold, Question

SEQUENCE_TASKS: Mapping[str, SequenceTask] = {task.name: task for task in (*GLUE, FOLIO, *CLUTRR)}
"""Tasks that classify one or two texts or predict a number for them, by name."""

TASKS: Mapping[str, Task[Any, Any]] = {**SEQUENCE_TASKS, SQUAD.name: SQUAD}
"""All tasks, by name."""

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
    """Returns a task by its name; raises ValueError listing the names if there is no such task."""
    if name not in TASKS:
        raise ValueError(f"task: got {name!r}, expected one of {', '.join(map(repr, TASKS))}")
    return TASKS[name]
