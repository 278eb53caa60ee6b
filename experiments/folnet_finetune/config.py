"""The fine-tuning config and its presets, one per task (see `preset`)."""

import dataclasses
import functools
import itertools
import math
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, get_args

import optax

from experiments import runtime
from experiments.folnet_finetune import optimizer
from experiments.folnet_finetune.grid import (
    NO_SWEEP,
    SWEEP_16GB,
    SWEEP_160GB,
    TABLE_9,
    GridConfig,
    Setting,
    Sweep,
    column,
)
from experiments.folnet_pretrain.parts import ModelConfig, small
from folnet import tasks
from folnet.tasks import own, tables
from folnet.tasks.squad_features import QUERY_LENGTH, STRIDE

KEEP_CHOSEN: Final = "chosen"
KEEP_ALL: Final = "all"
OF_ANY_MODEL = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dtype", "remat")
"""The fields of `model` that may be set for a checkpoint, too."""


@dataclasses.dataclass
class OwnConfig:
    """Data of your own, with task="own"; see `folnet.tasks.own`.

    Attributes:
        train, validation, test: the file of each split, or `tfds:NAME:SPLIT` or `datasets:NAME:SPLIT`, see
            `folnet.tasks.tables`; a test split is optional.
        first: column of the texts, of the first texts of pairs, of words, or of questions; "" finds it.
        second: column of the second texts of pairs, of contexts, or of choices.
        label: column of the labels, tags, answers or right choices; "" finds it.
        kind: what labels are: "class" or "number" of texts, classes of "words", "spans" of a context, or
            "choices"; "" finds it, and takes numbers that are not all integers as numbers.
        windows: whether texts that are longer than `length` are read in several windows, `stride` apart,
            instead of truncated; words and contexts always are. The model's answer to a text is that of the
            mean of the logits of its windows.
        balanced: whether all classes count alike in the loss, however many examples they have: an example
            is weighted by 1 / (classes * examples of its class), times all examples.
    """

    train: str = runtime.added("")
    validation: str = runtime.added("")
    test: str = runtime.added("")
    first: str = runtime.added("")
    second: str = runtime.added("")
    label: str = runtime.added("")
    kind: str = runtime.added("")
    windows: bool = runtime.added(False)
    balanced: bool = runtime.added(False)

    def files(self, directory: str = "") -> dict[str, own.Source]:
        """Returns where each split is that is named; `directory` has the data sets prepared by TFDS.

        Raises:
            ValueError: a data set has no name.
        """
        found = {}
        for split in own.SPLITS:
            if name := getattr(self, split):
                try:
                    found[split] = tables.source(name, split, directory)
                except ValueError as error:
                    raise ValueError(f"own.{split}: {error}") from error
        return found

    def open(self, directory: str = "") -> own.OwnTask[Any, Any]:
        """Returns the task; its training split is read once, until its file changes.

        Raises:
            ValueError: see `files` and `own.open_own`.
        """
        files = self.files(directory)
        changed = tuple(
            path.stat().st_mtime_ns if isinstance(path, Path) and path.is_file() else 0
            for path in files.values()
        )
        return _open_own(tuple(files.items()), self.first, self.second, self.label, self.kind, changed)


@functools.lru_cache(maxsize=4)
def _open_own(files: Any, first: str, second: str, label: str, kind: Any, _: Any) -> own.OwnTask[Any, Any]:
    return own.open_own(dict(files), first=first, second=second, label=label, kind=kind)


@dataclasses.dataclass
class Config(runtime.RunConfig):
    """The task, the initial model and the training settings; defaults are shared by all of Table 9.

    Attributes:
        task: one of `folnet.tasks.TASKS`, or "own".
        data_dir: directory with the task's files; with task="own", of data sets prepared by TFDS.
        own: with task="own", the data to learn from.
        checkpoint: directory with config.json and model.safetensors, which `from_pretrained` reads; "" starts
            from random parameters with the sizes in `model`.
        vocabulary: vocabulary file; "" means vocab.txt in `checkpoint`.
        new_vocabulary: from scratch, the maximum size of a vocabulary that is learned from the training
            split instead; 0 learns none.
        lowercase: whether the text is lowercased, as for FOLNet.
        model: the model to train from scratch; with a checkpoint, only dropout, dtype and remat apply.
        epochs: passes over the training split.
        steps: number of updates; 0 means the number in `epochs`.
        batch_size: examples per update (for SQuAD, windows). The last batch of an epoch may have fewer.
        lr: peak learning rate of Adam; the rate increases to it and then decreases to 0, both linearly.
        warmup: fraction of the steps over which the rate increases.
        b1, b2, eps, bias_correction, weight_decay, clip: arguments of `optimizer.adam`; defaults as released.
        length: tokens per example, T; 0 means the task's length in Table 9.
        stride: for SQuAD and for data of your own, tokens from the start of one window to the start of the
            next, at most half a window with the latter.
        query_length: likewise, maximum number of tokens in a question, or in the first text of a pair that is
            read in windows; at most a third of a window with data of your own.
        released_text: for CLUTRR, whether story and query are used as they are in the files, like the
            released program does; otherwise brackets are removed and the query becomes a question in words.
        mask_padding: whether tokens ignore padding; in the released model they do not.
        lengths: shorter lengths, such as (32, 64). Each batch is padded only to the shortest length that fits
            its longest example, and examples of similar length share batches. Needs `mask_padding`, since
            otherwise an example's output would depend on its batch.
        eval_batch_size: batch size of evaluations.
        eval_every: steps between evaluations; 0 evaluates at the end of each epoch.
        checkpoint_every: steps between checkpoints; 0 saves one at each evaluation.
        patience: number of evaluations in a row that are no better than the best one, after which the run
            ends; 0 always makes all steps.
        log_every: maximum number of steps between records; the largest number up to this that divides the
            steps between evaluations and between checkpoints is used.
        predict: whether to write the best model's predictions for all available splits at the end.
        seeds: number of runs, with the seeds `seed`, `seed` + 1, ...; their median is reported.
        sweep: "16gb" or "160gb" tries Table 9's values for models pretrained on that much text, or "none".
        grid: values to try in a sweep instead of Table 9's.
        keep: with several runs, "all" keeps everything (about 4 GB per run for FOLNet Base); "chosen" removes
            the checkpoints of finished runs, and their best models once another setting is better. Records,
            results and predictions are kept, and no run is repeated.
    """

    experiment: ClassVar[str] = "folnet_finetune"
    size_fields: ClassVar[tuple[str, ...]] = ("task", "model", "length", "lengths", "mask_padding")

    task: str = "rte"
    data_dir: str = ""
    own: OwnConfig = dataclasses.field(default_factory=OwnConfig)
    checkpoint: str = ""
    vocabulary: str = ""
    new_vocabulary: int = runtime.added(0)
    lowercase: bool = True
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    epochs: int = 10
    steps: int = 0
    batch_size: int = 16
    lr: float = 8e-5
    warmup: float = 0.06
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-6
    bias_correction: bool = False
    weight_decay: float = 0.01
    clip: float = 0.0
    length: int = 0
    stride: int = STRIDE
    query_length: int = QUERY_LENGTH
    released_text: bool = True
    mask_padding: bool = False
    lengths: tuple[int, ...] = ()
    eval_batch_size: int = 64
    eval_every: int = 0
    checkpoint_every: int = 0
    patience: int = runtime.added(0)
    log_every: int = 50
    predict: bool = True
    seeds: int = 1
    sweep: Sweep = NO_SWEEP
    grid: GridConfig = dataclasses.field(default_factory=GridConfig)
    keep: Literal["chosen", "all"] = runtime.resumable(KEEP_CHOSEN)

    def validate(self) -> None:
        """Checks all fields, as `RunConfig.validate` does, also before the number of steps is known.

        For a sweep, all of its settings are checked.
        """
        runtime.config.check_types(self)
        runtime.one_of("task", self.task, (*tasks.TASKS, own.NAME))
        self._check_own()
        zero = ("steps", "eval_every", "checkpoint_every", "patience", "length", "new_vocabulary")
        zero += ("lr", "eps", "weight_decay", "clip")
        one = ("epochs", "batch_size", "log_every", "eval_batch_size", "seeds")
        for name in (*zero, *one):
            runtime.at_least(name, getattr(self, name), int(name in one))
        for name in ("b1", "b2", "warmup"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected 0 <= {name} < 1")
        if self.checkpoint and self.init_from:
            raise ValueError(
                f"init_from: got {self.init_from!r}, expected '' with checkpoint={self.checkpoint!r}"
            )
        for name in ("checkpoint", "vocabulary") if self.new_vocabulary else ():
            if value := getattr(self, name):
                raise ValueError(
                    f"new_vocabulary: got {self.new_vocabulary}, expected 0 with {name}={value!r}"
                )
        self._check_lengths()
        self._check_model()
        if self.sweep == NO_SWEEP and self.grid != GridConfig():
            raise ValueError(
                f"grid: got {self.grid}, expected the default without a sweep (sweep={SWEEP_16GB!r} or "
                f"{SWEEP_160GB!r})"
            )
        if self.sweep != NO_SWEEP:
            if self.steps:
                raise ValueError(f"steps: got {self.steps}, expected 0 in a sweep, which sets `epochs`")
            for setting in self.settings():
                self.for_run(setting, self.seed).validate()
        # The base class checks numbers of steps, so they are computed for some number of examples.
        known = self.steps and self.eval_every and self.checkpoint_every
        resolved = self if known else self.resolved(100 * self.batch_size)
        runtime.RunConfig.validate(dataclasses.replace(resolved, sweep=NO_SWEEP, grid=GridConfig()))

    def _check_own(self) -> None:
        runtime.one_of("own.kind", self.own.kind, get_args(own.Kind))
        if self.task != own.NAME:
            if self.own != OwnConfig():
                raise ValueError(f"own: got {self.own}, expected no files with task={self.task!r}")
            return
        for split in ("train", "validation"):
            if not getattr(self.own, split):
                raise ValueError(
                    f"own.{split}: got '', expected a file: {own.ENDINGS}, or a data set "
                    f"(--config.own.{split})"
                )
        if self.sweep != NO_SWEEP:
            raise ValueError(f"sweep: got {self.sweep!r}, expected {NO_SWEEP!r} with task={own.NAME!r}")

    def open_task(self) -> tasks.Task[Any, Any]:
        """Returns the task; raises ValueError if files of your own are missing or damaged."""
        return self.own.open(self.data_dir) if self.task == own.NAME else tasks.open_task(self.task)

    def _check_lengths(self) -> None:
        if self.lengths and not self.mask_padding:
            raise ValueError(
                f"lengths: got {self.lengths}, expected () without mask_padding: padding would affect outputs"
            )
        every = (*self.lengths, self.tokens)
        if list(every) != sorted(set(every)):
            raise ValueError(f"lengths: got {self.lengths}, expected increasing lengths below {self.tokens}")
        runtime.at_least("lengths" if self.lengths else "length", every[0], 8)
        for name, default in (("stride", STRIDE), ("query_length", QUERY_LENGTH)):
            runtime.at_least(name, getattr(self, name), 1)
            if self.task not in (tasks.SQUAD.name, own.NAME) and getattr(self, name) != default:
                raise ValueError(
                    f"{name}: got {getattr(self, name)}, expected {default} unless task={tasks.SQUAD.name!r} "
                    f"or {own.NAME!r}"
                )
        least = self.query_length + self.stride + 3
        if self.task == tasks.SQUAD.name and self.tokens < least:
            raise ValueError(
                f"length: got {self.tokens}, expected at least query_length + stride + 3 = {least}, so that "
                "windows cover all tokens"
            )

    def _check_model(self) -> None:
        if not self.checkpoint:
            settings = self.model.settings()
            longest = settings.max_position_embeddings
            if settings.absolute_position and self.tokens > longest:
                raise ValueError(
                    f"length: got {self.tokens}, expected at most model.max_position_embeddings={longest}, "
                    "since positions are absolute"
                )
            return
        plain = ModelConfig()
        for field in dataclasses.fields(self.model):
            value, default = getattr(self.model, field.name), getattr(plain, field.name)
            if field.name not in OF_ANY_MODEL and value != default:
                raise ValueError(
                    f"model.{field.name}: got {value!r}, expected the default {default!r}, since "
                    f"checkpoint={self.checkpoint!r} determines the model"
                )

    def check_layout(self, layout: runtime.Layout) -> None:
        """Checks the batch sizes, as `RunConfig.check_layout` does, and that `model` divides all lengths."""
        for batch_size in sorted({setting.batch_size for setting in self.settings()}):
            self.check_batch(layout, batch_size)
        for length in (*self.lengths, self.tokens):
            if length % layout.model:
                raise ValueError(
                    f"length: got {length}, expected a multiple of {layout.model}, the number of devices "
                    "along model"
                )

    @property
    def tokens(self) -> int:
        """The number of tokens per example, T."""
        return self.length or (own.LENGTH if self.task == own.NAME else tasks.open_task(self.task).max_length)

    def steps_per_epoch(self, examples: int) -> int:
        """Returns the number of batches in a pass over so many examples."""
        return math.ceil(examples / self.batch_size)

    def resolved(self, examples: int) -> "Config":
        """Returns this config with all numbers of steps filled in, for a training split of that size."""
        epoch = self.steps_per_epoch(examples)
        evaluate = self.eval_every or epoch
        save = self.checkpoint_every or evaluate
        common = math.gcd(evaluate, save)
        log = max(part for part in range(1, min(self.log_every, common) + 1) if common % part == 0)
        steps = self.steps or self.epochs * epoch
        return dataclasses.replace(
            self, steps=steps, eval_every=evaluate, checkpoint_every=save, log_every=log
        )

    def settings(self) -> list[Setting]:
        """Returns the settings of a sweep, or the single setting of a run without one."""
        if self.sweep == NO_SWEEP:
            return [Setting(self.lr, self.batch_size, self.epochs, self.warmup)]
        searched = TABLE_9[column(self.task)]
        lr = self.grid.lr or (searched.lr_16gb if self.sweep == SWEEP_16GB else searched.lr_160gb)
        others = [getattr(self.grid, name) or getattr(searched, name) for name in Setting._fields[1:]]
        return list(itertools.starmap(Setting, itertools.product(lr, *others)))

    def for_run(self, setting: Setting, seed: int) -> "Config":
        """Returns the config of a single run with the given setting and seed."""
        return dataclasses.replace(
            self, seed=seed, seeds=1, sweep=NO_SWEEP, grid=GridConfig(), **setting._asdict()
        )

    def make_optimizer(self) -> optax.GradientTransformation:
        """Returns Adam with this config's hyperparameters; the config must be resolved."""
        names = ("b1", "b2", "eps", "bias_correction", "weight_decay", "clip")
        rate = optimizer.linear(self.lr, self.steps, self.warmup)
        return optimizer.adam(rate, **{name: getattr(self, name) for name in names})


def preset(task: str) -> Config:
    """Returns a task's config, with a setting from the middle of its column of Table 9.

    Table 9 lists the values that were searched, but the paper does not give the chosen ones:
    `--config.sweep=16gb --config.seeds=5` searches them all (`160gb`: those for Base and Large pretrained on
    160 GB) and reports medians over the seeds. The expected scores are the paper's (Table 4) on the
    development set, medians of five seeds with the best setting, for FOLNet Base (16 GB), Base (160 GB) and
    Large. We have not run any of this. The authors used half precision with loss scaling; presets use
    bfloat16.

        task   expected score, in percent                    examples and question
        mnli   88.2/87.9, 89.4/89.7, 91.2/91.3 (mismatched)  393k pairs: does a premise entail a hypothesis?
        qqp    91.9, 92.2, 92.5                              364k pairs: do two questions mean the same?
        qnli   94.1, 94.4, 95.8                              108k pairs: does a sentence answer a question?
        sst2   94.5, 95.6, 96.8                              67k phrases: is a film review positive?
        cola   66.9, 69.9, 71.5 (Matthews)                   8.5k sentences: is it acceptable English?
        stsb   91.6, 92.5, 92.2 (Spearman)                   5.7k pairs: how similar are they, from 0 to 5?
        mrpc   91.5, 92.0, 93.5                              3.7k pairs: is one a paraphrase of the other?
        rte    83.5, 87.0, 91.1                              2.5k pairs: does a text entail a sentence?
        squad2 84.7/87.9, 85.5/88.6, 88.5/91.5 (exact/F1)    130k questions: which words answer it, if any?
        folio  64.2, 64.2, 70.6                              1,004 and 204: is it true, false or unknown?

    Data for GLUE: its unpacked archives (`MNLI/` from MNLI.zip, ...; for MRPC Microsoft's three files), or
    TFDS's `glue/TASK`. For SQuAD: train-v2.0.json and dev-v2.0.json, or TFDS's `squad/v2.0`; T = 384, the
    stride is 128, and scores use the best threshold for the development split. For FOLIO: folio-train.jsonl
    and folio-validation.jsonl of the authors' version 0.0; T = 512. RTE starts from the pretrained model,
    while others start it from one fine-tuned on MNLI.

    `clutrr23` and `clutrr234` are trained on chains of 2 and 3, or 2 to 4, relations and tested on 2 to 10.
    Figure 5 (a) and (b) shows their results without numbers: accuracy decreases with the length and stays far
    above BERT's. The setting is that of Appendix C. Data: `gen_train23_test2to10/` of Hugging Face's copy or
    `data_089907f8/` of the authors' archive; `gen_train234_test2to10/` or `data_db9b8f04/`. The archive has
    no validation split, so the last step counts as the best. (The released program selects the checkpoint
    with the best mean over the test lengths, which are the scores it reports.)
    """
    searched = TABLE_9[column(task)]
    return Config(
        task=task,
        data_dir="data",
        checkpoint="models/folnet",
        model=ModelConfig(dtype="bfloat16"),
        lr=searched.lr_16gb[(len(searched.lr_16gb) - 1) // 2],
        batch_size=searched.batch_size[-1],
        epochs=searched.epochs[len(searched.epochs) // 2],
        warmup=searched.warmup[0],
    )


def own_files() -> Config:
    """Your own files, from a pretrained FOLNet: `--data=FILE --validation=FILE --config.checkpoint=DIR`.

    The rate and the number of epochs are those of the smaller tasks of Table 9; no result is known.
    """
    return dataclasses.replace(preset("rte"), task=own.NAME, data_dir="", checkpoint="", lr=5e-5)


def own_small() -> Config:
    """Your own files, from nothing: a FOLNet of half a million parameters, for a CPU; learns the vocabulary.

    `--data=FILE --validation=FILE`. A model without pretraining knows only the words of the training file.
    """
    return Config(
        task=own.NAME,
        new_vocabulary=4000,
        model=small(vocab_size=4000),
        lr=1e-3,
        batch_size=16,
        epochs=10,
        length=64,
        mask_padding=True,
    )


get_config = runtime.Presets(
    **{task: functools.partial(preset, task) for task in tasks.TASKS}, own=own_files, own_small=own_small
)
