r"""Zero-shot GLUE (Chen 2023, Appendix C, Table 10): classes as words predicted for a mask.

    python -m experiments.folnet_finetune.zero_shot --checkpoint=models/folnet --data_dir=data \
        --tasks=sst2,rte --out=runs/zero-shot

A pretrained model fills in the mask of a prompt such as "... It was [MASK].", and the class with the most
likely word is the answer; prompts and words are those of Gao et al. (2021), `folnet.tasks.prompts`. The
program evaluates development splits and writes `zero_shot.json`, `zero_shot.md` and predictions. The paper
reports an average of 51.5 for Large (160 GB); we have not measured it.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import app, flags
from jaxtyping import Float

from experiments import runtime
from experiments.folnet_finetune import data
from experiments.folnet_pretrain import vocabularies
from experiments.runtime.workdir import write_json
from folnet import FOLNetForMaskedLM, tasks
from folnet.tasks import metrics as task_metrics
from folnet.tasks import prompts
from folnet.tokenization import WordPieceTokenizer
from logic_zoo.writing import write_whole


class Column(NamedTuple):
    """A column of Table 10: a task's score on its development split."""

    name: str
    metric: str
    score: float
    """The value of `metric`, as a fraction."""
    constant: float
    """The score of always answering the most frequent class of the split (0 for a correlation)."""
    metrics: dict[str, float]
    """All metrics of the task."""
    examples: int


@dataclasses.dataclass(frozen=True)
class Reader:
    """A model with a masked-language-modeling head that reads prompts of `length` tokens in batches.

    As in the released model, tokens attend to padding unless `mask_padding` is set.
    """

    model: FOLNetForMaskedLM
    params: Any
    tokenizer: WordPieceTokenizer
    length: int = 128
    batch_size: int = 64
    mask_padding: bool = False

    @functools.cached_property
    def _read(self) -> Callable[[Any, Any], jax.Array]:
        """A compiled function from parameters and a batch to the logits of all words at the mask [B, V]."""

        def read(params, batch):
            out: Any = self.model.apply(
                {"params": params},
                batch["input_ids"],
                batch["token_type_ids"],
                batch.get("attention_mask"),
                mlm_positions=batch["mask_position"],
            )
            return out.logits[:, 0]

        return jax.jit(read)

    def logits(self, prompt: tasks.Prompt, examples: Sequence[tasks.Example]) -> Float[np.ndarray, "N C"]:
        """Returns the logits of the prompt's words at the mask, for each example.

        Raises:
            ValueError: a word is not a single piece of the vocabulary, or T is too small for the template.
        """
        words = prompts.label_ids(prompt, self.tokenizer)
        features = prompts.prompt_features(prompt, examples, self.tokenizer, self.length)
        table = features._asdict() | {"mask_position": features.mask_position[:, None]}
        if not self.mask_padding:
            del table["attention_mask"]

        found = []
        for start in range(0, len(examples), self.batch_size):
            rows = np.arange(start, min(start + self.batch_size, len(examples)))
            batch = data.take(table, rows, self.batch_size, self.length)
            at_mask = jax.device_get(self._read(self.params, batch))
            found.append(prompts.class_logits(at_mask[: len(rows)], words))
        return np.concatenate(found)


def measure(
    reader: Reader,
    data_dir: str | os.PathLike[str],
    names: Sequence[str],
    out: Path | None = None,
) -> list[Column]:
    """Evaluates the model on the development splits of GLUE tasks.

    Args:
        reader: the model.
        data_dir: directory with GLUE's files.
        names: names of the tasks.
        out: directory for predictions; None writes none.

    Returns:
        The tasks' columns of Table 10, in its order.

    Raises:
        ValueError: files are missing or damaged.
    """
    found = []
    for name, (task_name, split) in tasks.COLUMNS.items():
        if task_name not in names:
            continue
        task, prompt = tasks.SEQUENCE_TASKS[task_name], tasks.PROMPTS[task_name]
        examples = task.examples(data_dir, split)
        predictions = prompts.predict(task, reader.logits(prompt, examples))
        scores, metric = task.score(examples, predictions), tasks.ZERO_SHOT[name]
        frequent = int(np.argmax(np.bincount(task.labels(examples)))) if task.classes else 0
        constant = task.score(examples, np.full_like(predictions, frequent))[metric]
        found.append(Column(name, metric, scores[metric], constant, scores, len(examples)))
        if out is not None:
            task.write_predictions(out / "predictions", split, examples, predictions)
    return found


def average(columns: Sequence[Column]) -> float | None:
    """Returns the average of Table 10, or None if a column is missing."""
    scores = {column.name: column.score for column in columns}
    return tasks.zero_shot_average(scores) if set(scores) == set(tasks.COLUMNS) else None


def missing(checkpoint: Path, vocabulary: Path, data_dir: Path, names: Iterable[str]) -> list[str]:
    """Returns a message for each missing file or library and how to get it; reads no file's contents."""
    found = []
    for name in names:
        task = tasks.SEQUENCE_TASKS[name]
        try:
            task.check(data_dir, [split for split in task.splits if split.startswith("validation")])
        except ValueError as error:
            found.append(f"--data_dir: {error}")
    if not checkpoint.is_dir():
        found.append(f"--checkpoint: got {checkpoint}, expected a directory. {data.how_to_make(checkpoint)}")
    elif not vocabulary.is_file():
        found.append(f"--vocabulary: got {vocabulary}, expected a file")
    try:
        task_metrics.require(list(tasks.ZERO_SHOT.values()))
    except ImportError as error:
        found.append(str(error))
    return found


def markdown(checkpoint: str, columns: Sequence[Column]) -> str:
    """Returns the table as Markdown, in percent."""
    mean = average(columns)
    ends = [("average", "", mean)] if mean is not None else []
    head = ["", *(column.name for column in columns), *(end[0] for end in ends)]
    metrics = ["metric", *(column.metric for column in columns), *(end[1] for end in ends)]
    rows: list[tuple[str, list[float]]] = [
        (checkpoint, [column.score for column in columns] + [end[2] for end in ends]),
        ("most frequent class", [column.constant for column in columns]),
    ]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head), f"| {' | '.join(metrics)} |"]
    for name, values in rows:
        cells = [f"{100 * value:.1f}" for value in values]
        cells += [""] * (len(head) - 1 - len(cells))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def run(values: Mapping[str, Any]) -> str:
    """Evaluates the tasks given by the flags' values, writes the results and returns the table.

    Raises:
        ValueError: a file is missing, damaged or does not match; this is raised before anything is compiled.
    """
    names = values["tasks"] or list(tasks.PROMPTS)
    if unknown := [name for name in names if name not in tasks.PROMPTS]:
        known = ", ".join(map(repr, tasks.PROMPTS))
        raise ValueError(f"--tasks: got {unknown[0]!r}, expected some of {known}")
    checkpoint, data_dir = (Path(values[name]).expanduser() for name in ("checkpoint", "data_dir"))
    vocabulary = Path(values["vocabulary"] or checkpoint / data.VOCABULARY).expanduser()
    if lacking := missing(checkpoint, vocabulary, data_dir, names):
        raise ValueError("; ".join(lacking))
    tokenizer = WordPieceTokenizer.load(vocabulary, lowercase=values["lowercase"])
    model, params = FOLNetForMaskedLM.from_pretrained(checkpoint, dtype=values["dtype"])
    vocabularies.check_rows(tokenizer, model.config.vocab_size)
    for name in names:
        prompts.label_ids(tasks.PROMPTS[name], tokenizer)
    reader = Reader(model, params, tokenizer, values["length"], values["batch_size"], values["mask_padding"])
    out = Path(values["out"])
    columns = measure(reader, data_dir, names, out)
    described = {
        "checkpoint": str(checkpoint),
        "vocabulary": tokenizer.fingerprint,
        "average": average(columns),
        "columns": {column.name: column._asdict() for column in columns},
        "settings": {name: values[name] for name in ("length", "mask_padding", "lowercase", "dtype")},
    }
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "zero_shot.json", described)
    table = markdown(str(checkpoint), columns)
    write_whole(out / "zero_shot.md", table)
    return table


def main() -> None:
    """Prints the table; reports a user error as a usage error in one line."""
    try:
        print(run(flags.FLAGS.flag_values_dict()), end="")
    except ValueError as error:
        raise app.UsageError(" ".join(str(error).split())) from error


if __name__ == "__main__":
    flags.DEFINE_string("checkpoint", None, "directory of a masked language model", required=True)
    flags.DEFINE_string("data_dir", None, "directory with GLUE's files", required=True)
    flags.DEFINE_string("out", None, "output directory of tables and predictions", required=True)
    flags.DEFINE_string("vocabulary", "", "vocabulary file; by default vocab.txt in the checkpoint")
    flags.DEFINE_list("tasks", [], "GLUE tasks; by default all eight")
    flags.DEFINE_integer("length", 128, "tokens per prompt", lower_bound=16)
    flags.DEFINE_integer("batch_size", 64, "prompts per batch", lower_bound=1)
    flags.DEFINE_bool("mask_padding", False, "mask padding; the released model does not")
    flags.DEFINE_bool("lowercase", True, "lowercase the text")
    flags.DEFINE_string("dtype", "float32", "dtype of the computation")
    runtime.run_program(main)
