"""Pretraining data: from documents to batches of masked examples, optionally with a task on two segments.

```python
from folnet import pretraining
from folnet.tokenization import WordPieceTokenizer

documents = pretraining.language_reference()  # or open_documents("wikipedia/20230601.en/1.0.0"), ...
tokenizer = WordPieceTokenizer.train((document.text for document in documents), vocab_size=4000)
text = pretraining.prepare(documents, tokenizer, length=128, held_out=0.15)

train = pretraining.PretrainingBatches(text.train, tokenizer, batch_size=32, objective="sop")
batch = train(0)  # the batch of any step
ahead = iter(train.dataset())  # or with Grain, prefetching
once = {"dynamic": False, "shuffle": False, "repeat": False}
test = pretraining.PretrainingBatches(text.held_out, tokenizer, batch_size=32, **once)
baseline = pretraining.unigram_entropy(pretraining.label_counts(train))  # nats; a model should be below
```

Text that does not fit into memory is prepared once by `python -m experiments.folnet_pretrain.data` and read
with `PreparedWindows`. The modules, from the bottom up: `documents` (documents, sentences, the held-out
part), `python`, `sources`, `records` and `tfds` (sources of documents), `windows` (runs of tokens), `files`
(windows on disk), `pairs` and `masks` (random choices), `batches`, `entropy`.
"""

from folnet.pretraining.batches import PretrainingBatch, PretrainingBatches
from folnet.pretraining.documents import Document, Documents, Listed, is_held_out, sentences, unwrap
from folnet.pretraining.entropy import label_counts, unigram_cross_entropy, unigram_entropy
from folnet.pretraining.files import Manifest, PreparedWindows, write_windows
from folnet.pretraining.masks import Masked, Masking, max_predictions
from folnet.pretraining.pairs import CUTS, NO_LABEL, OBJECTIVES, Cut, Objective
from folnet.pretraining.python import language_reference
from folnet.pretraining.sources import PYTHON, ArrayRecordTexts, TextFiles, open_documents
from folnet.pretraining.windows import (
    PACKINGS,
    MemoryWindows,
    Packing,
    Split,
    Window,
    Windows,
    make_windows,
    prepare,
)

__all__ = [
    "CUTS",
    "NO_LABEL",
    "OBJECTIVES",
    "PACKINGS",
    "PYTHON",
    "ArrayRecordTexts",
    "Cut",
    "Document",
    "Documents",
    "Listed",
    "Manifest",
    "Masked",
    "Masking",
    "MemoryWindows",
    "Objective",
    "Packing",
    "PreparedWindows",
    "PretrainingBatch",
    "PretrainingBatches",
    "Split",
    "TextFiles",
    "Window",
    "Windows",
    "is_held_out",
    "label_counts",
    "language_reference",
    "make_windows",
    "max_predictions",
    "open_documents",
    "prepare",
    "sentences",
    "unigram_cross_entropy",
    "unigram_entropy",
    "unwrap",
    "write_windows",
]
