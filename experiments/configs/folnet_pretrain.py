r"""Configs of `experiments/folnet_pretrain.py`: FOLNet, or a transformer, on text with masked words.

    python -m experiments.folnet_pretrain --config=experiments/configs/folnet_pretrain.py:PRESET \
        --config.FIELD=VALUE --workdir=DIR

Each preset's docstring says what it should reach, on which hardware, in how long. What does not fit into
memory is prepared beforehand by `python -m experiments.folnet_data`; small texts when the run starts.
"""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import optax
from flax import linen as nn

from experiments import folnet_optimizer, runtime
from folnet import FOLNetConfig, FOLNetForPreTraining, pretraining, table3
from folnet.pretraining_files import MANIFEST, Manifest
from folnet.tokenization import WordPieceTokenizer

FOLNET, NONE = "folnet", "none"
ARCHITECTURES = (FOLNET,)
MATCHED = 0
TRANSFORMER_ROW = 2
"""The row of Table 3 that is the authors' own BERT."""


@dataclasses.dataclass
class ModelConfig:
    """What is trained; the defaults are FOLNet Base, and `folnet.FOLNetConfig` says what each field does.

    Attributes:
        name: "folnet"; "none", of a baseline, trains none.
        vocab_size: rows of the table of words; at least the pieces of the text's vocabulary.
        hidden_size: D1.
        relation_size: D2.
        num_hidden_layers: L.
        num_attention_heads: H.
        head_size: S.
        intermediate_size: of the unary boolean operator.
        relation_intermediate_size: of the binary one.
        operators: letters of Table 3, such as "jmc.atp".
        max_distance: Delta.
        relative_position: "folnet", "t5" or "none".
        absolute_position: whether there are learned absolute positions.
        max_position_embeddings: the longest text with those.
        activation: of the boolean operators.
        cjoin: "released" or "paper".
        diagonal_link: an option of the released code.
        hidden_dropout_prob: dropout of base atoms and conclusions.
        attention_probs_dropout_prob: dropout of kernels.
        dtype: of the computation; parameters are float32.
        remat: what the backward pass computes again, to save memory.
    """

    name: str = FOLNET
    vocab_size: int = 30528
    hidden_size: int = 768
    relation_size: int = 64
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    head_size: int = 64
    intermediate_size: int = 3072
    relation_intermediate_size: int = 256
    operators: str = "jmc.atp"
    max_distance: int = 64
    relative_position: str = "folnet"
    absolute_position: bool = False
    max_position_embeddings: int = 512
    activation: str = "gelu"
    cjoin: str = "released"
    diagonal_link: bool = False
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    dtype: str = "float32"
    remat: str = "none"

    def settings(self, pretrain_loss: str = "MLM.SOP") -> FOLNetConfig:
        """The model's own settings; ValueError for a field that does not fit."""
        fields = dataclasses.asdict(self)
        del fields["name"]
        try:
            return FOLNetConfig(pretrain_loss=pretrain_loss, **fields)
        except ValueError as error:
            raise ValueError(f"model.{error}") from error

    def make(self, pretrain_loss: str = "MLM.SOP") -> nn.Module:
        """The module; ValueError for a field that does not fit."""
        runtime.one_of("model.name", self.name, ARCHITECTURES)
        return FOLNetForPreTraining(self.settings(pretrain_loss))


class Text(NamedTuple):
    """What a run learns from, and what it is measured on."""

    train: pretraining.Windows
    held_out: pretraining.Windows
    tokenizer: WordPieceTokenizer


@dataclasses.dataclass
class DataConfig:
    """Where the text comes from, and how it becomes examples; `folnet.pretraining` says more.

    Attributes:
        directory: windows that `experiments.folnet_data` has prepared; "" prepares `source` in memory. What
            they were made with (their length, vocabulary, ...) is then written there, not here.
        source: a text that fits into memory: "python" is the reference of the Python language, which every
            Python brings along; else a folder or file as `experiments.folnet_data` takes it.
        new_vocabulary: of `source`: pieces of the vocabulary made of it, at most.
        held_out: of `source`: part of the documents that is only measured on.
        packing: of `source`: how windows are filled.
        length: tokens of an example, T; a directory must have been prepared for the same.
        objective: "sop" (which of two halves came first; the released loader's, which calls it NSP), "nsp",
            "pair" or "single" (no question about sentences).
        cut: where a window is cut in two: "middle", "sentence" or "" for the objective's own.
        mask_rate: part of the tokens to be predicted.
        whole_words: whether words are masked whole.
        dynamic: whether an example is drawn anew in each epoch.
    """

    directory: str = ""
    source: str = pretraining.PYTHON
    new_vocabulary: int = 1500
    held_out: float = 0.2
    packing: str = "document"
    length: int = 128
    objective: str = "sop"
    cut: str = ""
    mask_rate: float = 0.15
    whole_words: bool = False
    dynamic: bool = True

    @property
    def pretrain_loss(self) -> str:
        """The losses as the paper writes them."""
        return {"sop": "MLM.SOP", "nsp": "MLM.NSP"}.get(self.objective, "MLM")

    def validate(self) -> None:
        """Checks what can be checked without reading; ValueError naming what is wrong."""
        runtime.one_of("data.objective", self.objective, pretraining.OBJECTIVES)
        runtime.one_of("data.cut", self.cut, ("", *pretraining.CUTS))
        runtime.one_of("data.packing", self.packing, pretraining.PACKINGS)
        runtime.at_least("data.length", self.length, 8)
        if not 0 < self.mask_rate <= 1:
            raise ValueError(f"data.mask_rate={self.mask_rate} must be above 0, and 1 at most")
        if not self.directory and not 0 < self.held_out < 1:
            raise ValueError(f"data.held_out={self.held_out} must be between 0 and 1")

    def open(self) -> Text:
        """The text, prepared.

        Raises:
            ValueError: there is none where the config says, with the command that makes it, or it is of
                another length.
        """
        if self.directory:
            return self._prepared()
        documents = pretraining.open_documents(self.source)
        learned = (
            document.text
            for document in documents
            if not pretraining.is_held_out(document.text, self.held_out)
        )
        tokenizer = WordPieceTokenizer.train(learned, self.new_vocabulary)
        split = pretraining.prepare(
            documents, tokenizer, length=self.length, packing=self.packing, held_out=self.held_out
        )
        if not len(split.held_out):
            raise ValueError(
                f"data.source={self.source} has no text of held-out documents; raise data.held_out={self.held_out}"
            )
        return Text(*split, tokenizer)

    def _prepared(self) -> Text:
        directory = Path(self.directory).expanduser()
        if not (directory / MANIFEST).is_file():
            raise ValueError(
                f"data.directory={self.directory} holds no prepared text. Make it: python -m "
                f"experiments.folnet_data --source=TEXT --vocabulary=vocab.txt --length={self.length} "
                f"--out={self.directory}"
            )
        if (found := Manifest.read(directory).length) != self.length:
            raise ValueError(
                f"data.length={self.length} must be that of data.directory={self.directory}, {found}"
            )
        train, held_out = (pretraining.PreparedWindows(directory, split) for split in ("train", "held_out"))
        return Text(train, held_out, train.tokenizer())


@dataclasses.dataclass
class Config(runtime.RunConfig):
    """A model, its text, and how it is trained; the defaults are Table 8's for FOLNet Base on 16 GB.

    Attributes:
        steps: number of updates; the learning rate depends on it, so it cannot be raised later.
        data: the text.
        model: what is trained.
        baseline: what is trained beside it, on the same batches, for as many steps and then for as many
            seconds; "none" trains none.
        row: of Table 3: its operators, relations, positions and losses take the place of those of `model`
            and `data`; 0 leaves them.
        lr: peak of LAMB's learning rate.
        schedule: "released", "linear" or "constant"; see `experiments.folnet_optimizer`.
        warmup: part of the steps over which the rate rises.
        b1: LAMB's beta 1.
        b2: LAMB's beta 2.
        eps: LAMB's epsilon.
        weight_decay: of all but biases.
        clip: the gradient's global norm at most; 0 leaves it.
        accumulate: parts in which a batch is gone through, for what does not fit into memory at once.
        mask_padding: whether tokens do not see padding; as released, they do.
        eval_batch_size: examples of an evaluation's batch.
        eval_batches: of an evaluation, at most; 0 takes all held-out text.
        eval_masks: how many times held-out text is gone through, each time with other words masked.
        shown: masked words to show with what stands there, from as many held-out windows.
    """

    steps: int = 8000
    batch_size: int = 131_072
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    baseline: ModelConfig = dataclasses.field(default_factory=lambda: ModelConfig(name=NONE))
    row: int = 0
    lr: float = 1e-2
    schedule: str = "linear"
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
    shown: int = 12

    def validate(self) -> None:
        """See `RunConfig.validate`; builds the models, so that what they refuse is refused here."""
        super().validate()
        for name in ("lr", "eps", "weight_decay", "clip", "eval_batches", "shown"):
            runtime.at_least(name, getattr(self, name), 0)
        for name in ("b1", "b2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be from 0 up to 1")
        if not 0 <= self.warmup <= 1:
            raise ValueError(f"warmup={self.warmup} must be a part of the steps, from 0 to 1")
        for name in ("accumulate", "eval_batch_size", "eval_masks"):
            runtime.at_least(name, getattr(self, name), 1)
        runtime.one_of("schedule", self.schedule, folnet_optimizer.SCHEDULES)
        self.data.validate()
        resolved = self.resolved()
        resolved.model.make(resolved.data.pretrain_loss)
        if self.has_baseline:
            self.for_baseline().model.make()

    def resolved(self) -> "Config":
        """The same with the row of Table 3 filled in; ValueError for a row that is not there."""
        if not self.row:
            return self
        row = table3(self.row)
        fields = ("operators", "relation_size", "relation_intermediate_size", "relative_position")
        model = {name: getattr(row, name) for name in (*fields, "absolute_position")}
        objective = row.pretrain_loss.removeprefix("MLM.").lower()
        return dataclasses.replace(
            self,
            row=0,
            model=dataclasses.replace(self.model, **model),
            data=dataclasses.replace(self.data, objective=objective),
        )

    def make_schedule(self) -> optax.Schedule:
        """The learning rate of each update."""
        return folnet_optimizer.schedule(self.schedule, self.lr, self.steps, self.warmup)

    def make_optimizer(self) -> optax.GradientTransformation:
        """LAMB, as released."""
        return folnet_optimizer.lamb(
            self.make_schedule(),
            b1=self.b1,
            b2=self.b2,
            eps=self.eps,
            weight_decay=self.weight_decay,
            clip=self.clip,
        )

    @property
    def has_baseline(self) -> bool:
        """Whether a baseline is trained."""
        return self.baseline.name != NONE

    def for_baseline(self) -> "Config":
        """The config of the baseline's run: the same but for the model."""
        runtime.one_of("baseline.name", self.baseline.name, ARCHITECTURES)
        return dataclasses.replace(self, model=self.baseline, baseline=ModelConfig(name=NONE))


def parameters(model: nn.Module) -> int:
    """How many a model has, found without computing any."""
    tokens = jax.ShapeDtypeStruct((1, 8), "int32")
    shapes: Any = jax.eval_shape(model.init, jax.random.key(0), tokens)
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def quick() -> Config:
    """A small FOLNet on the reference of the Python language."""
    return Config(
        data=DataConfig(length=48),
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
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        ),
        lr=2e-2,
        schedule="constant",
        warmup=0.05,
        batch_size=32,
        steps=600,
        log_every=50,
        checkpoint_every=300,
        eval_every=100,
        eval_masks=4,
    )


get_config = runtime.presets(quick=quick)
