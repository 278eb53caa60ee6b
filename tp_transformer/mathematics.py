"""The Mathematics Dataset (Saxton et al. 2019): questions from three sources, and their batches.

>>> from tp_transformer import mathematics
>>> chosen = mathematics.Generator(train=3000, test=200, names=("arithmetic__add_or_sub",), extrapolation=())
>>> train = mathematics.Batches(chosen, "train", batch_size=64)  # doctest: +SKIP
>>> batch = train[0]  # any step, at once  # doctest: +SKIP
>>> iterator = iter(train.dataset())  # or with Grain, working ahead  # doctest: +SKIP

For more than some ten thousand questions `generate(directory, chosen)` writes the same set to text files,
with all cores. `open_source(directory)` opens these, the published v1.0, or a prepared `math_dataset` of
TensorFlow Datasets.
"""

from tp_transformer.mathematics_batches import Batch, Batches
from tp_transformer.mathematics_generation import generate
from tp_transformer.mathematics_modules import (
    EXTRAPOLATE,
    EXTRAPOLATION_MODULES,
    INTERPOLATE,
    LEVELS,
    MODULES,
    SPLITS,
    TRAIN,
    check_modules,
    modules_of,
)
from tp_transformer.mathematics_order import BUCKETS, WHOLE, BatchOrder
from tp_transformer.mathematics_questions import Question, Questions, draw
from tp_transformer.mathematics_repairs import import_generator
from tp_transformer.mathematics_sources import (
    Generator,
    Source,
    TextDirectory,
    TFDSDirectory,
    copy_to_text,
    open_source,
)
from tp_transformer.mathematics_text import TextQuestions, write_questions
from tp_transformer.mathematics_vocabulary import (
    CHARACTERS,
    DEFAULT,
    END,
    MAX_ANSWER,
    MAX_QUESTION,
    PAD,
    START,
    Vocabulary,
)

__all__ = [
    "BUCKETS",
    "CHARACTERS",
    "DEFAULT",
    "END",
    "EXTRAPOLATE",
    "EXTRAPOLATION_MODULES",
    "INTERPOLATE",
    "LEVELS",
    "MAX_ANSWER",
    "MAX_QUESTION",
    "MODULES",
    "PAD",
    "SPLITS",
    "START",
    "TRAIN",
    "WHOLE",
    "Batch",
    "BatchOrder",
    "Batches",
    "Generator",
    "Question",
    "Questions",
    "Source",
    "TFDSDirectory",
    "TextDirectory",
    "TextQuestions",
    "Vocabulary",
    "check_modules",
    "copy_to_text",
    "draw",
    "generate",
    "import_generator",
    "modules_of",
    "open_source",
    "write_questions",
]
