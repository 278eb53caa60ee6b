"""The parts of the config that other programs share: the model and the text."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

from experiments import runtime
from folnet import FOLNetConfig, FOLNetForPreTraining, pretraining
from folnet.configuration import Activation, CJoin, Remat
from folnet.configuration import RelativePosition as FOLNetPosition
from folnet.pretraining import Cut, Objective, Packing
from folnet.pretraining.files import MANIFEST, Manifest
from folnet.tokenization import WordPieceTokenizer
from folnet.transformer_configuration import RelativePosition as TransformerPosition
from folnet.transformer_configuration import TransformerConfig

FOLNET: Final = "folnet"
TRANSFORMER: Final = "transformer"
NONE: Final = "none"
Architecture = Literal["folnet", "transformer"]
Baseline = Literal["none", "transformer"]
RelativePosition = Literal[FOLNetPosition, TransformerPosition]
"""The choices of both architectures; `ModelConfig.settings` checks the choice for the model's own."""
CutOrDefault = Literal["", Cut]


@dataclasses.dataclass
class ModelConfig:
    """The model; the defaults are FOLNet Base, and `folnet.FOLNetConfig` describes the fields.

    A Transformer ignores `relation_size`, `relation_intermediate_size`, `operators`, `cjoin` and
    `diagonal_link`.

    Attributes:
        name: "folnet" or "transformer".
        vocab_size: rows of the word embeddings; at least the size of the text's vocabulary.
    """

    name: Architecture = FOLNET
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
    relative_position: RelativePosition = "folnet"
    absolute_position: bool = False
    max_position_embeddings: int = 512
    activation: Activation = "gelu"
    cjoin: CJoin = "released"
    diagonal_link: bool = False
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    dtype: str = "float32"
    remat: Remat = "none"

    def settings(self, pretrain_loss: str = "MLM") -> FOLNetConfig | TransformerConfig:
        """Returns the settings of the model's class; raises ValueError for an invalid field."""
        runtime.one_of("model.name", self.name, get_args(Architecture))
        kind = FOLNetConfig if self.name == FOLNET else TransformerConfig
        known = {field.name for field in dataclasses.fields(kind)}
        fields = {name: value for name, value in dataclasses.asdict(self).items() if name in known}
        try:
            return kind(pretrain_loss=pretrain_loss, **fields)
        except ValueError as error:
            raise ValueError(f"model.{error}") from error

    def make(self, pretrain_loss: str = "MLM") -> FOLNetForPreTraining:
        """Returns the flax module; raises ValueError for an invalid field."""
        return FOLNetForPreTraining(self.settings(pretrain_loss))

    def as_transformer(self, **changes: Any) -> "ModelConfig":
        """Returns the config of a Transformer like BERT with these widths and layers, and with `changes`."""
        bert: dict[str, Any] = {"name": TRANSFORMER, "relative_position": "none", "absolute_position": True}
        if self.remat == "relation_boolean":
            bert["remat"] = "none"  # a Transformer has no relations to rematerialize
        return dataclasses.replace(self, **(bert | changes))


def small(**fields: Any) -> ModelConfig:
    """Returns a FOLNet of about a quarter of a million parameters without its words, for presets on a CPU."""
    sizes = ModelConfig(
        hidden_size=96,
        relation_size=12,
        num_hidden_layers=2,
        num_attention_heads=4,
        head_size=24,
        intermediate_size=192,
        relation_intermediate_size=24,
        max_distance=16,
    )
    return dataclasses.replace(sizes, **fields)


class Text(NamedTuple):
    """The training and held-out windows of a run, and their tokenizer."""

    train: pretraining.Windows
    held_out: pretraining.Windows
    tokenizer: WordPieceTokenizer


@dataclasses.dataclass
class TextConfig:
    """The text and the windows that it is cut into; see `folnet.pretraining` for details.

    Attributes:
        directory: windows prepared by `experiments.folnet_pretrain.data`; "" prepares `source` in memory.
        source: "python" (the language reference included with Python), or a folder or file in a format that
            `experiments.folnet_pretrain.data` reads.
        new_vocabulary: maximum size of the vocabulary learned from `source`.
        vocabulary: a vocabulary file for `source`, or a model's folder with one; "" learns a vocabulary.
        held_out: fraction of the documents of `source` held out from training.
        packing: how windows of `source` are filled; see `folnet.pretraining.Packing`.
        length: tokens per example, T; must match the directory's.
        lowercase: whether the text is lowercased, as for FOLNet; must match the directory's.
    """

    directory: str = ""
    source: str = pretraining.PYTHON
    new_vocabulary: int = 1500
    vocabulary: str = runtime.added("")
    held_out: float = 0.2
    packing: Packing = "document"
    length: int = 128
    lowercase: bool = True

    def validate(self) -> None:
        """Checks the fields without reading the text; raises ValueError for an invalid one."""
        runtime.one_of("data.packing", self.packing, pretraining.PACKINGS)
        runtime.at_least("data.length", self.length, 8)
        if not self.directory and not 0 < self.held_out < 1:
            raise ValueError(f"data.held_out: got {self.held_out}, expected 0 < held_out < 1")
        if self.directory and self.vocabulary:
            raise ValueError(
                f"data.vocabulary: got {self.vocabulary!r}, expected none with data.directory, which has one"
            )

    def open(self) -> Text:
        """Returns the prepared text.

        Raises:
            ValueError: the text is missing (the message gives the command that prepares it), or was prepared
                with different settings.
        """
        if self.directory:
            return self._prepared()
        documents = pretraining.open_documents(self.source)
        learned = (
            document.text
            for document in documents
            if not pretraining.is_held_out(document.text, self.held_out)
        )
        tokenizer = self.tokenizer_of(learned)
        split = pretraining.prepare(
            documents, tokenizer, length=self.length, packing=self.packing, held_out=self.held_out
        )
        if not len(split.held_out):
            raise ValueError(
                f"data.held_out: got {self.held_out}, expected a larger fraction, or more documents (blank "
                f"lines separate those of a file): none of the {sum(1 for _ in documents)} of "
                f"data.source={self.source} is held out"
            )
        return Text(*split, tokenizer)

    def tokenizer_of(self, texts: Iterable[str]) -> WordPieceTokenizer:
        """Returns the tokenizer of `vocabulary`, or one learned from texts; raises ValueError."""
        if not self.vocabulary:
            return WordPieceTokenizer.train(texts, self.new_vocabulary, lowercase=self.lowercase)
        if not Path(self.vocabulary).expanduser().is_dir():
            return WordPieceTokenizer.load(self.vocabulary, lowercase=self.lowercase)
        found = WordPieceTokenizer.from_pretrained(Path(self.vocabulary).expanduser())
        if found.lowercase != self.lowercase:
            raise ValueError(
                f"data.lowercase: got {self.lowercase}, expected {found.lowercase} as in "
                f"data.vocabulary={self.vocabulary}"
            )
        return found

    def _prepared(self) -> Text:
        directory = Path(self.directory).expanduser()
        if not (directory / MANIFEST).is_file():
            raise ValueError(
                f"data.directory: got {self.directory}, expected prepared text. To prepare it, run: "
                "python -m experiments.folnet_pretrain.data --source=TEXT --vocabulary=vocab.txt "
                f"--length={self.length} --out={self.directory}"
            )
        manifest = Manifest.read(directory)
        for name in ("length", "lowercase"):
            if (found := getattr(manifest, name)) != getattr(self, name):
                raise ValueError(
                    f"data.{name}: got {getattr(self, name)}, expected {found} as in "
                    f"data.directory={self.directory}"
                )
        train, held_out = (pretraining.PreparedWindows(directory, split) for split in ("train", "held_out"))
        return Text(train, held_out, train.tokenizer())


@dataclasses.dataclass
class DataConfig(TextConfig):
    """The text and how it becomes examples; see `folnet.pretraining` for details.

    Attributes:
        objective: "sop" (which of two halves came first; the released loader calls it NSP), "nsp", "pair" or
            "single" (both without a sentence task).
        cut: where a window is cut in two: "middle", "sentence", or "" for the objective's default.
        mask_rate: fraction of the tokens to predict.
        whole_words: whether all pieces of a word are masked together.
        dynamic: whether masks and segments are drawn anew in each epoch.
    """

    objective: Objective = "sop"
    cut: CutOrDefault = ""
    mask_rate: float = 0.15
    whole_words: bool = False
    dynamic: bool = True

    @property
    def asks_about_sentences(self) -> bool:
        """Whether the objective has a sentence task, and with it a second loss."""
        return self.objective in ("sop", "nsp")

    @property
    def pretrain_loss(self) -> str:
        """The losses in the paper's notation, such as "MLM.SOP"."""
        return {"sop": "MLM.SOP", "nsp": "MLM.NSP"}.get(self.objective, "MLM")

    @property
    def drawing(self) -> dict[str, Any]:
        """The arguments of `pretraining.PretrainingBatches` that determine how examples are drawn."""
        names = ("objective", "mask_rate", "whole_words", "dynamic")
        return {"cut": self.cut or None} | {name: getattr(self, name) for name in names}

    def validate(self) -> None:
        """Checks the fields without reading the text; raises ValueError for an invalid one."""
        runtime.one_of("data.objective", self.objective, pretraining.OBJECTIVES)
        runtime.one_of("data.cut", self.cut, get_args(CutOrDefault))
        if not 0 < self.mask_rate <= 1:
            raise ValueError(f"data.mask_rate: got {self.mask_rate}, expected 0 < mask_rate <= 1")
        super().validate()
