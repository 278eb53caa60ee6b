"""Loads models of the Mathematics Dataset from runs, released and pretrained folders, and the authors' files.

From Python: `load("runs/mathematics").answer(["What is 2 + 2?"])`.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from experiments.exporting.interface import BATCH, LENGTH, Exportable, Input, Output, describe_source
from experiments.mathematics import measures, train
from experiments.mathematics.config import Config
from experiments.runtime import releasing, torch_files
from logic_zoo.folders import WEIGHTS_FILE
from tp_transformer import beam_search, convert, mathematics, pretrained
from tp_transformer.model import EncoderDecoder

TORCH = (".pt", ".pth", ".bin")
AUTHORS_HEADS = 8


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained model with its parameters and vocabulary.

    Attributes:
        model: the module.
        params: its parameters.
        vocabulary: the mapping between characters and token ids.
        step: number of updates; None if unknown.
        config: the run's config; None for weights that are not a run's.
        questions: the folder of generated questions in the run's directory; None if there is none.
    """

    model: EncoderDecoder
    params: Any
    vocabulary: mathematics.Vocabulary = mathematics.DEFAULT
    step: int | None = None
    config: Config | None = None
    questions: Path | None = None

    def __post_init__(self):
        """Raises ValueError unless the model has the vocabulary's size and ids."""
        pretrained.check_vocabulary(self.model, self.vocabulary)

    def save_pretrained(self, directory: Path | str) -> None:
        """Writes the model and its vocabulary to a directory for `from_pretrained`."""
        self.model.save_pretrained(directory, self.params, self.vocabulary)

    def encode(self, questions: Sequence[str]) -> Int[Array, "B S"]:
        """Encodes questions as token ids [B, S], with S the smallest bucket length that fits.

        Raises:
            ValueError: there are no questions, or one is too long or has an unknown character.
        """
        if not questions:
            raise ValueError("questions: got none, expected at least one")
        longest, most = max(map(len, questions)), mathematics.MAX_QUESTION
        if longest > most:
            raise ValueError(f"questions: got one of {longest} characters, expected at most {most}")
        length = next(source for source, _ in mathematics.BUCKETS if source >= longest + 2)
        return jnp.asarray(self.vocabulary.encode_batch(list(questions), length))

    def answer(self, questions: Sequence[str]) -> list[str]:
        """Returns the greedily decoded answer to each question."""
        tokens = measures.decode(self.model, self.params, self.encode(questions))
        return [self.vocabulary.decode(row) for row in np.asarray(tokens)]

    def beam(self, question: str, beams: int) -> list[tuple[str, float]]:
        """Returns the most likely answers with their probabilities, in descending order."""
        asked, most = self.encode([question]), measures.LONGEST
        found = beam_search(self.model, self.params, asked, max_length=most, beams=beams)
        logs = np.asarray(found.log_probabilities)[0]
        texts = map(self.vocabulary.decode, np.asarray(found.tokens)[0])
        return [(text, float(np.exp(log))) for text, log in zip(texts, logs, strict=True) if np.isfinite(log)]


def load(path: Path | str, *, step: int | None = None, num_heads: int = AUTHORS_HEADS) -> Trained:
    """Loads a trained model.

    Args:
        path: a run's directory, a released folder, the name of a released model (`releasing.find`), a folder
            that `save_pretrained` wrote, or a file of the authors' weights (.pt, .pth, .bin).
        step: step of the checkpoint of a run; the last one by default.
        num_heads: number of heads of the authors' model; their files do not record it.

    Raises:
        ValueError: the path is none of these, the file is damaged or has the weights of another model, or it
            has no steps and one was asked for.
        runtime.CheckpointError: the checkpoint does not exist or is damaged.
    """
    path = releasing.find(path)
    is_file, is_pretrained = path.suffix in TORCH, (path / WEIGHTS_FILE).exists()
    if is_file or is_pretrained:
        if step is not None:
            raise ValueError(f"{path}: got step {step}, expected none, since these weights have one state")
        return of_authors(path, num_heads) if is_file else of_pretrained(path)
    config = releasing.read_run_config(Config, path)
    restored = releasing.restore(path, train.abstract_state(config), step)
    model, vocabulary, questions = config.model.make(), mathematics.DEFAULT, path / train.QUESTIONS
    drawn = questions if questions.is_dir() else None
    return Trained(model, restored.state.params, vocabulary, restored.step, config, drawn)


def of_authors(path: Path, num_heads: int = AUTHORS_HEADS) -> Trained:
    """Loads a file of the authors' weights; the ids of 73 symbols are inferred (`Vocabulary.released`)."""
    try:
        model, params = convert.from_torch(torch_files.read_state_dict(path), num_heads)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    known = {found.size: found for found in (mathematics.DEFAULT, mathematics.Vocabulary.released())}
    if model.vocab_size not in known:
        raise ValueError(
            f"{path}: got {model.vocab_size} symbols, expected {mathematics.DEFAULT.size} or the authors' "
            f"{mathematics.Vocabulary.released().size}"
        )
    vocabulary = known[model.vocab_size]
    return Trained(model.clone(**vocabulary.special_ids), params, vocabulary)


def of_pretrained(path: Path) -> Trained:
    """Loads a folder that `save_pretrained` wrote with a vocabulary."""
    model, params = EncoderDecoder.from_pretrained(path)
    return Trained(model, params, mathematics.Vocabulary.load(path))


def open_model(path: Path, *, step: int | None = None, seed: int = 0) -> Exportable:
    """Opens a trained model for export; see `load`."""
    return of_solver(load(path, step=step))


def of_solver(trained: Trained) -> Exportable:
    """Wraps a model as a function from questions to answers that includes the greedy decoding loop."""
    model, vocabulary, shape = trained.model, trained.vocabulary, (BATCH, measures.LONGEST + 1)
    symbols = (0, model.vocab_size - 1)
    source = Input((BATCH, LENGTH), "int32", "token ids of the question", pad=vocabulary.pad, range=symbols)
    return Exportable(
        kind="sequence to sequence",
        function=lambda params, inputs: {"tokens": measures.decode(model, params, inputs["source"])},
        params=trained.params,
        inputs={"source": source},
        outputs={"tokens": Output(shape, "token ids of the answer, starting with the start symbol")},
        source=describe_source(trained.params, trained.step),
        lengths=tuple(sorted({source for source, _ in mathematics.BUCKETS})),
        text=describe_characters(vocabulary),
    )


def describe_characters(vocabulary: mathematics.Vocabulary) -> dict[str, Any]:
    """Describes to `run_exported` how to encode questions and decode answers; with the note on the ids."""
    noted = {"note": vocabulary.note} if vocabulary.note else {}
    return {
        "kind": "characters",
        "input": "source",
        "output": "tokens",
        "characters": vocabulary.characters,
        **vocabulary.special_ids,
        "first": vocabulary.first,
        **noted,
    }
