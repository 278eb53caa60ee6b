"""The pretraining config and its presets: `python -m experiments.folnet_pretrain --config=PRESET`.

Each preset's docstring gives the expected result, the hardware and the running time.
"""

import dataclasses
from typing import ClassVar, cast

import optax

from experiments import runtime
from experiments.folnet_pretrain import optimizer
from experiments.folnet_pretrain.parts import (
    FOLNET,
    NONE,
    TRANSFORMER,
    Baseline,
    DataConfig,
    ModelConfig,
    small,
)
from folnet import FOLNetConfig, table3
from folnet.pretraining import Objective
from folnet.transformer import matched_to

BERT_ROW = 2
"""The row of Table 3 with the authors' own BERT."""


@dataclasses.dataclass
class Config(runtime.RunConfig):
    """The model, the text and the training settings; defaults are Table 8's for FOLNet Base on 16 GB.

    Attributes:
        steps: number of updates; can be raised later if the learning rate does not depend on it (with
            `schedule_steps`, or a constant rate).
        data: the text.
        model: the model to train.
        baseline: "transformer" also trains a Transformer with about the same number of parameters on the same
            batches, for the same number of steps (with a constant rate: for the same time). "none" skips it.
        baseline_lr: the baseline's peak learning rate; 0 means `lr`.
        row: a row of Table 3, from 2 to 15, whose operators, relations, positions and losses replace those in
            `model` and `data`; 0 replaces nothing. Widths, layers and the text are kept.
        lr: peak learning rate of LAMB.
        schedule: "released", "linear" or "constant"; see `optimizer.schedule`.
        schedule_steps: length of the schedule in steps; 0 means `steps`.
        warmup: fraction of the schedule over which the rate increases.
        b1, b2, eps, weight_decay, clip: arguments of `optimizer.lamb`.
        mask_padding: whether tokens ignore padding; in the released model they do not.
        eval_batch_size: batch size of evaluations.
        eval_batches: maximum number of batches per evaluation, drawn at random once; 0 means all held-out
            text.
        eval_masks: passes over the held-out text, each with different words masked.
        blanks: number of masked words to fill in at the end, each in its own held-out window.
    """

    experiment: ClassVar[str] = "folnet_pretrain"
    size_fields: ClassVar[tuple[str, ...]] = ("model", "row", "data.length", "data.objective", "mask_padding")

    steps: int = runtime.resumable(8000)
    batch_size: int = 131_072
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    baseline: Baseline = NONE
    baseline_lr: float = 0.0
    row: int = 0
    lr: float = 1e-2
    schedule: optimizer.ScheduleName = "linear"
    schedule_steps: int = 0
    warmup: float = 0.01
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 0.01
    clip: float = 1.0
    mask_padding: bool = False
    eval_batch_size: int = 256
    eval_batches: int = 0
    eval_masks: int = 1
    blanks: int = 60

    def validate(self) -> None:
        """Checks all fields, as `RunConfig.validate` does; also builds the models' settings to check them."""
        super().validate()
        optimizer.check(self)
        for name in ("baseline_lr", "eval_batches", "blanks", "schedule_steps", "row"):
            runtime.at_least(name, getattr(self, name), 0)
        for name in ("eval_batch_size", "eval_masks"):
            runtime.at_least(name, getattr(self, name), 1)
        if self.schedule != "constant" and 0 < self.schedule_steps < self.steps:
            raise ValueError(
                f"steps: got {self.steps}, expected at most schedule_steps={self.schedule_steps}, where the "
                f"learning rate of schedule={self.schedule!r} reaches 0"
            )

        resolved = self.resolved()
        resolved.data.validate()
        longest = resolved.model.max_position_embeddings
        if resolved.model.absolute_position and resolved.data.length > longest:
            raise ValueError(
                f"data.length: got {resolved.data.length}, expected at most "
                f"model.max_position_embeddings={longest}, since positions are absolute"
            )
        resolved.model.settings(resolved.data.pretrain_loss)
        if self.baseline != NONE:
            if resolved.model.name != FOLNET:
                raise ValueError(
                    f"baseline: got {self.baseline!r}, expected {NONE!r} with "
                    f"model.name={resolved.model.name!r} (only {FOLNET!r} has a baseline)"
                )
            resolved.for_baseline()

    def check_layout(self, layout: runtime.Layout) -> None:
        """Checks the batch sizes, as `RunConfig.check_layout` does, and that `model` divides the length."""
        super().check_layout(layout)
        if self.data.length % layout.model:
            raise ValueError(
                f"data.length: got {self.data.length}, expected a multiple of {layout.model}, the number of "
                "devices along model"
            )

    def resolved(self) -> "Config":
        """Returns this config with `schedule_steps` and the row of Table 3 filled in.

        Raises:
            ValueError: `row` is not a row of Table 3.
        """
        model, objective = self.model, self.data.objective
        if self.row == BERT_ROW:
            model, objective = self.model.as_transformer(), "nsp"
        elif self.row:
            row = table3(self.row)
            fields = ("operators", "relation_size", "relation_intermediate_size", "relative_position")
            changes = {name: getattr(row, name) for name in (*fields, "absolute_position")}
            model = dataclasses.replace(self.model, **changes)
            objective = cast(Objective, row.pretrain_loss.removeprefix("MLM.").lower())
        data = dataclasses.replace(self.data, objective=objective)
        steps = self.schedule_steps or self.steps
        return dataclasses.replace(self, schedule_steps=steps, model=model, data=data)

    def make_schedule(self) -> optax.Schedule:
        """Returns the learning rate as a function of the update's number."""
        steps = self.schedule_steps or self.steps
        return optimizer.schedule(self.schedule, self.lr, steps, self.warmup)

    def make_optimizer(self) -> optax.GradientTransformation:
        """Returns LAMB with this config's hyperparameters and schedule."""
        names = ("b1", "b2", "eps", "weight_decay", "clip")
        return optimizer.lamb(self.make_schedule(), **{name: getattr(self, name) for name in names})

    def for_baseline(self, seconds: float = 0.0) -> "Config":
        """Returns the baseline's config: `seconds` long with a constant rate, else with the same steps."""
        settings = self.model.settings()
        if not isinstance(settings, FOLNetConfig):
            raise ValueError(f"model.name: got {self.model.name!r}, expected {FOLNET!r} for a baseline")
        matched = matched_to(settings)
        model = self.model.as_transformer(intermediate_size=matched.intermediate_size)
        lr = self.baseline_lr or self.lr
        scratch = self.from_scratch()
        config = dataclasses.replace(scratch, model=model, baseline=NONE, baseline_lr=0.0, lr=lr)
        if not seconds or self.schedule != "constant":
            return config
        horizon = self.schedule_steps or self.steps
        # Enough steps that the time limit ends the run.
        return dataclasses.replace(
            config, schedule_steps=horizon, steps=1000 * self.steps, max_seconds=seconds
        )


def quick() -> Config:
    """A small FOLNet on the Python language reference, with a Transformer of the same size as baseline.

    393,666 parameters. Of the documentation included with Python, 63 topics (83 thousand tokens) are for
    training and 16 others (16 thousand tokens) are held out. Each architecture uses the best of three
    learning rates.

    After 500 steps FOLNet's held-out loss is 4.90 nats per masked word and it fills in 22 % correctly; from
    step 200 on the loss is below 5.67, which word frequencies alone reach. The Transformer's loss is 5.32
    after the same number of steps, and 4.91 after the same time (3.3 times as many steps), when it fills in
    20 %. One run of this size does not show which is better.

    On two idle CPU cores, training takes 34 s per model, and everything 104 s including compilation,
    evaluation and figures. Results for three seeds are in results/folnet.

    `--config.data.source=FOLDER` reads the text of another folder and learns its vocabulary; with prepared
    text (`--config.data.directory`), `data.length` and `model.vocab_size` have to match it.
    """
    return Config(
        data=DataConfig(length=32),
        model=small(
            vocab_size=1504,
            max_position_embeddings=32,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        ),
        baseline=TRANSFORMER,
        lr=2e-2,
        baseline_lr=1e-2,
        schedule="constant",
        warmup=0.05,
        batch_size=32,
        steps=500,
        log_every=50,
        checkpoint_every=250,
        eval_every=100,
    )


def base_16gb() -> Config:
    r"""FOLNet Base on Wikipedia and BookCorpus, with the settings of Table 8; we have not run it.

    The authors trained for 12 hours on 512 V100s (2.1e20 floating-point operations) and report, after
    fine-tuning, 87.7 on GLUE and an F1 of 87.9 on SQuAD 2.0 (Table 4). Prepare the text once, from Wikipedia:

        python -m experiments.folnet_pretrain.data --source=tensorflow_datasets/wikipedia/20230601.en/1.0.0 \
            --vocabulary=vocab.txt --out=data/16gb

    or from a folder with both texts. A batch of 131,072 examples is processed in parts of 256 on one device;
    on eight devices use `--config.accumulate=64`, and `--fsdp` to split parameters and moments. We have not
    measured the memory this takes. `--config.schedule=released` selects the decay of the released code, and
    `--config.data.objective=sop` the task that its loader calls NSP.
    """
    return Config(
        data=DataConfig(directory="data/16gb", objective="nsp"),
        model=ModelConfig(dtype="bfloat16", remat="relation_boolean"),
        accumulate=512,
        log_every=10,
        checkpoint_every=100,
        eval_every=500,
        eval_batches=40,
    )


def base_160gb() -> Config:
    """FOLNet Base on 160 GB of text, with the settings of Table 8; we have not run it.

    The text is Wikipedia, BookCorpus2, OpenWebText2 and Pile-CC. The sentence task is SOP, since NSP needs
    text from other documents. See `base_16gb` for how to prepare text and process a batch. The authors
    trained for 7 days on 512 V100s and report 89.2 on GLUE and an F1 of 88.6 on SQuAD 2.0 (Table 4).
    """
    return dataclasses.replace(
        base_16gb(),
        data=DataConfig(directory="data/160gb"),
        lr=2e-3,
        steps=128_000,
        checkpoint_every=500,
        eval_every=2000,
    )


def large_160gb() -> Config:
    """FOLNet Large on 160 GB of text, with the settings of Table 8; we have not run it.

    Like `base_160gb`, but with 24 layers, D1 = 1024 and 16 heads: 438,333,890 parameters including both
    heads. The authors trained for 19 days on 512 V100s and report 90.6 on GLUE and an F1 of 91.5 on SQuAD 2.0
    (Table 4).
    """
    config = base_160gb()
    sizes = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
    model = dataclasses.replace(config.model, intermediate_size=4096, **sizes)
    return dataclasses.replace(config, lr=1.6e-3, model=model, accumulate=1024)


def bert() -> Config:
    """A Transformer of BERT base's size with FOLNet Base's data, losses and optimizer; we have not run it.

    This is row 2 of Table 3, the authors' own BERT, which reaches 82.7 on GLUE. Its layers have the widths of
    FOLNet's, which gives it fewer parameters (110 million); `--config.model.intermediate_size=4639` matches
    the number of FOLNet Base.
    """
    config = base_16gb()
    return dataclasses.replace(config, model=config.model.as_transformer(), accumulate=128)


def ablation() -> Config:
    """A row of Table 3, by default row 13 (`--config.row=ROW`), with the text and settings of `base_16gb`.

    The row determines the operators, D2 (and the width of the binary boolean operator, 4 D2), the positions
    and the sentence task; row 2 is BERT. Flags such as these, which we have not run, make it smaller:

        --config.model.hidden_size=256 --config.model.num_attention_heads=4 --config.model.num_hidden_layers=4
        --config.model.intermediate_size=1024 --config.batch_size=4096 --config.accumulate=16
        --config.steps=20000 --config.lr=5e-3
    """
    return dataclasses.replace(base_16gb(), row=13)


get_config = runtime.Presets(
    quick=quick,
    base_16gb=base_16gb,
    base_160gb=base_160gb,
    large_160gb=large_160gb,
    ablation=ablation,
    bert=bert,
)
