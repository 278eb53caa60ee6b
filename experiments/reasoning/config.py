"""Configs of language models of pairs, FOLNet on graphs, trunks of agents, published settings and the suite.

python -m experiments.reasoning --config=PRESET --config.FIELD=VALUE --workdir=DIR
"""

import dataclasses
from typing import ClassVar, Final, Literal

import optax

from experiments import runtime
from experiments.reasoning.models import MODELS
from experiments.reasoning.tasks import TASKS
from experiments.reasoning.tasks.paths import NAMES
from experiments.reasoning.text import BYTES
from folnet import FOLNetConfig
from simplicial import SimplicialDecoder

LANGUAGE: Final = "language"
DISTANCES: Final = "distances"
BRIDGES: Final = "bridges"
PUBLISHED: Final = "published_composition"


@dataclasses.dataclass
class Config(runtime.RunConfig):
    """Configures a task, a model and its training.

    Attributes:
        task: "language": a language model learns the bytes of the language reference that comes with Python.
            "distances": a FOLNet in loops learns the lengths of shortest paths in graphs (`graphs`).
            "bridges": the trunk of an agent learns which box of bridge BoxWorld is the bridge (`bridges`).
            "published_composition": a Transformer learns to compose relations as others had it (`published`).
            Any other: a task of the suite (`tasks.TASKS`) with any of its models.
        model: a model of the suite (`models.MODELS`); "" for the tasks named above, which have their own.
        every: blocks `every`, 2 * `every`, ... attend to pairs (Roy et al. 2025: 4); 0 for none.
        features: size of an embedding.
        num_layers: number of blocks; those of the suite that apply one layer again and again have their own
            number.
        num_heads: heads of every attention.
        hidden: hidden size of the feed-forward layers.
        window1: how many first keys a query of the pairs sees.
        window2: how many second keys.
        logit: "trilinear" (the paper's) or "signed", with rotary positions.
        length: bytes of an example, or nodes of a training graph.
        lr: the highest learning rate.
        warmup_steps: steps in which it rises from 0.
        schedule_steps: steps after which it has fallen to a tenth, by a cosine.
        weight_decay: of AdamW.
        clip: maximum norm of the gradient.
        operators: of a FOLNet; see `folnet.FOLNetConfig`.
        relations: its number of relations, D2.
        loops: how often its layers are applied.
        virtual_entities: of an agent's trunk; 0 for a relational one.
        pair_features: output features of its 2-simplicial attention.
        pair_logit: logit of that attention, "unsigned" (Clift et al.) or "trilinear".
        bilinear: whether its tensor B is learned; see `simplicial.TwoSimplicialAttention`.
        input_centre: colour value that an agent's trunk sees as 0; see `simplicial.Agent`.
        input_scale: divisor of the centred colour values.
    """

    experiment: ClassVar[str] = "reasoning"
    size_fields: ClassVar[tuple[str, ...]] = (
        *("every", "features", "num_layers", "num_heads", "hidden", "window1", "window2", "logit", "length"),
        *("task", "model", "operators", "relations", "loops"),
        *("virtual_entities", "pair_features", "pair_logit", "bilinear", "input_centre", "input_scale"),
    )

    every: int = 4
    features: int = 96
    num_layers: int = 4
    num_heads: int = 4
    hidden: int = 384
    window1: int = 8
    window2: int = 64
    logit: Literal["trilinear", "signed"] = "trilinear"
    length: int = 128
    lr: float = 2e-3
    warmup_steps: int = 100
    schedule_steps: int = 1000
    weight_decay: float = 0.1
    clip: float = 1.0
    task: str = runtime.added("language")
    model: str = runtime.added("")
    operators: str = runtime.added("jmc.atp")
    relations: int = runtime.added(16)
    loops: int = runtime.added(4)
    virtual_entities: int = runtime.added(2)
    pair_features: int = runtime.added(48)
    pair_logit: Literal["unsigned", "trilinear"] = runtime.added("unsigned")
    bilinear: bool = runtime.added(True)
    input_centre: float = runtime.added(0.0)
    input_scale: float = runtime.added(255.0)

    def validate(self) -> None:
        """See `RunConfig.validate`."""
        super().validate()
        runtime.one_of("task", self.task, (LANGUAGE, DISTANCES, BRIDGES, PUBLISHED, *TASKS))
        self._check_model()
        for name in (
            "features",
            "num_layers",
            "num_heads",
            "hidden",
            "window1",
            "window2",
            "relations",
            "loops",
            "pair_features",
        ):
            runtime.at_least(name, getattr(self, name), 1)
        runtime.at_least("length", self.length, 4 if self.task == DISTANCES else 1)
        if self.task == DISTANCES and self.length > NAMES:
            raise ValueError(f"length: got {self.length}, expected at most {NAMES} nodes")
        for name in ("every", "warmup_steps", "weight_decay", "virtual_entities"):
            runtime.at_least(name, getattr(self, name), 0)
        runtime.at_least("schedule_steps", self.schedule_steps, self.warmup_steps + 1)
        for name in ("lr", "clip", "input_scale"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected more than 0")
        if self.task == DISTANCES:
            self.folnet()
        if self.task == BRIDGES:
            runtime.one_of("pair_logit", self.pair_logit, ("unsigned", "trilinear"))
            runtime.at_least("features", self.features, 3)  # two hold the position

    def _check_model(self) -> None:
        if self.task not in TASKS:
            if self.model:
                raise ValueError(f"model: got {self.model!r}, expected '' with task={self.task!r}")
        else:
            fits = [name for name, model in MODELS.items() if model.fits(TASKS[self.task])]
            runtime.one_of("model", self.model, fits)
        if self.task in (*TASKS, PUBLISHED) and self.features % self.num_heads:
            raise ValueError(
                f"num_heads: got {self.num_heads}, expected a divisor of features={self.features}"
            )

    def make_model(self) -> SimplicialDecoder:
        """Builds the language model."""
        return SimplicialDecoder(
            BYTES,
            features=self.features,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            hidden=self.hidden,
            every=self.every,
            window1=self.window1,
            window2=self.window2,
            logit=self.logit,
        )

    def folnet(self) -> FOLNetConfig:
        """Returns the settings of the FOLNet for graphs.

        Raises:
            ValueError: the operators are unknown.
        """
        return FOLNetConfig(
            vocab_size=NAMES,
            relation_vocab_size=2,  # an edge; a node and itself
            hidden_size=self.features,
            relation_size=self.relations,
            num_hidden_layers=self.num_layers,
            num_attention_heads=self.num_heads,
            head_size=max(self.features // self.num_heads, 1),
            intermediate_size=self.hidden,
            relation_intermediate_size=2 * self.relations,
            operators=self.operators,
            relative_position="none",
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            initializer_range=-1.0,
        )

    def make_optimizer(self) -> optax.GradientTransformation:
        """Builds AdamW with the schedule."""
        rate = optax.warmup_cosine_decay_schedule(
            0.0, self.lr, self.warmup_steps, self.schedule_steps, 0.1 * self.lr
        )
        adamw = optax.adamw(rate, b2=0.98, weight_decay=self.weight_decay)
        return optax.chain(optax.clip_by_global_norm(self.clip), adamw)


def quick() -> Config:
    """The model of the comparison `simplicial.language` for 1,000 steps; a few minutes on two cores."""
    return Config(batch_size=16, log_every=50, checkpoint_every=200, eval_every=200)


def dot_product() -> Config:
    """`quick` without attention to pairs, and with as many parameters."""
    return dataclasses.replace(quick(), every=0, hidden=408)


def distances() -> Config:
    """FOLNet with all operators on graphs of 12 nodes, tested on up to 48; about a minute on one core."""
    return Config(
        task=DISTANCES,
        steps=1000,
        schedule_steps=1000,
        batch_size=16,
        log_every=50,
        checkpoint_every=500,
        eval_every=500,
        length=12,
        features=32,
        num_layers=1,
        num_heads=4,
        hidden=64,
        lr=4e-3,
        weight_decay=0.0,
    )


def suite() -> Config:
    """One run of the suite, a pre-LN Transformer on Match3; about a minute on one core.

    `--config.task=TASK --config.model=MODEL` for any other; see `tasks.TASKS` and `models.MODELS`.
    """
    return Config(
        task="match3",
        model="transformer",
        steps=1000,
        schedule_steps=1000,
        batch_size=64,
        log_every=100,
        checkpoint_every=500,
        eval_every=500,
        features=48,
        num_layers=2,
        num_heads=4,
        hidden=128,
        lr=2e-3,
        weight_decay=0.0,
    )


def bridges() -> Config:
    """The trunk of the paper's simplicial agent on 600,000 boards; about 7 minutes on one core.

    Colours are centred at the floor's. With the paper's input, colour / 255, a trunk needs several times as
    many boards before it learns anything about bridges.
    """
    return Config(
        task=BRIDGES,
        steps=2400,
        batch_size=256,
        accumulate=8,
        log_every=100,
        checkpoint_every=800,
        eval_every=200,
        features=64,
        num_layers=2,
        num_heads=2,
        hidden=64,
        lr=1e-3,
        input_centre=199.0,
        input_scale=64.0,
    )


def published_composition() -> Config:
    """Kozachinskiy et al.'s Transformer of two layers on composed relations, at their sizes; see `published`.

    About half an hour on one core.
    """
    return Config(
        task=PUBLISHED,
        steps=3600,
        batch_size=2500,
        accumulate=10,
        log_every=90,
        checkpoint_every=360,
        eval_every=360,
        features=16,
        num_layers=2,
        num_heads=1,
        lr=1e-3,
        weight_decay=0.01,
    )


get_config = runtime.Presets(
    quick=quick,
    dot_product=dot_product,
    distances=distances,
    bridges=bridges,
    suite=suite,
    published_composition=published_composition,
)
