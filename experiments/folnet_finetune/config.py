r"""Configs of `experiments/folnet_finetune/train.py`: FOLNet on a task, a preset for each.

    python -m experiments.folnet_finetune --config=TASK \
        --config.data_dir=DIR --config.checkpoint=DIR --config.FIELD=VALUE --workdir=DIR

The paper gives the hyper-parameters that it searched (Table 9) and not those that it found. A preset has
a setting out of the middle of the grid for models pretrained on 16 GB; `--config.sweep=16gb
--config.seeds=5` goes through all of it, `--config.sweep=160gb` through that for Base and Large pretrained on
160 GB, and reports the median of the seeds for each. What a preset should reach is what the paper reports:
development sets, medians of five seeds, the best setting. Nothing of it was run here.

`--config.model.dtype=bfloat16` is the presets' choice; the authors used half precision with loss scaling.
"""

import dataclasses
import itertools
import math
from typing import Any, ClassVar

import optax

from experiments import runtime
from experiments.folnet_finetune import optimizer as folnet_finetune_optimizer
from experiments.folnet_finetune.grid import (
    NO_SWEEP,
    SWEEP_16GB,
    SWEEP_160GB,
    SWEEPS,
    TABLE_9,
    GridConfig,
    Setting,
    column,
)
from experiments.folnet_pretrain.parts import ModelConfig
from folnet import tasks
from folnet.tasks.squad_features import QUERY_LENGTH, STRIDE

KEEP_CHOSEN, KEEP_ALL = "chosen", "all"
OF_ANY_MODEL = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dtype", "remat")
"""The fields of `model` that hold for a checkpoint, too."""


@dataclasses.dataclass
class Config(runtime.RunConfig):
    """A task, where a model comes from, and how it is trained; the defaults are what all of Table 9 has.

    Attributes:
        task: one of `folnet.tasks.TASKS`.
        data_dir: a directory with its files; what is missing, and how to get it, is told.
        checkpoint: a directory with config.json and model.safetensors, as `from_pretrained` has them; ""
            begins with a model that knows nothing, of the sizes in `model`.
        vocabulary: the file of pieces; "" is vocab.txt in `checkpoint`.
        lowercase: whether text is lowercased, as FOLNet's is.
        model: of a checkpoint only dropout, dtype and remat are taken from here.
        epochs: times through the training split.
        steps: updates; 0: as many as the epochs have.
        batch_size: examples (of SQuAD, windows) of an update. The last batch of an epoch may have fewer.
        lr: peak of Adam's learning rate, to which it rises, and from which it falls to 0, in a line.
        warmup: part of the steps over which it rises.
        b1: Adam's beta 1.
        b2: Adam's beta 2.
        eps: Adam's epsilon.
        bias_correction: as released, there is none.
        weight_decay: of all but biases.
        clip: the gradient's global norm at most; 0 leaves it.
        accumulate: parts in which a batch is gone through, for what does not fit into memory at once.
        length: tokens of an example, T; 0: the task's, as in Table 9.
        stride: of SQuAD: tokens from the beginning of a window to that of the next.
        query_length: of SQuAD: tokens of a question, at most.
        released_text: of CLUTRR: whether story and query are read as they stand in the files, as the released
            program does; else without brackets, and the query as a question in words.
        mask_padding: whether tokens do not see padding; as released, they do.
        lengths: shorter lengths, such as (32, 64): a batch has the least that its longest example fits into,
            and examples that are about as long come together. Needs `mask_padding`, since else what a model
            says of an example would depend on its company.
        eval_batch_size: examples of an evaluation's batch.
        eval_every: steps between evaluations; 0: at the end of each epoch.
        checkpoint_every: steps between checkpoints; 0: at each evaluation.
        log_every: steps between lines of the record, at most: the greatest number up to this that divides
            those of evaluations and checkpoints.
        predict: whether the best model's predictions are written at the end, of all splits that are there.
        seeds: runs that differ in the seed alone: `seed`, `seed` + 1, ...; their median is reported.
        sweep: "16gb" or "160gb" goes through Table 9's values for models pretrained on so much; "none" does
            not.
        grid: other values for a sweep.
        keep: of several runs: "all" keeps what each leaves, for FOLNet Base about 4 GB; "chosen" removes the
            checkpoints of a run when it is finished, and its best model when a setting with better seeds is.
            Records, results and predictions stay, and no run is repeated.
    """

    experiment: ClassVar[str] = "folnet_finetune"

    task: str = "rte"
    data_dir: str = ""
    checkpoint: str = ""
    vocabulary: str = ""
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
    accumulate: int = 1
    length: int = 0
    stride: int = STRIDE
    query_length: int = QUERY_LENGTH
    released_text: bool = True
    mask_padding: bool = False
    lengths: tuple[int, ...] = ()
    eval_batch_size: int = 64
    eval_every: int = 0
    checkpoint_every: int = 0
    log_every: int = 50
    predict: bool = True
    seeds: int = 1
    sweep: str = NO_SWEEP
    grid: GridConfig = dataclasses.field(default_factory=GridConfig)
    keep: str = runtime.resumable(KEEP_CHOSEN)

    def validate(self) -> None:
        """See `RunConfig.validate`; also for steps not known yet, and for all settings of a sweep."""
        runtime.config.check_types(self)
        runtime.one_of("task", self.task, tasks.TASKS)
        runtime.one_of("sweep", self.sweep, SWEEPS)
        runtime.one_of("keep", self.keep, (KEEP_CHOSEN, KEEP_ALL))
        for name in ("steps", "eval_every", "checkpoint_every", "length"):
            runtime.at_least(name, getattr(self, name), 0)
        for name in ("epochs", "batch_size", "log_every", "accumulate", "eval_batch_size", "seeds"):
            runtime.at_least(name, getattr(self, name), 1)
        for name in ("lr", "eps", "weight_decay", "clip"):
            runtime.at_least(name, getattr(self, name), 0)
        for name in ("b1", "b2", "warmup"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be from 0 up to 1")
        if self.batch_size % self.accumulate:
            raise ValueError(f"accumulate={self.accumulate} must divide batch_size={self.batch_size}")
        self._check_lengths()
        self._check_model()
        if self.sweep == NO_SWEEP and self.grid != GridConfig():
            raise ValueError(f"grid={self.grid} needs sweep={SWEEP_16GB} or {SWEEP_160GB}")
        if self.sweep != NO_SWEEP:
            if self.steps:
                raise ValueError(f"steps={self.steps} must be 0 in a sweep, which goes through epochs")
            for setting in self.settings():
                self.for_run(setting, self.seed).validate()
        dataclasses.replace(self, sweep=NO_SWEEP, grid=GridConfig())._check_run()

    def _check_run(self) -> None:
        """The base class's checks, of what the fields come to with some number of examples."""
        resolved = self if self.is_resolved else self.resolved(100 * self.batch_size)
        runtime.RunConfig.validate(resolved)

    def _check_lengths(self) -> None:
        if self.lengths and not self.mask_padding:
            raise ValueError(f"lengths={self.lengths} need mask_padding=True: else padding changes results")
        every = (*self.lengths, self.tokens)
        if list(every) != sorted(set(every)):
            raise ValueError(f"lengths={self.lengths} must rise, all of them below {self.tokens}")
        runtime.at_least("lengths" if self.lengths else "length", every[0], 8)
        for name, default in (("stride", STRIDE), ("query_length", QUERY_LENGTH)):
            runtime.at_least(name, getattr(self, name), 1)
            if self.task != tasks.SQUAD.name and getattr(self, name) != default:
                raise ValueError(f"{name}={getattr(self, name)} is for task={tasks.SQUAD.name}")
        least = self.query_length + self.stride + 3
        if self.task == tasks.SQUAD.name and self.tokens < least:
            raise ValueError(
                f"length={self.tokens} must be at least query_length + stride + 3 = {least}: else windows "
                "leave tokens out between them"
            )

    def _check_model(self) -> None:
        if not self.checkpoint:
            settings = self.model.settings()
            longest = settings.max_position_embeddings
            if settings.absolute_position and self.tokens > longest:
                raise ValueError(
                    f"length={self.tokens} must be at most model.max_position_embeddings={longest}, since "
                    "positions are absolute"
                )
            return
        plain = ModelConfig()
        for field in dataclasses.fields(self.model):
            value, default = getattr(self.model, field.name), getattr(plain, field.name)
            if field.name not in OF_ANY_MODEL and value != default:
                raise ValueError(
                    f"model.{field.name}={value!r} is for a model from scratch, but "
                    f"checkpoint={self.checkpoint!r} says what model it is"
                )

    def check_layout(self, layout: runtime.Layout) -> None:
        """See `RunConfig.check_layout`; also that the rows of pairs can be split along `model`."""
        for batch_size in sorted({setting.batch_size for setting in self.settings()}):
            dataclasses.replace(self, batch_size=batch_size)._check_layout(layout)

    def _check_layout(self, layout: runtime.Layout) -> None:
        super().check_layout(layout)
        for length in (*self.lengths, self.tokens):
            if length % layout.model:
                raise ValueError(
                    f"length={length} must be a multiple of the {layout.model} devices along model"
                )

    @property
    def tokens(self) -> int:
        """T."""
        return self.length or tasks.open_task(self.task).max_length

    @property
    def sweeps(self) -> bool:
        """Whether settings are gone through."""
        return self.sweep != NO_SWEEP

    @property
    def is_resolved(self) -> bool:
        """Whether all steps are numbers of steps."""
        return bool(self.steps and self.eval_every and self.checkpoint_every)

    def steps_per_epoch(self, examples: int) -> int:
        """Batches that have every example once."""
        return math.ceil(examples / self.batch_size)

    def resolved(self, examples: int) -> "Config":
        """The same with the steps of a run over so many examples."""
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
        """What a sweep goes through, or the one setting there is."""
        if self.sweep == NO_SWEEP:
            return [Setting(self.lr, self.batch_size, self.epochs, self.warmup)]
        searched = TABLE_9[column(self.task)]
        lr = self.grid.lr or (searched.lr_16gb if self.sweep == SWEEP_16GB else searched.lr_160gb)
        others = [getattr(self.grid, name) or getattr(searched, name) for name in Setting._fields[1:]]
        return list(itertools.starmap(Setting, itertools.product(lr, *others)))

    def for_run(self, setting: Setting, seed: int) -> "Config":
        """The config of one run of a sweep, or of one of several seeds."""
        return dataclasses.replace(
            self, seed=seed, seeds=1, sweep=NO_SWEEP, grid=GridConfig(), **setting._asdict()
        )

    def make_optimizer(self) -> optax.GradientTransformation:
        """Adam as released; of a resolved config."""
        return folnet_finetune_optimizer.adam(
            folnet_finetune_optimizer.linear(self.lr, self.steps, self.warmup),
            b1=self.b1,
            b2=self.b2,
            eps=self.eps,
            weight_decay=self.weight_decay,
            clip=self.clip,
            bias_correction=self.bias_correction,
        )


def _preset(task: str, **fields: Any) -> Config:
    """Settings out of the middle of the task's column of Table 9."""
    searched = TABLE_9[column(task)]
    middle = {
        "lr": searched.lr_16gb[(len(searched.lr_16gb) - 1) // 2],
        "batch_size": searched.batch_size[-1],
        "epochs": searched.epochs[len(searched.epochs) // 2],
        "warmup": searched.warmup[0],
    }
    return Config(
        task=task,
        data_dir="data",
        checkpoint="models/folnet",
        model=ModelConfig(dtype="bfloat16"),
        **middle,
        **fields,
    )


def mnli() -> Config:
    """MNLI: does a premise entail a hypothesis? 393 thousand pairs, three classes; matched and mismatched.

    To reach (Table 4): 88.2/87.9 % Base of 16 GB, 89.4/89.7 Base of 160 GB, 91.2/91.3 Large.
    Data: `MNLI/` out of GLUE's MNLI.zip, or TFDS's `glue/mnli`.
    """
    return _preset("mnli")


def qqp() -> Config:
    """QQP: do two questions ask the same? 364 thousand pairs.

    To reach (Table 4): accuracy 91.9 % Base of 16 GB, 92.2 Base of 160 GB, 92.5 Large.
    Data: `QQP/` out of GLUE's QQP.zip, or TFDS's `glue/qqp`.
    """
    return _preset("qqp")


def qnli() -> Config:
    """QNLI: has a sentence the answer to a question? 108 thousand pairs.

    To reach (Table 4): accuracy 94.1 % Base of 16 GB, 94.4 Base of 160 GB, 95.8 Large.
    Data: `QNLI/` out of GLUE's QNLIv2.zip, or TFDS's `glue/qnli`.
    """
    return _preset("qnli")


def sst2() -> Config:
    """SST-2: is a film liked? 67 thousand phrases.

    To reach (Table 4): accuracy 94.5 % Base of 16 GB, 95.6 Base of 160 GB, 96.8 Large.
    Data: `SST-2/` out of GLUE's SST-2.zip, or TFDS's `glue/sst2`.
    """
    return _preset("sst2")


def cola() -> Config:
    """CoLA: is a sentence English? 8.5 thousand of them.

    To reach (Table 4): Matthews' correlation 66.9 % Base of 16 GB, 69.9 Base of 160 GB, 71.5 Large.
    Data: `CoLA/` out of GLUE's CoLA.zip, or TFDS's `glue/cola`.
    """
    return _preset("cola")


def stsb() -> Config:
    """STS-B: how much do two sentences say the same, from 0 to 5? 5.7 thousand pairs.

    To reach (Table 4): Spearman's correlation 91.6 % Base of 16 GB, 92.5 Base of 160 GB, 92.2 Large.
    Data: `STS-B/` out of GLUE's STS-B.zip, or TFDS's `glue/stsb`.
    """
    return _preset("stsb")


def mrpc() -> Config:
    """MRPC: does one sentence say the other in other words? 3.7 thousand pairs.

    To reach (Table 4): accuracy 91.5 % Base of 16 GB, 92.0 Base of 160 GB, 93.5 Large.
    Data: `MRPC/` with the three files of Microsoft's release, or TFDS's `glue/mrpc`.
    """
    return _preset("mrpc")


def rte() -> Config:
    """RTE: does a text entail a sentence? 2.5 thousand pairs.

    To reach (Table 4): accuracy 83.5 % Base of 16 GB, 87.0 Base of 160 GB, 91.1 Large. The paper begins with
    the pretrained model, not with one fine-tuned on MNLI as others do.
    Data: `RTE/` out of GLUE's RTE.zip, or TFDS's `glue/rte`.
    """
    return _preset("rte")


def squad2() -> Config:
    """SQuAD 2.0: which words of a paragraph answer a question, if any? 130 thousand questions.

    To reach (Table 4), exact match and F1 at the best threshold of the development split: 84.7/87.9 % Base of
    16 GB, 85.5/88.6 Base of 160 GB, 88.5/91.5 Large. T = 384, a stride of 128.
    Data: train-v2.0.json and dev-v2.0.json, or TFDS's `squad/v2.0`.
    """
    return _preset("squad2")


def folio() -> Config:
    """FOLIO: is a conclusion true, false or unknown, given premises? 1,004 and 204 examples.

    To reach (Table 4): accuracy 64.2 % Base of 16 GB and of 160 GB, 70.6 Large. T = 512.
    Data: folio-train.jsonl and folio-validation.jsonl of the authors' version 0.0.
    """
    return _preset("folio")


def clutrr23() -> Config:
    """CLUTRR, trained on chains of 2 and 3 relations, tested on 2 to 10: Figure 5 (a), Base of 16 GB.

    A figure without numbers: accuracy falls with the length, far above BERT's. The setting is Appendix C's.
    Data: `gen_train23_test2to10/` of Hugging Face's copy, or `data_089907f8/` of the authors' archive. That
    has no validation split, which leaves nothing to choose the best checkpoint by but the last step. (The
    released program takes the best mean over the test lengths: it chooses on what it reports.)
    """
    return _preset("clutrr23")


def clutrr234() -> Config:
    """CLUTRR, trained on chains of 2 to 4 relations, tested on 2 to 10: Figure 5 (b), Base of 16 GB.

    As `clutrr23`. Data: `gen_train234_test2to10/` or `data_db9b8f04/`.
    """
    return _preset("clutrr234")


get_config = runtime.Presets(
    mnli=mnli,
    qqp=qqp,
    qnli=qnli,
    sst2=sst2,
    cola=cola,
    stsb=stsb,
    mrpc=mrpc,
    rte=rte,
    squad2=squad2,
    folio=folio,
    clutrr23=clutrr23,
    clutrr234=clutrr234,
)
