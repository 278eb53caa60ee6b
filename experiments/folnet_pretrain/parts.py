"""The parts of the config that other programs use too: which model, and which text."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

from experiments import runtime
from folnet import FOLNetConfig, FOLNetForPreTraining, pretraining
from folnet.pretraining.files import MANIFEST, Manifest
from folnet.tokenization import WordPieceTokenizer
from folnet.transformer_configuration import TransformerConfig

FOLNET, TRANSFORMER, NONE = "folnet", "transformer", "none"
ARCHITECTURES = (FOLNET, TRANSFORMER)


@dataclasses.dataclass
class ModelConfig:
    """Which model. The defaults are FOLNet Base; `folnet.FOLNetConfig` describes the fields.

    A transformer ignores `relation_size`, `relation_intermediate_size`, `operators`, `cjoin` and
    `diagonal_link`.

    Attributes:
        name: "folnet" or "transformer".
        vocab_size: rows of the table of words; at least the size of the text's vocabulary.
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

    def settings(self, pretrain_loss: str = "MLM") -> FOLNetConfig | TransformerConfig:
        """The model's own settings; ValueError for a field that does not fit."""
        runtime.one_of("model.name", self.name, ARCHITECTURES)
        kind = FOLNetConfig if self.name == FOLNET else TransformerConfig
        known = {field.name for field in dataclasses.fields(kind)}
        fields = {name: value for name, value in dataclasses.asdict(self).items() if name in known}
        try:
            return kind(pretrain_loss=pretrain_loss, **fields)
        except ValueError as error:
            raise ValueError(f"model.{error}") from error

    def make(self, pretrain_loss: str = "MLM") -> FOLNetForPreTraining:
        """The module; ValueError for a field that does not fit."""
        return FOLNetForPreTraining(self.settings(pretrain_loss))

    def as_transformer(self, **changes: Any) -> "ModelConfig":
        """A transformer as BERT is, of the same widths and layers but for the changes."""
        bert = {"name": TRANSFORMER, "relative_position": "none", "absolute_position": True}
        if self.remat == "relation_boolean":
            bert["remat"] = "none"  # it has no relations to compute again
        return dataclasses.replace(self, **(bert | changes))


class Text(NamedTuple):
    """What a run learns from, and what it is measured on."""

    train: pretraining.Windows
    held_out: pretraining.Windows
    tokenizer: WordPieceTokenizer


@dataclasses.dataclass
class DataConfig:
    """Where the text comes from, and how it becomes examples; `folnet.pretraining` says more.

    Attributes:
        directory: windows prepared by `experiments.folnet_pretrain.data`; "" prepares `source` in memory.
        source: "python" (the language reference that comes with Python), or a folder or file as
            `experiments.folnet_pretrain.data` takes it.
        new_vocabulary: of `source`: maximum size of the vocabulary learned from it.
        held_out: of `source`: fraction of the documents that is only measured on.
        packing: of `source`: how windows are filled.
        length: tokens of an example, T; a directory must have been prepared for the same.
        lowercase: whether text is lowercased, as FOLNet's is; of a directory likewise.
        objective: "sop" (which of two halves came first; the released loader calls it NSP), "nsp", "pair" or
            "single" (no question about sentences).
        cut: where a window is cut in two: "middle", "sentence" or "" for the objective's own.
        mask_rate: fraction of the tokens to be predicted.
        whole_words: whether words are masked whole.
        dynamic: whether an example is drawn anew in each epoch.
    """

    directory: str = ""
    source: str = pretraining.PYTHON
    new_vocabulary: int = 1500
    held_out: float = 0.2
    packing: str = "document"
    length: int = 128
    lowercase: bool = True
    objective: str = "sop"
    cut: str = ""
    mask_rate: float = 0.15
    whole_words: bool = False
    dynamic: bool = True

    @property
    def asks_about_sentences(self) -> bool:
        """Whether there is a second loss."""
        return self.objective in ("sop", "nsp")

    @property
    def pretrain_loss(self) -> str:
        """The losses as the paper writes them."""
        return {"sop": "MLM.SOP", "nsp": "MLM.NSP"}.get(self.objective, "MLM")

    @property
    def drawing(self) -> dict[str, Any]:
        """How examples are drawn: arguments of `pretraining.PretrainingBatches`."""
        names = ("objective", "mask_rate", "whole_words", "dynamic")
        return {"cut": self.cut or None} | {name: getattr(self, name) for name in names}

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
            ValueError: it is missing (with the command that makes it), or of another length.
        """
        if self.directory:
            return self._prepared()
        documents = pretraining.open_documents(self.source)
        learned = (
            document.text
            for document in documents
            if not pretraining.is_held_out(document.text, self.held_out)
        )
        tokenizer = WordPieceTokenizer.train(learned, self.new_vocabulary, lowercase=self.lowercase)
        split = pretraining.prepare(
            documents, tokenizer, length=self.length, packing=self.packing, held_out=self.held_out
        )
        if not len(split.held_out):
            raise ValueError(
                f"data.source={self.source} has no text that is held out; raise data.held_out={self.held_out}"
            )
        return Text(*split, tokenizer)

    def _prepared(self) -> Text:
        directory = Path(self.directory).expanduser()
        if not (directory / MANIFEST).is_file():
            raise ValueError(
                f"data.directory={self.directory} holds no prepared text. Make it: python -m "
                "experiments.folnet_pretrain.data --source=TEXT --vocabulary=vocab.txt "
                f"--length={self.length} --out={self.directory}"
            )
        manifest = Manifest.read(directory)
        for name in ("length", "lowercase"):
            if (found := getattr(manifest, name)) != getattr(self, name):
                raise ValueError(
                    f"data.{name}={getattr(self, name)} must be that of data.directory={self.directory}, "
                    f"{found}"
                )
        train, held_out = (pretraining.PreparedWindows(directory, split) for split in ("train", "held_out"))
        return Text(train, held_out, train.tokenizer())
