"""The config of FOLNets that write text, and its presets: `python -m experiments.folnet_language`.

Each preset's docstring gives the expected result, the hardware and the running time.
"""

import dataclasses
from pathlib import Path
from typing import ClassVar

import optax

from experiments import runtime
from experiments.folnet_finetune.optimizer import adam
from experiments.folnet_language.data import Data, PairRows, TextRows, read_pairs
from experiments.folnet_pretrain import optimizer
from experiments.folnet_pretrain.parts import FOLNET, ModelConfig, TextConfig, small
from folnet import FOLNetConfig, FOLNetForCausalLM, FOLNetForConditionalGeneration
from folnet.tasks.tables import ENDINGS, SUFFIXES


@dataclasses.dataclass
class DataConfig(TextConfig):
    """The text, or the inputs and targets.

    A text is cut into windows of at most T - 3 tokens. A row is [CLS], a window, and [SEP] where its document
    ends. With packing "corpus", every row is full, documents follow each other with [SEP] in between, and
    words also depend on the end of the document before.

    Attributes:
        pairs: whether `source` is a file of inputs and targets (JSON lines, CSV, TSV or Parquet) instead of
            text. `directory` and `packing` have no meaning then.
        validation: with `pairs`, the file to measure with; "" holds out some rows of `source`.
        input: column of the inputs; "" finds both columns by usual names, such as "input" and "target".
        target: column of the targets.
        target_length: maximum number of tokens of a target, with the [SEP] that ends it; `length` is that of
            an input, [CLS] tokens [SEP]. Longer ones are cut off, and counted in the results.
    """

    pairs: bool = False
    validation: str = ""
    input: str = ""
    target: str = ""
    target_length: int = 64

    def validate(self) -> None:
        """Checks the fields without reading the text; raises ValueError for an invalid one."""
        super().validate()
        runtime.at_least("data.target_length", self.target_length, 2)
        is_table = Path(self.source).suffix in SUFFIXES
        if self.pairs and not is_table:
            raise ValueError(f"data.source: got {self.source!r}, expected a file of pairs: {ENDINGS}")
        if self.pairs and self.directory:
            raise ValueError(f"data.directory: got {self.directory!r}, expected none with data.pairs")
        if self.pairs:
            return
        if is_table and not self.directory:
            raise ValueError(
                f"data.source: got {self.source!r}, expected text; a file of inputs and targets needs "
                "--config=pairs"
            )
        for name in ("validation", "input", "target"):
            if value := getattr(self, name):
                raise ValueError(f"data.{name}: got {value!r}, expected none without data.pairs")

    def open_rows(self) -> Data:
        """Returns the rows to train on and to measure with, and their tokenizer.

        Raises:
            ValueError: files are missing, damaged (with the line) or do not match the settings.
        """
        if not self.pairs:
            text = self.open()
            train, held_out = (TextRows(windows, text.tokenizer) for windows in (text.train, text.held_out))
            return Data(train, held_out, text.tokenizer)
        pairs = read_pairs(self.source, self.validation, self.held_out, self.input, self.target)
        tokenizer = self.tokenizer_of(text for pair in pairs[0] for text in pair)
        train, held_out = (PairRows(some, tokenizer, self.length, self.target_length) for some in pairs)
        return Data(train, held_out, tokenizer)


@dataclasses.dataclass
class Config(runtime.RunConfig):
    """The model, the data and the training settings.

    Attributes:
        data: the text, or the inputs and targets.
        model: the model; `name` can only be "folnet".
        lr: peak learning rate of Adam.
        schedule: "linear", "constant" or "released"; see `folnet_pretrain.optimizer.schedule`.
        warmup: fraction of the steps over which the rate increases.
        b1, b2, eps, weight_decay, clip: arguments of `folnet_finetune.optimizer.adam`.
        eval_batch_size: batch size of evaluations.
        eval_batches: maximum number of batches per evaluation, evenly spaced; 0 means all held-out rows.
        samples: number of held-out rows to continue, or inputs to answer, at the end.
        prompt_tokens: number of tokens of a held-out text that are given.
        new_tokens: maximum number of tokens to write.
        beams: hypotheses of the beam search; 1 for no such samples.
        top_p: least probability of the words that are sampled from; see `kernels.decoding.Sampling`.
    """

    experiment: ClassVar[str] = "folnet_language"
    size_fields: ClassVar[tuple[str, ...]] = ("model", "data.length", "data.pairs", "data.target_length")

    steps: int = 1000  # the schedule depends on it
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    lr: float = 1e-3
    schedule: optimizer.ScheduleName = "linear"
    warmup: float = 0.05
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.01
    clip: float = 1.0
    eval_batch_size: int = 32
    eval_batches: int = 0
    samples: int = 8
    prompt_tokens: int = 8
    new_tokens: int = 24
    beams: int = 4
    top_p: float = 0.9

    def validate(self) -> None:
        """Checks all fields, as `RunConfig.validate` does; also builds the model's settings to check them."""
        super().validate()
        optimizer.check(self)
        for name in ("eval_batches", "samples"):
            runtime.at_least(name, getattr(self, name), 0)
        for name in ("eval_batch_size", "prompt_tokens", "new_tokens", "beams"):
            runtime.at_least(name, getattr(self, name), 1)
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p: got {self.top_p}, expected 0 < top_p <= 1")
        self.data.validate()
        if self.model.name != FOLNET:
            raise ValueError(f"model.name: got {self.model.name!r}, expected {FOLNET!r}, which can write")
        self.model.settings()
        longest = self.model.max_position_embeddings
        needed = max(self.data.length, self.data.target_length if self.data.pairs else 0)
        written = self.new_tokens + (0 if self.data.pairs else self.prompt_tokens)
        if self.model.absolute_position and max(needed, written) > longest:
            raise ValueError(
                f"model.max_position_embeddings: got {longest}, expected at least {max(needed, written)}, "
                "the longest text to read or to write, since positions are absolute"
            )

    def make_model(self) -> FOLNetForCausalLM | FOLNetForConditionalGeneration:
        """Returns the flax module."""
        settings = self.model.settings()
        if not isinstance(settings, FOLNetConfig):
            raise ValueError(f"model.name: got {self.model.name!r}, expected {FOLNET!r}")
        return FOLNetForConditionalGeneration(settings) if self.data.pairs else FOLNetForCausalLM(settings)

    def make_optimizer(self) -> optax.GradientTransformation:
        """Returns Adam with this config's hyperparameters and schedule."""
        rate = optimizer.schedule(self.schedule, self.lr, self.steps, self.warmup)
        names = ("b1", "b2", "eps", "weight_decay", "clip")
        return adam(rate, **{name: getattr(self, name) for name in names}, bias_correction=True)


def quick() -> Config:
    """A small language model of the Python language reference; `--data=FOLDER` reads your own text."""
    return Config(
        data=DataConfig(length=48, packing="corpus"),
        model=small(vocab_size=1504),
        lr=4e-3,
        batch_size=16,
        steps=600,
        log_every=50,
        checkpoint_every=200,
        eval_every=100,
    )


def pairs() -> Config:
    """A small encoder-decoder for a file of inputs and targets: `--config=pairs --data=FILE`.

    The file has columns "input" and "target" or the like, in JSON lines, CSV, TSV or Parquet.
    """
    config = quick()
    data = DataConfig(pairs=True, source="pairs.jsonl", length=32, target_length=32)
    return dataclasses.replace(config, data=data)


get_config = runtime.Presets(quick=quick, pairs=pairs)
