"""Configs of the TP-Transformer and the Transformer on the Mathematics Dataset.

    python -m experiments.mathematics --config=PRESET --config.FIELD=VALUE --workdir=DIR

Each preset's docstring says what it should reach, on which hardware, in how long. Large sets of questions are
made beforehand by `python -m experiments.mathematics.data`; small ones are drawn when the run starts.
"""

import dataclasses
import re
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax

from experiments import runtime
from tp_transformer import TPTransformer, Transformer, mathematics
from tp_transformer.mathematics.order import check_buckets
from tp_transformer.model import EncoderDecoder

ARCHITECTURES = {"tp_transformer": TPTransformer, "transformer": Transformer}
DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}
CHOICES = {
    "name": ARCHITECTURES,
    "initialization": ("released", "xavier", "uniform"),
    "dtype": DTYPES,
    "attention": ("", "xla", "cudnn"),
}
MATCHED, NONE = 0, "none"


@dataclasses.dataclass
class ModelConfig:
    """One of the two architectures; `tp_transformer.model` says what each field does.

    Attributes:
        name: "tp_transformer" or "transformer"; "none", of a baseline, trains none.
        features: d_z.
        filter_features: d_f; 0, of a baseline, for the one nearest to the model's number of parameters.
        num_heads: H.
        num_layers: L.
        dropout_rate: 0 in the paper.
        initialization: "released", "xavier" or "uniform".
        dtype: type of the products, "float32" or "bfloat16"; parameters are float32.
        attention: implementation of attention: "" leaves the choice to JAX, else "xla" or "cudnn".
        remat: compute inner values again for gradients, to save memory.
    """

    name: str = "tp_transformer"
    features: int = 512
    filter_features: int = 2048
    num_heads: int = 8
    num_layers: int = 6
    dropout_rate: float = 0.0
    initialization: str = "released"
    dtype: str = "float32"
    attention: str = ""
    remat: bool = False

    def make(self, vocabulary: mathematics.Vocabulary = mathematics.DEFAULT) -> EncoderDecoder:
        """The module; ValueError for a field that does not fit."""
        for field, choices in CHOICES.items():
            runtime.one_of(f"model.{field}", getattr(self, field), choices)
        fields: dict[str, Any] = dataclasses.asdict(self) | {"dtype": DTYPES[self.dtype]}
        kind, attention = ARCHITECTURES[fields.pop("name")], fields.pop("attention") or None
        symbols = {"vocab_size": vocabulary.size, "pad": vocabulary.pad}
        return kind(attention_implementation=attention, **symbols, **fields)

    def parameters(self) -> int:
        """Their number, found without computing any; ValueError for a field that does not fit."""
        tokens = jax.ShapeDtypeStruct((1, 2), jnp.int32)
        shapes = jax.eval_shape(self.make().init, jax.random.key(0), tokens, tokens)
        return sum(leaf.size for leaf in jax.tree.leaves(shapes))

    def matched(self, parameters: int) -> "ModelConfig":
        """With the `filter_features` nearest to a number of parameters; ValueError if it always has more."""
        one, two = (dataclasses.replace(self, filter_features=n).parameters() for n in (1, 2))
        wanted = 1 + round((parameters - one) / (two - one))  # each adds as many
        if wanted < 1:
            raise ValueError(
                f"baseline.features={self.features} gives more than the model's {parameters} parameters; "
                "expected a smaller one, or a filter_features of its own"
            )
        return dataclasses.replace(self, filter_features=wanted)


@dataclasses.dataclass
class DataConfig:
    """Where questions come from, and how they make batches.

    Attributes:
        directory: a folder of text files (v1.0, or one that `experiments.mathematics.data` made) or of TFDS;
            "" draws questions when the run starts.
        modules: which; () takes all of the training split.
        extrapolation: modules of the extrapolation set to measure; () for all that the directory has.
        split: "train" (the three levels as one), or one of "train-easy", "train-medium" and "train-hard".
        train: of drawn questions, how many of a module in the three training levels together.
        test: of drawn questions, how many of a module in a test split.
        seed: of drawn questions.
        buckets: lengths "SOURCExTARGET" of batches, growing; one of them mixes all lengths, as in the paper.
    """

    directory: str = ""
    modules: tuple[str, ...] = ()
    extrapolation: tuple[str, ...] = ()
    split: mathematics.Split = mathematics.TRAIN
    train: int = 3000
    test: int = 200
    seed: int = 0
    buckets: tuple[str, ...] = tuple(f"{source}x{target}" for source, target in mathematics.BUCKETS)

    def validate(self) -> None:
        """Checks what can be checked without reading; ValueError naming what is wrong."""
        runtime.one_of("data.split", self.split, (mathematics.TRAIN, *mathematics.LEVELS))
        for name, split in (("modules", self.split), ("extrapolation", mathematics.EXTRAPOLATE)):
            if getattr(self, name):
                mathematics.check_modules(split, getattr(self, name))
        if not self.directory:
            if not self.modules:
                raise ValueError("data.modules must name modules when no data.directory is given, got none")
            self.open()
        self.shapes()

    def shapes(self) -> tuple[tuple[int, int], ...]:
        """The buckets as numbers."""
        found = []
        for text in self.buckets:
            match = re.fullmatch(r"(\d+)x(\d+)", text)
            if match is None:
                raise ValueError(f"data.buckets must be lengths such as '64x14', got {text!r}")
            found.append((int(match[1]), int(match[2])))
        try:
            return check_buckets(found)
        except ValueError as error:
            raise ValueError(f"data.{error}") from error

    def open(self) -> mathematics.Source:
        """The questions; ValueError if the directory has none, or for what cannot be drawn."""
        if self.directory:
            return mathematics.open_source(self.directory)
        return mathematics.Generator(self.train, self.test, self.modules, self.extrapolation, self.seed)

    def test_modules(self, source: mathematics.Source) -> dict[mathematics.Split, tuple[str, ...]]:
        """The modules that are measured, by test split."""
        found: dict[mathematics.Split, tuple[str, ...]] = {
            mathematics.INTERPOLATE: self.modules or source.modules(mathematics.INTERPOLATE)
        }
        if self.extrapolation:
            found[mathematics.EXTRAPOLATE] = self.extrapolation
        elif self.directory and not self.modules and not isinstance(source, mathematics.TFDSDirectory):
            found[mathematics.EXTRAPOLATE] = source.modules(mathematics.EXTRAPOLATE)
        return {split: names for split, names in found.items() if names}


@dataclasses.dataclass
class Config(runtime.RunConfig):
    """A model, its data, and how it is trained.

    Attributes:
        data: the questions.
        model: what is trained.
        baseline: what is trained after it, on the same batches for as many steps; "none" for no baseline.
        lr: Adam's learning rate, constant.
        b1: Adam's first decay.
        b2: Adam's second decay.
        clip: the gradient's global norm is clipped to this; 0 leaves it.
        warmup_steps: over these the learning rate grows to `lr` from 0; 0, as in the paper, starts with it.
        eval_batch_size: questions of an evaluation's batch.
        eval_questions: of a module in an evaluation during training, evenly spaced; 0 takes all.
        final_questions: of a module in the evaluation at the end, decoded greedily; 0 takes all.
        role_questions: of a module, for the clusters of role vectors.
        role_clusters: k of k-means.
        role_head: whose role vectors are clustered, from 0.
    """

    experiment: ClassVar[str] = "mathematics"

    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    baseline: ModelConfig = dataclasses.field(default_factory=lambda: ModelConfig(name=NONE))
    lr: float = 1e-4
    b1: float = 0.9
    b2: float = 0.995
    clip: float = 0.1
    warmup_steps: int = 0
    eval_batch_size: int = 256
    eval_questions: int = 0
    final_questions: int = 0
    role_questions: int = 128
    role_clusters: int = 20
    role_head: int = 0

    def validate(self) -> None:
        """See `RunConfig.validate`; builds the models, so that what they refuse is refused here."""
        super().validate()
        for name in ("lr", "clip", "warmup_steps", "eval_questions", "final_questions"):
            runtime.at_least(name, getattr(self, name), 0)
        for name in ("b1", "b2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be from 0 up to 1")
        for name in ("eval_batch_size", "role_questions", "role_clusters"):
            runtime.at_least(name, getattr(self, name), 1)
        runtime.one_of("role_head", self.role_head, range(self.model.num_heads))
        runtime.at_least("model.filter_features", self.model.filter_features, 1)
        self.data.validate()
        self.model.parameters()
        if self.has_baseline:
            self.for_baseline().model.parameters()

    def make_optimizer(self) -> optax.GradientTransformation:
        """Adam, the gradient clipped before it."""
        lr = optax.linear_schedule(0.0, self.lr, self.warmup_steps) if self.warmup_steps else self.lr
        adam = optax.adam(lr, self.b1, self.b2)
        return optax.chain(optax.clip_by_global_norm(self.clip), adam) if self.clip else adam

    @property
    def has_baseline(self) -> bool:
        """Whether a baseline is trained."""
        return self.baseline.name != NONE

    def for_baseline(self) -> "Config":
        """The config of the baseline's run: the same but for the model."""
        runtime.one_of("baseline.name", self.baseline.name, ARCHITECTURES)
        model = self.baseline
        if model.filter_features == MATCHED:
            model = model.matched(self.model.parameters())
        head = min(self.role_head, model.num_heads - 1)
        return dataclasses.replace(self, model=model, baseline=ModelConfig(name=NONE), role_head=head)


def quick() -> Config:
    """Digits of numbers and comparisons of pairs: a small TP-Transformer, on questions that are drawn first.

    Reaches an exact match of .99 on digits and .53 on comparisons (500 held-out questions each), where always
    giving the module's commonest answer has .10 and .25; in 105 s of training on two CPU cores, 124 s with
    drawing questions, compiling and measuring. Three seeds in results/mathematics: .87 to 1.00, .53 to .59.
    """
    chosen = ("numbers__place_value", "comparison__pair")
    return Config(
        data=DataConfig(modules=chosen, train=15_000, test=500, buckets=("54x16",)),
        model=ModelConfig(features=64, filter_features=128, num_heads=4, num_layers=2),
        lr=3e-3,
        warmup_steps=50,
        batch_size=64,
        steps=1500,
        log_every=50,
        checkpoint_every=250,
        eval_every=250,
        eval_batch_size=100,
        eval_questions=100,
    )


def paper() -> Config:
    """The paper's model, data and optimisation: batches of 1024 of all modules, Adam at 1e-4, clipped at .1.

    Needs `--config.data.directory=DIR` with the published v1.0 or a generated set of its size
    (`experiments.mathematics.data`). The paper reports 80.67 % interpolation and 52.48 % extrapolation at
    700,000 steps, 84.24 % and 55.40 % at 1,700,000, which took 25 days on four V100; it was not run here.
    The authors had `--config.model.dtype=float32` and, mixing all lengths,
    `--config.data.buckets="('162x32',)"`. `--config.model.name=transformer` is their baseline.
    """
    return Config(
        data=DataConfig(directory="data/mathematics_dataset-v1.0"),
        model=ModelConfig(dtype="bfloat16"),
        batch_size=1024,
        steps=700_000,
        log_every=100,
        checkpoint_every=1000,
        eval_every=20_000,
        eval_batch_size=1024,
        eval_questions=500,
    )


MODULES_CHOSEN = (
    "algebra__linear_1d",
    "arithmetic__add_or_sub",
    "arithmetic__mul",
    "calculus__differentiate",
    "comparison__kth_biggest",
    "measurement__time",
    "numbers__gcd",
    "numbers__place_value",
    "numbers__round_number",
    "polynomials__collect",
)
"""Arithmetic, algebra, ordering and reading of digits; each is drawn fast enough for a large set."""

EXTRAPOLATION_CHOSEN = (
    "arithmetic__add_or_sub_big",
    "arithmetic__mul_big",
    "comparison__kth_biggest_more",
    "numbers__place_value_big",
    "numbers__round_number_big",
)


def modules() -> Config:
    """Ten modules, one architecture and initialisation on one accelerator; meant for ten minutes per run.

    `benchmarks.learning --only=mathematics` runs all of a comparison: both architectures, of equally many
    parameters, at both initialisations, with three seeds. Draw the questions first:

        python -m experiments.mathematics.data --out=data/chosen --train=300000 --test=2000 \
            --modules=NAMES        # `MODULES_CHOSEN` and `EXTRAPOLATION_CHOSEN`, with commas between

    The size and the number of steps are estimates for an H200 and were not measured. On a machine that is
    lent for a while, `--config.session_seconds=500` ends a session; the same command continues from there.
    """
    return Config(
        data=DataConfig(directory="data/chosen", modules=MODULES_CHOSEN, extrapolation=EXTRAPOLATION_CHOSEN),
        model=ModelConfig(features=256, filter_features=1024, num_layers=4, dtype="bfloat16"),
        lr=3e-4,
        warmup_steps=500,
        batch_size=512,
        steps=12_000,
        log_every=100,
        checkpoint_every=1000,
        eval_every=2000,
        eval_batch_size=500,
        eval_questions=500,
    )


get_config = runtime.Presets(quick=quick, paper=paper, modules=modules)
