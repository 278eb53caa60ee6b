"""The Mathematics Dataset (Saxton et al. 2019): questions from three sources, and their batches.

```python
from tp_transformer import mathematics

# Three sources: drawn in memory; written to files once, by all cores; prepared by others.
small = mathematics.Generator(train=3000, test=200, names=("numbers__gcd",), extrapolation=())
large = mathematics.generate("data/generated", mathematics.Generator(train=1_999_998, test=10_000))
other = mathematics.open_source("data/mathematics_dataset-v1.0")

train = mathematics.Batches(small, "train", batch_size=64)
batch = train[0]  # the batch of any step
ahead = iter(train.dataset())  # the same batches from Grain, prepared in advance
test = mathematics.Batches(small, "interpolate", batch_size=64, shuffle=False, keep_last=True)
```

Files in reading order: `vocabulary` (characters), `modules` (names), `repairs` (patches to the generator),
`questions` (draws by seed), `parts` and `generation` (large sets), `text` and `tfds` (files), `sources`,
`order` (assignment of questions to batches), `batches`.
"""

from tp_transformer.mathematics.batches import Batch, Batches
from tp_transformer.mathematics.generation import generate
from tp_transformer.mathematics.modules import (
    EXTRAPOLATE,
    EXTRAPOLATION_MODULES,
    INTERPOLATE,
    LEVELS,
    MODULES,
    SPLITS,
    TRAIN,
    Split,
    check_modules,
    modules_of,
)
from tp_transformer.mathematics.order import BUCKETS, WHOLE, BatchOrder
from tp_transformer.mathematics.questions import Question, Questions, draw
from tp_transformer.mathematics.repairs import import_generator
from tp_transformer.mathematics.sources import (
    Generator,
    Source,
    TextDirectory,
    TFDSDirectory,
    copy_to_text,
    open_source,
)
from tp_transformer.mathematics.text import TextQuestions, write_questions
from tp_transformer.mathematics.vocabulary import (
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
    "Split",
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
