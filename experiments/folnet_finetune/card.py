"""The model card of a run's best model, as hubs show it."""

from collections.abc import Mapping
from typing import Any

import logic_zoo
from experiments.folnet_finetune.config import Config
from experiments.folnet_finetune.data import Data
from folnet import FOLNetForQuestionAnswering
from folnet.tasks import own


def written(config: Config, model: Any, data: Data, record: Mapping[str, float]) -> str:
    """Returns the card in Markdown, with the settings that hubs read at its start.

    Args:
        config: the run's, resolved.
        model: the flax module.
        data: the run's task and splits.
        record: the step and the metrics of the development splits, as in `measures.Best`.
    """
    spans = isinstance(model, FOLNetForQuestionAnswering)
    pipeline = "question-answering" if spans else "text-classification"
    name, task = type(model).__name__, data.task
    start = "from random parameters" if not config.checkpoint else f"from `{config.checkpoint}`"
    labels = ", ".join(f"`{label}`" for label in task.classes)
    files = dict(task.files) if isinstance(task, own.OwnTask) else {}
    rows = [
        f"| {split.name} | {split.rows:,} rows"
        + (f" of `{files[split.name].name}` |" if split.name in files else " |")
        for split in (data.train, *data.measured)
    ]
    settings = {"updates": config.steps, "batch": config.batch_size, "peak rate": config.lr}
    settings |= {"tokens of an example": config.tokens, "seed": config.seed}
    step, metrics = record["step"], {key: value for key, value in record.items() if key != "step"}
    lines = [
        "---",
        "library_name: transformers",
        f"pipeline_tag: {pipeline}",
        "tags: [folnet, jax, flax]",
        "---",
        "",
        f"# FOLNet fine-tuned on {'files of my own' if files else task.name}",
        "",
        f"`{name}` of [FOLNet](https://arxiv.org/abs/2302.09458), trained {start} by "
        f"`experiments.folnet_finetune` of logic-zoo {logic_zoo.__version__}; these are its best parameters, "
        f"after update {step:,}.",
        "",
        "```python",
        f"from folnet import {name}",
        "from folnet.tokenization import WordPieceTokenizer",
        "",
        f'model, params = {name}.from_pretrained("FOLDER")  # or "user/name" on a hub',
        'tokenizer = WordPieceTokenizer.from_pretrained("FOLDER")',
        "```",
        "",
        "```python",
        "from transformers import pipeline  # PyTorch",
        "",
        f'answer = pipeline("{pipeline}", model="FOLDER", trust_remote_code=True)',
        "```",
        "",
        *([f"Classes: {labels}.", ""] if labels else []),
        "| data | |",
        "|---|---|",
        *rows,
        "",
        "| training | |",
        "|---|---|",
        *(f"| {key} | {value:,} |" for key, value in settings.items()),
        "",
        "Measured on " + (" and ".join(split.name for split in data.dev) or "nothing") + ":",
        "",
        "| measure | |",
        "|---|---|",
        *(f"| {key} | {value:.4g} |" for key, value in metrics.items()),
        "",
        "Limitations, intended use and licence: to be written by who publishes it.",
    ]
    return "\n".join(lines) + "\n"
