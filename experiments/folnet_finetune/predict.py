r"""Answers for new texts from a fine-tuned model.

    python -m experiments.folnet_finetune.predict --run=runs/mine --data=new.jsonl --out=answers.jsonl

`--run` is the directory of a run on files of your own (`--data=... --validation=...`). Columns are those of
the run, or found like there; labels are optional, and with them the run's metrics are printed, too.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

from absl import flags

from experiments import runtime
from experiments.folnet_finetune.config import Config
from experiments.folnet_finetune.data import Data, Split
from experiments.folnet_finetune.measures import BEST, Measure, Measured, prediction_lines
from experiments.runtime import releasing
from folnet import FOLNetForSequenceClassification
from folnet.tasks import own
from folnet.tasks.files import write_whole
from folnet.tokenization import WordPieceTokenizer


def answers(run: Path, path: Path) -> tuple[own.OwnTask, Split, Measured]:
    """Reads a file, and answers its rows by the best model of a run.

    Raises:
        ValueError: the run is not of files of your own, has no best model, or the file is damaged.
    """
    config = releasing.read_run_config(Config, run)
    if config.task != own.NAME:
        raise ValueError(f"--run: got {run}, a run with task={config.task!r}, expected task={own.NAME!r}")
    table = own.read(path)
    columns = own.columns_of(table, config.own.first, config.own.second, config.own.label, labelled=False)
    model, params = FOLNetForSequenceClassification.from_pretrained(run / BEST)
    tokenizer = WordPieceTokenizer.from_pretrained(run / BEST)
    labels: dict[str, Any] = {"classes": model.config.labels, "metrics": ("accuracy",)}
    if not model.config.labels:
        labels = {"bounds": (-math.inf, math.inf), "metrics": ("pearson", "spearman")}
    task = own.OwnTask(
        name=own.NAME,
        splits=("test",),
        files=(("test", path),),
        columns=columns,
        max_length=config.tokens,
        download="",
        **labels,
    )
    examples = task.of_table(table, labelled=False)
    split = Split("test", examples, task.features(examples, tokenizer))
    data = Data(task, tokenizer, split, (), (split,))
    return task, split, Measure(config, model, data)(params, split)


def main() -> None:
    """Writes the answers to `--out`, and prints the metrics if there are labels."""
    out = Path(flags.FLAGS.out).expanduser()
    task, split, measured = answers(Path(flags.FLAGS.run), Path(flags.FLAGS.data).expanduser())
    write_whole(out, "".join(prediction_lines(task, split, measured)))
    sys.stdout.write(json.dumps({"rows": split.rows, **measured.metrics, "written": str(out)}) + "\n")


if __name__ == "__main__":
    flags.DEFINE_string("run", None, "the run's directory", required=True)
    flags.DEFINE_string("data", None, f"a file: {own.ENDINGS}", required=True)
    flags.DEFINE_string("out", "answers.jsonl", "the file to write")
    runtime.run_program(main, reports=(ValueError,))
