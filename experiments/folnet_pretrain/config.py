"""The config of pretraining and its presets: `python -m experiments.folnet_pretrain --config=PRESET`.

Each preset's docstring says what it should reach, on which hardware, in how long.
"""

import dataclasses
from typing import ClassVar

import optax

from experiments import runtime
from experiments.folnet_pretrain import optimizer
from experiments.folnet_pretrain.parts import FOLNET, NONE, TRANSFORMER, DataConfig, ModelConfig
from folnet import FOLNetConfig, table3
from folnet.transformer import matched_to

BERT_ROW = 2
"""The row of Table 3 that is the authors' own BERT."""


@dataclasses.dataclass
class Config(runtime.RunConfig):
    """A model, its text, and how it is trained; the defaults are Table 8's for FOLNet Base on 16 GB.

    Attributes:
        steps: number of updates; can be raised later where the learning rate does not depend on it (with
            `schedule_steps`, or a constant rate).
        data: the text.
        model: what is trained.
        baseline: "transformer" also trains one with about as many parameters on the same batches: for as
            many steps, and with a constant rate for as many seconds. "none" trains none.
        baseline_lr: its peak learning rate; 0 takes `lr`.
        row: of Table 3, 2 to 15: its operators, relations, positions and losses replace those of `model` and
            `data`; 0 leaves them. Widths, layers and the text stay.
        lr: peak of LAMB's learning rate.
        schedule: "released", "linear" or "constant"; see `optimizer.schedule`.
        schedule_steps: the steps that the schedule counts on; 0: `steps`.
        warmup: fraction of those over which the rate rises.
        b1, b2, eps, weight_decay, clip: of `optimizer.lamb`.
        accumulate: number of parts in which a batch is processed, to fit into memory.
        mask_padding: whether tokens ignore padding; as released, they do not.
        eval_batch_size: examples of an evaluation's batch.
        eval_batches: maximum per evaluation, drawn at random once; 0 takes all held-out text.
        eval_masks: passes over held-out text, each time with other words masked.
        blanks: words to fill in at the end, each in a held-out window of its own.
    """

    experiment: ClassVar[str] = "folnet_pretrain"

    steps: int = runtime.resumable(8000)
    batch_size: int = 131_072
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    baseline: str = NONE
    baseline_lr: float = 0.0
    row: int = 0
    lr: float = 1e-2
    schedule: str = "linear"
    schedule_steps: int = 0
    warmup: float = 0.01
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 0.01
    clip: float = 1.0
    accumulate: int = 1
    mask_padding: bool = False
    eval_batch_size: int = 256
    eval_batches: int = 0
    eval_masks: int = 1
    blanks: int = 60

    def validate(self) -> None:
        """See `RunConfig.validate`; makes the models' settings, so that what they refuse is refused."""
        super().validate()
        least = dict.fromkeys(("lr", "baseline_lr", "eps", "weight_decay", "clip", "eval_batches"), 0)
        least |= dict.fromkeys(("blanks", "schedule_steps", "row"), 0)
        least |= dict.fromkeys(("accumulate", "eval_batch_size", "eval_masks"), 1)
        for name, value in least.items():
            runtime.at_least(name, getattr(self, name), value)
        for name in ("b1", "b2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be from 0 up to 1")
        if not 0 <= self.warmup <= 1:
            raise ValueError(f"warmup={self.warmup} must be a part of the steps, from 0 to 1")
        runtime.one_of("schedule", self.schedule, optimizer.SCHEDULES)
        if self.schedule != "constant" and 0 < self.schedule_steps < self.steps:
            raise ValueError(
                f"steps={self.steps} must be at most schedule_steps={self.schedule_steps}: after those the "
                f"rate of schedule={self.schedule!r} is 0"
            )
        runtime.one_of("baseline", self.baseline, (NONE, TRANSFORMER))
        resolved = self.resolved()
        resolved.data.validate()
        longest = resolved.model.max_position_embeddings
        if resolved.model.absolute_position and resolved.data.length > longest:
            raise ValueError(
                f"data.length={resolved.data.length} must be at most "
                f"model.max_position_embeddings={longest}, since positions are absolute"
            )
        resolved.model.settings(resolved.data.pretrain_loss)
        if self.baseline != NONE:
            if resolved.model.name != FOLNET:
                raise ValueError(f"baseline={self.baseline!r} is for model.name='folnet' to be compared with")
            resolved.for_baseline()

    def check_layout(self, layout: runtime.Layout) -> None:
        """See `RunConfig.check_layout`; also that the rows of pairs can be split along `model`."""
        super().check_layout(layout)
        if self.data.length % layout.model:
            raise ValueError(
                f"data.length={self.data.length} must be a multiple of the {layout.model} devices along model"
            )

    def resolved(self) -> "Config":
        """The same with `schedule_steps` and the row of Table 3 filled in.

        Raises:
            ValueError: there is no such row.
        """
        model, objective = self.model, self.data.objective
        if self.row == BERT_ROW:
            model, objective = self.model.as_transformer(), "nsp"
        elif self.row:
            row = table3(self.row)
            fields = ("operators", "relation_size", "relation_intermediate_size", "relative_position")
            changes = {name: getattr(row, name) for name in (*fields, "absolute_position")}
            model = dataclasses.replace(self.model, **changes)
            objective = row.pretrain_loss.removeprefix("MLM.").lower()
        data = dataclasses.replace(self.data, objective=objective)
        steps = self.schedule_steps or self.steps
        return dataclasses.replace(self, schedule_steps=steps, model=model, data=data)

    def make_schedule(self) -> optax.Schedule:
        """The learning rate of each update."""
        steps = self.schedule_steps or self.steps
        return optimizer.schedule(self.schedule, self.lr, steps, self.warmup)

    def make_optimizer(self) -> optax.GradientTransformation:
        """LAMB, as released."""
        names = ("b1", "b2", "eps", "weight_decay", "clip")
        return optimizer.lamb(self.make_schedule(), **{name: getattr(self, name) for name in names})

    def for_baseline(self, seconds: float = 0.0) -> "Config":
        """The config of the baseline's run: with a constant rate `seconds` long, else as many steps."""
        settings = self.model.settings()
        if not isinstance(settings, FOLNetConfig):
            raise ValueError("model.name must be 'folnet' for a baseline to be matched to")
        matched = matched_to(settings)
        model = self.model.as_transformer(intermediate_size=matched.intermediate_size)
        lr = self.baseline_lr or self.lr
        config = dataclasses.replace(self, model=model, baseline=NONE, baseline_lr=0.0, lr=lr)
        if not seconds or self.schedule != "constant":
            return config
        horizon = self.schedule_steps or self.steps
        # So many steps that the seconds are over first.
        return dataclasses.replace(
            config, schedule_steps=horizon, steps=1000 * self.steps, max_seconds=seconds
        )


def quick() -> Config:
    """A small FOLNet on the reference of the Python language, with a transformer of its size as baseline.

    393,666 parameters; 83 thousand tokens of 63 topics to learn from, 16 thousand of 16 others to measure on,
    from the documentation that comes with Python. Each architecture has the best of three learning rates.

    After 500 steps FOLNet loses 4.90 nats a masked word of held-out text and fills in 22 % rightly; from step
    200 on it is below 5.67, what word frequencies alone reach. The transformer loses 5.32 after as many
    steps; after as many seconds (3.3 times as many steps) 4.91, and fills in 20 %. One run of this size does
    not show which is better.

    Two idle CPU cores took 34 s of training per model, 104 s in all with compiling, measuring and drawing.
    Three seeds are in results/folnet.

    `--config.data.source=FOLDER` takes the text of another folder and learns its vocabulary; with a prepared
    `--config.data.directory`, `data.length` and `model.vocab_size` have to fit it.
    """
    return Config(
        data=DataConfig(length=32),
        model=ModelConfig(
            vocab_size=1504,
            hidden_size=96,
            relation_size=12,
            num_hidden_layers=2,
            num_attention_heads=4,
            head_size=24,
            intermediate_size=192,
            relation_intermediate_size=24,
            max_distance=16,
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
    r"""FOLNet Base on Wikipedia and BookCorpus, with the settings of Table 8; not run here.

    The authors took 12 hours on 512 V100 (2.1e20 floating-point operations) and report, after fine-tuning,
    87.7 on GLUE and an F1 of 87.9 on SQuAD 2.0 (Table 4). The text is prepared once:

        python -m experiments.folnet_pretrain.data --source=tensorflow_datasets/wikipedia/20230601.en/1.0.0 \
            --vocabulary=vocab.txt --out=data/16gb

    from this, or from a folder with both texts. A batch of 131,072 examples is processed in parts of 256 on
    one device; on eight, `--config.accumulate=64`, and `--fsdp` splits parameters and moments. Memory was not
    measured. `--config.schedule=released` is the decay of the released code, and
    `--config.data.objective=sop` what its loader calls NSP.
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
    """FOLNet Base on 160 GB of text, with the settings of Table 8; not run here.

    Wikipedia, BookCorpus2, OpenWebText2 and Pile-CC, with SOP, since NSP needs text of other documents;
    `base_16gb` says how text is prepared and how a batch is processed. The authors took 7 days on 512 V100
    and report 89.2 on GLUE and an F1 of 88.6 on SQuAD 2.0 (Table 4).
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
    """FOLNet Large on 160 GB of text, with the settings of Table 8; not run here.

    As `base_160gb`, with 24 layers, D1 = 1024 and 16 heads: 438,333,890 parameters with both heads. The
    authors took 19 days on 512 V100 and report 90.6 on GLUE and an F1 of 91.5 on SQuAD 2.0 (Table 4).
    """
    config = base_160gb()
    sizes = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
    model = dataclasses.replace(config.model, intermediate_size=4096, **sizes)
    return dataclasses.replace(config, lr=1.6e-3, model=model, accumulate=1024)


def bert() -> Config:
    """The transformer of the size of BERT base, with FOLNet Base's data, losses and optimizer; not run here.

    Row 2 of Table 3, the authors' own BERT: 82.7 on GLUE. Its layers are as wide as FOLNet's and it has fewer
    parameters, 110 million; `--config.model.intermediate_size=4639` has as many as FOLNet Base.
    """
    config = base_16gb()
    return dataclasses.replace(config, model=config.model.as_transformer(), accumulate=128)


def ablation() -> Config:
    """A row of Table 3, by default row 13 (`--config.row=ROW`), with `base_16gb`'s text and settings.

    The row sets operators, D2 (and the binary boolean operator's width, 4 D2), positions and the sentence
    task; row 2 is BERT. Flags make it smaller, such as these, which were not run:

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
