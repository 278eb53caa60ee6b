"""Answers questions with a trained model, and shows the beam and the roles of the characters.

    python -m experiments.mathematics.solve --run=runs/mathematics-quick         # type one question per line
    python -m experiments.mathematics.solve --run=runs/mathematics-quick --question="Is 3 > -1/2?"

`--run` is a run's directory, a released folder or its name, a folder for `from_pretrained` with a vocabulary,
or a file of the authors' weights with 8 heads (`convert --num_heads` makes a folder of others). Each
character of a question is coloured by the cluster of its role vector (figure 2 of the paper), with the
cluster's number below it. The clusters are computed from the run's test questions of `--module`, or from the
given questions if the run has none. `--picture=FILE.png` draws them.
"""

import dataclasses
import string
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

import numpy as np
from absl import flags

from experiments import runtime
from experiments.mathematics import figures
from experiments.mathematics.config import Config
from experiments.mathematics.load import Trained, load
from experiments.mathematics.measures import Sampled
from tp_transformer import TPTransformer, mathematics, roles

PROMPT = "? "
DIGITS = string.digits + string.ascii_lowercase + string.ascii_uppercase
"""The character that stands for each cluster."""


def main() -> None:
    """Answers the questions given by flags, or else those typed on standard input."""
    values = flags.FLAGS
    trained = load(values.run, step=values.step)
    asked = list(values.question)
    for question in asked:
        trained.encode([question])  # reports invalid questions before answering any
    clusters = find_clusters(trained, asked, module=values.module, head=values.head, k=values.clusters)
    if values.picture:
        check_picture(values.picture, trained, clusters)
    if trained.vocabulary.note:
        print(trained.vocabulary.note, file=sys.stderr)
    if clusters is None and isinstance(trained.model, TPTransformer):
        print("no roles shown: no test questions available for clustering", file=sys.stderr)
    solver = Solver(trained, clusters, beams=values.beams, colour=colourful(values.colour, sys.stdout))
    answered = []
    for question in asked or typed(sys.stdin):
        try:
            print(solver.solve(question), flush=True)
            answered.append(question)
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
    if values.picture and answered:
        print(runtime.plots.save(solver.picture(answered), values.picture))


def check_picture(path: str, trained: Trained, clusters: roles.RoleClusters | None) -> None:
    """Raises ValueError, naming the flags that help, if the picture that was asked for cannot be drawn."""
    if not isinstance(trained.model, TPTransformer):
        raise ValueError(f"--picture: got {path!r}, expected none with a Transformer, which has no roles")
    if clusters is None:
        raise ValueError(
            f"--picture: got {path!r} without test questions to cluster, expected --clusters with a small "
            "number and a --question or more, whose role vectors are clustered instead"
        )


def typed(stream: TextIO) -> Iterator[str]:
    """Yields one question per line until the stream ends or a line is empty; prompts on terminals."""
    while True:
        if stream.isatty():
            print(PROMPT, end="", flush=True)
        if not (line := stream.readline().strip()):
            return
        yield line


def colourful(choice: str, stream: TextIO) -> bool:
    """Returns whether to colour the output, given the value of `--colour`."""
    return stream.isatty() if choice == "auto" else choice == "always"


def find_clusters(
    trained: Trained, asked: Iterable[str], *, module: str | None, head: int | None, k: int | None
) -> roles.RoleClusters | None:
    """Clusters the role vectors of the run's test questions, or of `asked` if there are none.

    Module, head and number of clusters k default to the values of the run's config. Returns None for a model
    without roles, without questions, or if there are too few role vectors for the default k.

    Raises:
        ValueError: the module or head does not exist, or k exceeds the number of distinct role vectors.
    """
    model, config = trained.model, trained.config or Config()
    if not isinstance(model, TPTransformer):
        return None
    questions = test_questions(trained, module) or list(asked)
    if not questions:
        return None
    head = config.role_head if head is None else head
    count = config.role_clusters if k is None else k
    try:
        return roles.cluster_roles(model, trained.params, trained.encode(questions), head=head, k=count)
    except ValueError:
        if k is None and 0 <= head < model.num_heads:
            return None  # too few role vectors for the default number of clusters
        raise


def test_questions(trained: Trained, module: str | None) -> list[str]:
    """Returns test questions of a run, [] if they are not available.

    Raises:
        ValueError: the run does not have the module.
    """
    config = trained.config
    if config is None:
        return []
    try:
        source = mathematics.open_source(trained.questions) if trained.questions else config.data.open()
        names = config.data.test_modules(source)[mathematics.INTERPOLATE]
    except (ValueError, KeyError):
        return []  # the run's questions are not on this machine, or not those of the tests
    module = module or names[0]
    if module not in names:
        raise ValueError(f"--module: got {module!r}, expected one of {', '.join(map(repr, names))}")
    some = Sampled(source, config.role_questions).questions(mathematics.INTERPOLATE, module)
    return [pair.question for pair in some]


@dataclasses.dataclass(frozen=True)
class Solver:
    """Answers questions and formats the results as text.

    Attributes:
        trained: the model.
        clusters: clusters of role vectors; None hides the roles.
        beams: beam width.
        colour: whether to colour characters with terminal escape sequences.
    """

    trained: Trained
    clusters: roles.RoleClusters | None
    beams: int = 5
    colour: bool = False

    def solve(self, question: str) -> str:
        """Formats the question, its roles, the answer and the beam.

        Raises:
            ValueError: the question cannot be encoded; see `Trained.encode`.
        """
        (answer,) = self.trained.answer([question])
        beam = self.trained.beam(question, self.beams)
        candidates = [f"   {probability:7.2%}  {candidate}" for candidate, probability in beam]
        return "\n".join([*self.roles(question), f"= {answer}", *candidates])

    def labels(self, question: str) -> np.ndarray:
        """Returns the cluster of each symbol of a question, including its start and end symbols."""
        if self.clusters is None or not isinstance(self.trained.model, TPTransformer):
            raise ValueError("clusters: got None, expected clusters of a TPTransformer")
        ids = self.trained.encode([question])
        labels = roles.assign(self.clusters, self.trained.model, self.trained.params, ids)
        return labels[0, : len(question) + 2]

    def roles(self, question: str) -> list[str]:
        """Returns a line with the question's symbols and a line with the character of each one's cluster."""
        if self.clusters is None:
            return [question]
        labels, text = self.labels(question), figures.marked(question)
        signs = "".join(DIGITS[label] if label < len(DIGITS) else "+" for label in labels)
        if self.colour:
            colours = figures.palette(len(self.clusters.centroids))
            codes = (";".join(str(round(255 * part)) for part in colours[label]) for label in labels)
            coloured = (f"\x1b[30;48;2;{code}m{sign}" for code, sign in zip(codes, text, strict=True))
            text = "".join(coloured) + "\x1b[0m"
        return [text, signs]

    def picture(self, questions: Sequence[str]):
        """Draws questions coloured by the clusters of their role vectors; ValueError without clusters."""
        return figures.coloured(
            [figures.marked(question) for question in questions],
            [self.labels(question) for question in questions],
            title="Characters coloured by the cluster of their role vector",
        )


if __name__ == "__main__":
    flags.DEFINE_string(
        "run",
        None,
        "a run's directory, a released folder or its name, a folder for `from_pretrained` with a vocabulary, "
        "or a file of the authors' weights (.pt, .pth, .bin)",
        required=True,
    )
    flags.DEFINE_integer("step", None, "step of the checkpoint (default: the last)", lower_bound=0)
    flags.DEFINE_multi_string("question", [], "a question; repeatable (default: read from standard input)")
    flags.DEFINE_integer("beams", Solver.beams, "beam width", lower_bound=1)
    flags.DEFINE_string(
        "module", None, "module whose test questions are clustered (default: the run's first)"
    )
    flags.DEFINE_integer("head", None, "head whose role vectors are clustered, from 0 (default: the run's)")
    flags.DEFINE_integer("clusters", None, "number of clusters (default: the run's)", lower_bound=1)
    flags.DEFINE_enum("colour", "auto", ("auto", "always", "never"), "whether to colour the output")
    flags.DEFINE_string("picture", None, "file for a figure of the roles, .png or .svg")
    runtime.run_program(main, reports=(ValueError, OSError, runtime.CheckpointError))
