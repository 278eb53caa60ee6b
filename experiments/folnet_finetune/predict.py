r"""Answers for new texts from a fine-tuned model.

    python -m experiments.folnet_finetune.predict --run=runs/mine --data=new.jsonl --out=answers.jsonl

`--run` is the directory of a run on data of your own (`--data=... --validation=...`). Columns are those of
the run, or found like there; labels are optional, and with them the run's metrics are printed, too. Of spans,
an answer is the best one unless no answer beats it by more than the run's best threshold on `--validation`.
"""

import json
import sys
from pathlib import Path

from absl import flags

from experiments import runtime
from experiments.folnet_finetune import kinds
from experiments.folnet_finetune.config import Config
from experiments.folnet_finetune.data import Data, with_windows
from experiments.folnet_finetune.kinds import Measured, Split
from experiments.folnet_finetune.measures import BEST, Best, Measure
from experiments.runtime import releasing
from folnet import pretrained
from folnet.tasks import own, tables
from folnet.tokenization import WordPieceTokenizer
from logic_zoo.writing import write_whole


def answers(run: Path, name: str) -> tuple[kinds.Kind, Split, Measured]:
    """Answers the rows of a file or data set by the best model of a run.

    Raises:
        ValueError: the run is not of data of your own, has no best model, or the file is damaged.
    """
    config = releasing.read_run_config(Config, run)
    if config.task != own.NAME:
        raise ValueError(f"--run: got {run}, a run with task={config.task!r}, expected task={own.NAME!r}")
    _, head = pretrained.read_config(run / BEST)
    kind = next(kind for kind in kinds.KINDS.values() if kind.head.__name__ == head)
    model, params = kind.head.from_pretrained(run / BEST)
    tokenizer = WordPieceTokenizer.from_pretrained(run / BEST)
    columns = {name: getattr(config.own, name) for name in ("first", "second", "label")}
    source = tables.source(name, "test", config.data_dir)
    labels, count = model.config.labels, model.config.num_labels
    if not labels and count > 1:  # names of classes that are left out of the settings, being the default ones
        labels = tuple(f"LABEL_{number}" for number in range(count))
    task = with_windows(own.reopened(source, kind.of_own, labels, **columns), config)
    examples = task.examples(".", "test")
    split = Split(
        "test", examples, task.features(examples, tokenizer, config.tokens), task.labelled(examples)
    )
    data = Data(task, tokenizer, split, (), (split,))
    threshold = (Best(run / BEST, model, data).record or {}).get(kinds.THRESHOLD)
    return kinds.of(task), split, Measure(config, model, data)(params, split, threshold=threshold)


def main() -> None:
    """Writes the answers to `--out`, and prints the metrics if there are labels."""
    out = Path(flags.FLAGS.out).expanduser()
    kind, split, measured = answers(Path(flags.FLAGS.run), flags.FLAGS.data)
    write_whole(out, "".join(kind.lines(split, measured)))
    sys.stdout.write(json.dumps({"rows": split.rows, **measured.metrics, "written": str(out)}) + "\n")


if __name__ == "__main__":
    flags.DEFINE_string("run", None, "the run's directory", required=True)
    flags.DEFINE_string("data", None, f"a file, {own.ENDINGS}, or a data set", required=True)
    flags.DEFINE_string("out", "answers.jsonl", "the file to write")
    runtime.run_program(main, reports=(ValueError,))
