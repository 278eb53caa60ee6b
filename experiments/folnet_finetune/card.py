"""The model card of a run's best model, as hubs show it."""

from collections.abc import Mapping
from typing import Any

import logic_zoo
from experiments.folnet_finetune import kinds
from experiments.folnet_finetune.config import Config
from experiments.folnet_finetune.data import Data
from experiments.folnet_pretrain import cards
from folnet.tasks import own


def written(config: Config, model: Any, data: Data, record: Mapping[str, float]) -> str:
    """Returns the card in Markdown, with the settings that hubs read at its start.

    Args:
        config: the run's, resolved.
        model: the flax module.
        data: the run's task and splits.
        record: the step and the metrics of the development splits, as in `measures.Best`.
    """
    start = "from random parameters" if not config.checkpoint else f"from `{config.checkpoint}`"
    task, labels = data.task, ", ".join(f"`{label}`" for label in data.task.classes)
    files = dict(task.files) if isinstance(task, own.OwnTask) else {}
    of_file = {name: f" of `{getattr(path, 'name', path)}`" for name, path in files.items()}
    rows = {s.name: f"{s.rows:,} rows{of_file.get(s.name, '')}" for s in (data.train, *data.measured)}
    settings = {"updates": config.steps, "batch": config.batch_size, "peak rate": config.lr}
    settings |= {"tokens of an example": config.tokens, "seed": config.seed}
    measured = " and ".join(split.name for split in data.dev) or "nothing"
    return cards.written(
        model,
        kinds.of(task).pipeline,
        f"FOLNet fine-tuned on {'data of my own' if files else task.name}",
        f"trained {start} by `experiments.folnet_finetune` of logic-zoo {logic_zoo.__version__}; these are "
        f"its best parameters, after update {record['step']:,}.",
        {
            "data": rows,
            "training": {key: f"{value:,}" for key, value in settings.items()},
            f"Measured on {measured}:": {k: f"{v:.4g}" for k, v in record.items() if k != "step"},
        },
        [f"Classes: {labels}."] if labels else [],
    )
