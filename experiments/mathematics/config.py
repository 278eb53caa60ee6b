"""Configs for training the TP-Transformer and the Transformer on the Mathematics Dataset.

    python -m experiments.mathematics --config=PRESET --config.FIELD=VALUE --workdir=DIR

Each preset's docstring gives the expected result, the hardware and the time. Large sets of questions are
generated beforehand with `python -m experiments.mathematics.data`; small ones are generated when the run
starts.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, get_args

import jax
import jax.numpy as jnp
import optax

from experiments import runtime
from experiments.baselines import matching
from experiments.baselines.gated import GatedTransformer
from experiments.mathematics import symbols
from experiments.mathematics.composed import Composed
from experiments.mathematics.drawn import Drawn
from experiments.mathematics.expressions import Expressions
from tp_transformer import TPTransformer, Transformer, mathematics
from tp_transformer.attention import Implementation
from tp_transformer.mathematics.order import check_buckets
from tp_transformer.model import EncoderDecoder, Initialization

Architecture = Literal["tp_transformer", "transformer", "gated_transformer"]
Dtype = Literal["float32", "bfloat16"]
Attention = Literal["", Implementation]
DATASET: Final = "dataset"
COMPOSED: Final = "composed"
EXPRESSIONS: Final = "expressions"
DRAWN: Mapping[str, type[Drawn]] = {COMPOSED: Composed, EXPRESSIONS: Expressions}
"""Sources of questions other than the dataset's."""
CHOICES = {"name": Architecture, "initialization": Initialization, "dtype": Dtype, "attention": Attention}
ARCHITECTURES: dict[str, Any] = {
    "tp_transformer": TPTransformer,
    "transformer": Transformer,
    "gated_transformer": GatedTransformer,
}
DTYPES: dict[Dtype, Any] = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}
MATCHED, NONE = 0, "none"


@functools.cache  # a run asks several times, and tracing takes a second for large models
def _parameters(fields: tuple[Any, ...]) -> int:
    tokens = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    return matching.count(ModelConfig(*fields).make(), tokens, tokens)


@dataclasses.dataclass
class ModelConfig:
    """Configures one of the architectures; `tp_transformer.model` documents the fields.

    Attributes:
        name: "tp_transformer", "transformer" or "gated_transformer" (see `baselines.gated`); for a baseline
            also "none", which trains no baseline.
        features: model width, d_z in the paper.
        filter_features: feed-forward width, d_f in the paper. For a baseline, 0 chooses the value that best
            matches the model's number of parameters.
        num_heads: number of attention heads, H.
        num_layers: number of encoder layers and of decoder layers, L.
        dropout_rate: dropout rate; 0 in the paper.
        initialization: "released", "xavier" or "uniform".
        dtype: compute dtype, "float32" or "bfloat16"; parameters are float32.
        attention: attention implementation, "xla" or "cudnn"; "" lets JAX choose.
        remat: recompute activations in the backward pass to save memory.
    """

    name: Literal[Architecture, "none"] = "tp_transformer"
    features: int = 512
    filter_features: int = 2048
    num_heads: int = 8
    num_layers: int = 6
    dropout_rate: float = 0.0
    initialization: Initialization = "released"
    dtype: Dtype = "float32"
    attention: Attention = ""
    remat: bool = False

    def make(self, vocabulary: mathematics.Vocabulary = mathematics.DEFAULT) -> EncoderDecoder:
        """Builds the module; raises ValueError for an invalid field."""
        for field, choices in CHOICES.items():
            runtime.one_of(f"model.{field}", getattr(self, field), get_args(choices))
        fields: dict[str, Any] = dataclasses.asdict(self) | {"dtype": DTYPES[self.dtype]}
        kind, attention = ARCHITECTURES[fields.pop("name")], fields.pop("attention") or None
        symbols = {"vocab_size": vocabulary.size, **vocabulary.special_ids}
        return kind(attention_implementation=attention, **symbols, **fields)

    def parameters(self) -> int:
        """Counts the parameters without initializing them; raises ValueError for an invalid field."""
        return _parameters(dataclasses.astuple(self))

    def matched(self, parameters: int) -> "ModelConfig":
        """Returns a copy whose `filter_features` best matches a number of parameters.

        Raises:
            ValueError: the model has more parameters at every `filter_features`.
        """
        one, two = (dataclasses.replace(self, filter_features=n).parameters() for n in (1, 2))
        wanted = 1 + round((parameters - one) / (two - one))  # linear in filter_features
        if wanted < 1:
            raise ValueError(
                f"baseline.features: got {self.features}, which exceeds the model's {parameters} parameters; "
                "expected a smaller value, or filter_features set explicitly"
            )
        return dataclasses.replace(self, filter_features=wanted)


@dataclasses.dataclass
class DataConfig:
    """Configures where questions come from and how they are batched.

    Attributes:
        directory: a folder of text files (v1.0, or made by `experiments.mathematics.data`) or a TFDS folder;
            "" generates questions when the run starts.
        modules: modules to train on; () uses all modules of the training split.
        extrapolation: modules of the extrapolation split to evaluate; () uses all those in `directory`.
        split: "train" (all three levels), "train-easy", "train-medium" or "train-hard".
        train: number of generated questions per module, over the three training levels.
        test: number of generated questions per module in each test split.
        seed: seed for generating questions.
        questions: "dataset"; or "composed" or "expressions", those of `experiments.mathematics.composed` or
            `experiments.mathematics.expressions` instead.
        buckets: batch lengths "SOURCExTARGET" in ascending order; a single bucket mixes all lengths, as in
            the paper.
        validation: number of training questions per module that are held back, evenly spaced ones, and
            measured like the test questions, to choose settings by.
    """

    directory: str = ""
    modules: tuple[str, ...] = ()
    extrapolation: tuple[str, ...] = ()
    split: mathematics.Split = mathematics.TRAIN
    train: int = 3000
    test: int = 200
    seed: int = 0
    buckets: tuple[str, ...] = tuple(f"{source}x{target}" for source, target in mathematics.BUCKETS)
    questions: str = runtime.added(DATASET)
    validation: int = runtime.added(0)

    def validate(self) -> None:
        """Checks everything that does not need the files; raises ValueError naming the invalid field."""
        runtime.one_of("data.split", self.split, (mathematics.TRAIN, *mathematics.LEVELS))
        for name, split in (("modules", self.split), ("extrapolation", mathematics.EXTRAPOLATE)):
            if getattr(self, name):
                mathematics.check_modules(split, getattr(self, name))
        runtime.one_of("data.questions", self.questions, (DATASET, *DRAWN))
        runtime.at_least("data.validation", self.validation, 0)
        if not self.directory and self.validation >= self.train:
            raise ValueError(
                f"data.validation: got {self.validation}, expected less than data.train = {self.train}"
            )
        if self.questions in DRAWN and (self.directory or self.modules or self.extrapolation):
            raise ValueError(
                f"data.questions: got {self.questions!r}, expected no directory, modules or extrapolation "
                "with it"
            )
        if not self.directory:
            if not self.modules and self.questions not in DRAWN:
                raise ValueError("data.modules: got none, expected modules because data.directory is empty")
            self.open()
        self.shapes()

    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Parses `buckets` into (source, target) lengths; raises ValueError for an invalid one."""
        found = []
        for text in self.buckets:
            match = re.fullmatch(r"(\d+)x(\d+)", text)
            if match is None:
                raise ValueError(f"data.buckets: got {text!r}, expected lengths such as '64x14'")
            found.append((int(match[1]), int(match[2])))
        try:
            return check_buckets(found)
        except ValueError as error:
            raise ValueError(f"data.{error}") from error

    def open(self) -> mathematics.Source:
        """Opens the questions; raises ValueError if there are none or they cannot be generated."""
        if self.questions in DRAWN:
            return DRAWN[self.questions](self.train, self.test, self.seed)
        if self.directory:
            return mathematics.open_source(self.directory)
        return mathematics.Generator(self.train, self.test, self.modules, self.extrapolation, self.seed)

    def test_modules(self, source: mathematics.Source) -> dict[mathematics.Split, tuple[str, ...]]:
        """Returns the modules to evaluate, by test split."""
        found: dict[mathematics.Split, tuple[str, ...]] = {
            mathematics.INTERPOLATE: self.modules or source.modules(mathematics.INTERPOLATE)
        }
        if self.questions in DRAWN:
            found[mathematics.EXTRAPOLATE] = source.modules(mathematics.EXTRAPOLATE)
        elif self.extrapolation:
            found[mathematics.EXTRAPOLATE] = self.extrapolation
        elif self.directory and not self.modules and not isinstance(source, mathematics.TFDSDirectory):
            found[mathematics.EXTRAPOLATE] = source.modules(mathematics.EXTRAPOLATE)
        return {split: names for split, names in found.items() if names}


@dataclasses.dataclass
class Config(runtime.RunConfig):
    """Configures a model, its data and its training.

    Attributes:
        data: see `DataConfig`.
        model: the model to train; see `ModelConfig`.
        baseline: the model to train afterwards on the same batches for the same number of steps; its name
            "none" trains no baseline.
        lr: learning rate of Adam, constant after the warm-up.
        b1: decay rate of Adam's first moment.
        b2: decay rate of Adam's second moment.
        clip: maximum global norm of the gradient; 0 disables clipping.
        warmup_steps: number of steps over which the learning rate rises linearly from 0 to `lr`; 0, as in the
            paper, starts at `lr`.
        eval_batch_size: number of questions per evaluation batch.
        eval_questions: evenly spaced questions per module in evaluations during training; 0 uses all.
        final_questions: questions per module in the final evaluation, decoded greedily; 0 uses all.
        role_questions: questions per module for clustering role vectors.
        role_clusters: number of clusters, k of k-means.
        role_head: index of the head whose role vectors are clustered, from 0.
    """

    experiment: ClassVar[str] = "mathematics"
    size_fields: ClassVar[tuple[str, ...]] = ("model", "data.buckets")

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

    def reordered(self, folder: Path, arrays: dict[str, Any]) -> runtime.Reordered:
        """See `RunConfig.reordered`: rows of symbols are matched by character."""
        return symbols.reordered(folder, arrays)

    def validate(self) -> None:
        """See `RunConfig.validate`; also builds the models to surface their errors early."""
        super().validate()
        for name in ("lr", "clip", "warmup_steps", "eval_questions", "final_questions"):
            runtime.at_least(name, getattr(self, name), 0)
        for name in ("b1", "b2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected a value in [0, 1)")
        for name in ("eval_batch_size", "role_questions", "role_clusters"):
            runtime.at_least(name, getattr(self, name), 1)
        runtime.one_of("role_head", self.role_head, range(self.model.num_heads))
        runtime.at_least("model.filter_features", self.model.filter_features, 1)
        self.data.validate()
        self.model.parameters()
        if self.has_baseline:
            self.for_baseline().model.parameters()

    def make_optimizer(self) -> optax.GradientTransformation:
        """Builds Adam, preceded by gradient clipping if `clip` is set."""
        lr = optax.linear_schedule(0.0, self.lr, self.warmup_steps) if self.warmup_steps else self.lr
        adam = optax.adam(lr, self.b1, self.b2)
        return optax.chain(optax.clip_by_global_norm(self.clip), adam) if self.clip else adam

    @property
    def has_baseline(self) -> bool:
        """Whether a baseline is trained."""
        return self.baseline.name != NONE

    def for_baseline(self) -> "Config":
        """Returns the config of the baseline's run, which differs only in the model."""
        runtime.one_of("baseline.name", self.baseline.name, get_args(Architecture))
        model = self.baseline
        if model.filter_features == MATCHED:
            model = model.matched(self.model.parameters())
        head = min(self.role_head, model.num_heads - 1)
        scratch = self.from_scratch()
        return dataclasses.replace(scratch, model=model, baseline=ModelConfig(name=NONE), role_head=head)


def quick() -> Config:
    """A small TP-Transformer on two modules: digits of numbers, and comparisons of pairs.

    Reaches an exact match of .99 on digits and .53 on comparisons (500 held-out questions each); always
    giving the module's most frequent answer scores .10 and .25. Training takes 105 s on two CPU cores, 124 s
    including question generation, compilation and evaluation. Three seeds in results/mathematics: .87 to 1.00
    and .53 to .59.
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
    """The paper's model, data and optimizer: batches of 1024 from all modules, Adam at 1e-4, clipping at .1.

    Needs `--config.data.directory=DIR` with the published v1.0 or a generated set of its size
    (`experiments.mathematics.data`). The paper reports 80.67% interpolation and 52.48% extrapolation after
    700,000 steps, and 84.24% and 55.40% after 1,700,000, which took 25 days on four V100. We have not run it.
    The authors used `--config.model.dtype=float32` and, mixing all lengths,
    `--config.data.buckets=162x32`. `--config.model.name=transformer` selects their baseline.
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
"""Arithmetic, algebra, ordering and digits; all are fast enough to generate for a large set."""

EXTRAPOLATION_CHOSEN = (
    "arithmetic__add_or_sub_big",
    "arithmetic__mul_big",
    "comparison__kth_biggest_more",
    "numbers__place_value_big",
    "numbers__round_number_big",
)


def modules() -> Config:
    """Ten modules on one accelerator, intended to take ten minutes per run.

    Meant for comparing both architectures with matched parameter counts, at both initializations, with three
    seeds each. Generate the questions first:

        python -m experiments.mathematics.data --out=data/chosen --train=300000 --test=2000 \
            --modules=NAMES        # `MODULES_CHOSEN` and `EXTRAPOLATION_CHOSEN`, with commas between

    The size and the number of steps are estimates for an H200 and have not been measured. On a machine with
    limited sessions, `--config.session_seconds=500` ends a session; the same command resumes the run.
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
