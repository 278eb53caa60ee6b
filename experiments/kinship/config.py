"""Configs of FOLNets and Transformers on kinship problems.

    python -m experiments.kinship --config=PRESET --config.FIELD=VALUE --workdir=DIR

Each preset's docstring says what it should reach, on which hardware, in how long.
"""

import dataclasses
import functools
from typing import Any, ClassVar

import jax.numpy as jnp
import optax

from experiments import runtime
from experiments.kinship import parts
from experiments.kinship.inputs import Graph, Reader, Room, Text, Written, WrittenGraph
from experiments.kinship.parts import DataConfig, SizeConfig, naming
from folnet import (
    FOLNet,
    FOLNetConfig,
    FOLNetForSequenceClassification,
    TransformerConfig,
    kinship,
    matched_to,
)
from folnet.transformer import num_parameters


@dataclasses.dataclass
class Config(runtime.RunConfig):
    """Models to be compared on the same problems, each for `steps` or `max_seconds`, whichever ends first.

    A model is named by a word: a FOLNet by its operators, such as "jmc.atp" or "j.at" (letters as in Table 3
    of the paper); "bert"; "t5", with T5's relative positions; "relation_aware", the attention of Shaw et al.
    (2018), which takes the graph as relations of pairs. The metric is the mean accuracy over `metric_lengths`
    at the last step, not at the best; curves compare models after equal steps and after equal time.

    Attributes:
        steps: number of updates at most.
        model: what is trained.
        baselines: others to be trained on the same batches, each in its own directory below the run's.
        match: the FOLNet that all models are matched to in parameters by the width of their feed-forward
            layers, by its operators; "" leaves widths as they are.
        data: the problems.
        sizes: of all models.
        metric_lengths: the lengths k of the metric.
        lr: Adam's learning rate, after the warmup.
        lrs: those of the baselines, in their order; () for `lr`.
        warmup_steps: over which the rate rises in a line.
        decay_steps: at which the rate has fallen to 0 in a line; 0 leaves it constant.
        b1: Adam's beta 1.
        b2: Adam's beta 2.
        weight_decay: decoupled; 0 for none.
        clip: the gradient's global norm at most; 0 leaves it.
        eval_batch_size: problems of an evaluation's batch.
    """

    experiment: ClassVar[str] = "kinship"

    steps: int = runtime.resumable(1_000_000)
    model: str = "jmc.atp"
    baselines: tuple[str, ...] = ()
    match: str = "jmc.atp"
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    sizes: SizeConfig = dataclasses.field(default_factory=SizeConfig)
    metric_lengths: tuple[int, ...] = (4, 5, 6, 7, 8, 9, 10)
    lr: float = 4e-3
    lrs: tuple[float, ...] = ()
    warmup_steps: int = 100
    decay_steps: int = 0
    b1: float = 0.9
    b2: float = 0.999
    weight_decay: float = 0.0
    clip: float = 1.0
    eval_batch_size: int = 300

    def validate(self) -> None:
        """See `RunConfig.validate`; also makes the settings of all models, which check themselves."""
        super().validate()
        steps, lrs, baselines = self.steps, self.lrs, self.baselines
        if self.seed >= parts.TEST_SEED:
            raise ValueError(f"seed={self.seed} must be below {parts.TEST_SEED}: the others are for tests")
        for name in ("lr", "weight_decay", "clip", "warmup_steps", "decay_steps"):
            runtime.at_least(name, getattr(self, name), 0)
        for name in ("b1", "b2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be from 0 up to 1")
        runtime.at_least("eval_batch_size", self.eval_batch_size, 1)
        if steps * self.batch_size > 2**32:
            raise ValueError(f"steps={steps} of batch_size={self.batch_size} must be at most 2^32 problems")
        if self.decay_steps and not self.warmup_steps < self.decay_steps >= steps:
            raise ValueError(
                f"decay_steps={self.decay_steps} must be at least steps={steps}, and more than "
                f"warmup_steps={self.warmup_steps}"
            )
        if len(lrs) not in (0, len(baselines)):
            raise ValueError(f"lrs={lrs} must be one for each of the {len(baselines)} baselines, or ()")
        if len(set(self.models)) != len(self.models):
            raise ValueError(f"baselines={baselines} must differ from each other and from {self.model!r}")
        self.data.validate()
        if not self.metric_lengths or set(self.metric_lengths) - set(self.data.test_lengths):
            raise ValueError(
                f"metric_lengths={self.metric_lengths} must be some of data.test_lengths="
                f"{self.data.test_lengths}"
            )
        for name in self.models:
            self.settings(name)

    @property
    def models(self) -> tuple[str, ...]:
        """The model and its baselines."""
        return (self.model, *self.baselines)

    @property
    def metric(self) -> str:
        """The name of the metric, in words."""
        lengths = ", ".join(map(str, self.metric_lengths))
        return f"mean accuracy over k = {lengths}, at the last step"

    def for_model(self, name: str) -> "Config":
        """The config of one model's own run."""
        rates = dict(zip(self.baselines, self.lrs, strict=False))
        return dataclasses.replace(self, model=name, baselines=(), lrs=(), lr=rates.get(name, self.lr))

    def takes_relations(self, name: str) -> bool:
        """Whether a model is given the graph as relations of pairs."""
        return self.data.form == parts.GRAPH and name not in parts.WITHOUT_RELATIONS

    def settings(self, name: str) -> FOLNetConfig | TransformerConfig:
        """A model's own settings, matched in parameters; ValueError for what does not fit."""
        field = "model" if name == self.model else "baselines"
        reference = self._folnet("match", self.match) if self.match else None
        if name not in parts.TRANSFORMERS:
            settings = self._folnet(field, name)
            return settings if reference is None else matched_folnet(settings, num_of(reference))
        changes = self._inputs(name) | {"absolute_position": name == parts.BERT}
        if name == parts.T5:
            changes["relative_position"] = "t5"
        elif name == parts.RELATION_AWARE and self.data.form == parts.TEXT:
            changes |= {"relative_position": "shaw", "max_distance": self.sizes.max_distance}
        with naming(f"{field}={name!r}"):
            if reference is not None:
                return matched_to(reference, **changes)
            known = {key.name for key in dataclasses.fields(TransformerConfig)}
            sizes = {key: size for key, size in dataclasses.asdict(self.sizes).items() if key in known}
            return TransformerConfig.from_dict(sizes | changes)

    def make(self, name: str) -> FOLNetForSequenceClassification:
        """A model; it answers from its first token, as all do."""
        return FOLNetForSequenceClassification(self.settings(name))

    def reader(self, name: str, source: kinship.Kinship) -> Reader:
        """What turns problems into what a model reads."""
        if self.takes_relations(name):
            return Graph(self.data.room(source).people, inverses=self.data.inverses)
        return self._written(self.data.largest() if self.data.spread else self.data.room(source))

    def _written(self, room: Room) -> Written:
        kind = Text if self.data.form == parts.TEXT else WrittenGraph
        return kind(room, self.data.largest().people, spread=self.data.spread)

    def make_optimizer(self) -> optax.GradientTransformation:
        """Adam, with the schedule, clipping and weight decay of the config."""
        steps = max(self.warmup_steps, 1)

        def rate(count):
            t = jnp.asarray(count, jnp.float32)
            rising = jnp.minimum((t + 1) / steps, 1)
            if not self.decay_steps:
                return self.lr * rising
            left = (self.decay_steps - t) / max(self.decay_steps - steps, 1)
            return self.lr * jnp.minimum(rising, jnp.maximum(left, 0))

        parts = [optax.clip_by_global_norm(self.clip)] if self.clip else []
        return optax.chain(*parts, optax.adamw(rate, b1=self.b1, b2=self.b2, weight_decay=self.weight_decay))

    def _inputs(self, name: str) -> dict[str, Any]:
        """The settings that say what a model reads, and how many classes it tells apart."""
        classes = {"num_labels": len(kinship.TARGETS)}
        if self.takes_relations(name):
            relations = kinship.RELATION_VOCAB_SIZE * (1 + self.data.inverses)
            return classes | {"vocab_size": kinship.VOCAB_SIZE, "relation_vocab_size": relations}
        reader = self._written(self.data.largest())
        sizes = {"vocab_size": reader.vocab_size, "max_position_embeddings": reader.length}
        return classes | sizes | {"relation_vocab_size": 0}

    def _folnet(self, field: str, operators: str) -> FOLNetConfig:
        """A FOLNet with the sizes as they are."""
        if "." not in operators:
            raise ValueError(
                f"{field}={operators!r} is no model: expected a FOLNet's operators, such as 'jmc.atp'"
                + (f", or one of {', '.join(parts.TRANSFORMERS)}" if field != "match" else "")
            )
        relative = "folnet" if self.data.form == parts.TEXT else "none"
        own = {"operators": operators, "relative_position": relative}
        with naming(f"{field}={operators!r}"):
            sizes = dataclasses.asdict(self.sizes)
            return FOLNetConfig.from_dict(sizes | self._inputs(operators) | own)


@functools.cache
def num_of(settings: FOLNetConfig) -> int:
    """Parameters of a FOLNet without its head; nothing is computed."""
    return num_parameters(FOLNet(settings))


def matched_folnet(settings: FOLNetConfig, parameters: int) -> FOLNetConfig:
    """`folnet.matched_to` for FOLNets, by the unary boolean operator's width; ValueError if 1 is too wide."""
    one, two = (num_of(settings.replace(intermediate_size=width)) for width in (1, 2))
    width = 1 + round((parameters - one) / (two - one))  # each adds as many
    if width < 1:
        raise ValueError(
            f"match gives {parameters} parameters, expected at least the {one} of {settings.operators!r} "
            "with a boolean operator of width 1"
        )
    return settings.replace(intermediate_size=width)


def quick() -> Config:
    """FOLNet with all operators against one with join, assoc and trans, trained on chains of 2 and 3 facts.

    109,914 and 109,950 parameters; 20 s of training each. Both know all problems of 2 and 3 facts after some
    300 steps. They differ on longer ones, but one seed supports no conclusion: results/kinship has several.
    Of the learning rates 1e-3, 2e-3 and 4e-3, tried with one seed that is not among those, the last was the
    best of both models. It took 157 s in all on two busy CPU cores; on idle ones it should take about 80.
    """
    return Config(
        baselines=("j.at",),
        steps=100_000,
        max_seconds=20.0,
        log_every=50,
        checkpoint_every=500,
        eval_every=100,
    )


def ablation() -> Config:
    """`quick` for 150 seconds per model, with more test problems: results/kinship has it over three seeds.

    `python -m benchmarks.learning --only=kinship` runs it model by model and seed by seed; a run takes about
    three minutes on two CPU cores with compiling and measuring.
    """
    config = quick()
    data = dataclasses.replace(config.data, test_problems=500)
    return dataclasses.replace(config, max_seconds=150.0, eval_every=200, log_every=100, data=data)


def accelerator() -> Config:
    """All four families for ten minutes each on one accelerator, trained on chains of 2 and 3; not run here.

    Five seeds are `for seed in 0 1 2 3 4; do ... --config.seed=$seed --workdir=runs/kinship-$seed; done`, or
    `python -m benchmarks.learning --only=kinship --presets=accelerator --seeds=5
    --variants=jmc.atp,j.at,relation_aware,bert,t5`. The metric, named before any run, is the mean accuracy
    over k = 4 to 10 at the last step. BERT and T5, which take no relations of pairs, read the graph as
    tokens.
    """
    return Config(
        baselines=("j.at", parts.RELATION_AWARE, parts.BERT, parts.T5),
        lr=1e-3,
        steps=1_000_000,
        max_seconds=600.0,
        batch_size=512,
        log_every=100,
        checkpoint_every=2000,
        eval_every=500,
        eval_batch_size=900,
        warmup_steps=500,
        sizes=SizeConfig(
            hidden_size=128,
            relation_size=64,
            num_hidden_layers=4,
            num_attention_heads=8,
            head_size=16,
            intermediate_size=256,
            relation_intermediate_size=128,
        ),
        data=DataConfig(pool=200_000, test_problems=1000),
    )


def accelerator_234() -> Config:
    """`accelerator`, trained on chains of 2, 3 and 4 facts; the metric is over k = 5 to 10; not run here."""
    config = accelerator()
    data = dataclasses.replace(config.data, train_lengths=(2, 3, 4))
    return dataclasses.replace(config, data=data, metric_lengths=(5, 6, 7, 8, 9, 10))


def text() -> Config:
    """`accelerator` on stories instead of graphs, which all models read as word pieces; not run here.

    These models are not comparable with those of the paper's Figure 5, pretrained on 160 GB of text.
    """
    config = accelerator()
    data = dataclasses.replace(config.data, form=parts.TEXT)
    return dataclasses.replace(config, batch_size=128, eval_batch_size=100, data=data)


get_config = runtime.Presets(
    quick=quick, ablation=ablation, accelerator=accelerator, accelerator_234=accelerator_234, text=text
)
