"""Asks a trained model of the Mathematics Dataset: the answer, the beam and the roles of its characters.

    python -m experiments.mathematics.solve --run=runs/mathematics-quick         # then type a question a line
    python -m experiments.mathematics.solve --run=runs/mathematics-quick --question="Is 3 > -1/2?"

`--run` is a run's directory, a released folder, or a file of the authors' weights. Each character of a
question is coloured by the cluster of its role vector (figure 2 of the paper), with the cluster's number
below it. Clusters are those of the run's own test questions of `--module`, or, without any, of the questions
asked. `--picture=FILE.png` draws them.
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
"""One sign for each cluster."""


def main() -> None:
    """Answers the questions of the flags, or those that are typed."""
    values = flags.FLAGS
    trained = load(values.run, step=values.step)
    asked = list(values.question)
    for question in asked:
        trained.encode([question])  # all are checked before any is answered
    clusters = find_clusters(trained, asked, module=values.module, head=values.head, k=values.clusters)
    if clusters is None and isinstance(trained.model, TPTransformer):
        print("roles are not shown: there are no test questions to find clusters in", file=sys.stderr)
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


def typed(stream: TextIO) -> Iterator[str]:
    """Questions from a stream, one per line, until it ends or a line is empty; a terminal gets a prompt."""
    while True:
        if stream.isatty():
            print(PROMPT, end="", flush=True)
        if not (line := stream.readline().strip()):
            return
        yield line


def colourful(choice: str, stream: TextIO) -> bool:
    """Whether to colour what is printed."""
    return stream.isatty() if choice == "auto" else choice == "always"


def find_clusters(
    trained: Trained, asked: Iterable[str], *, module: str | None, head: int | None, k: int | None
) -> roles.RoleClusters | None:
    """Clusters of the role vectors of test questions, or, without any, of those asked.

    The run's config says which module, head and number of clusters k, unless they are given. None for a model
    without roles, if there are no questions, or too few for the default k.

    Raises:
        ValueError: a module or head that does not exist, or more clusters than different role vectors.
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
            return None  # too few role vectors for a number of clusters that nobody asked for
        raise


def test_questions(trained: Trained, module: str | None) -> list[str]:
    """Some test questions of a run, none if they are not available; ValueError for an unknown module."""
    config = trained.config
    if config is None:
        return []
    try:
        source = mathematics.open_source(trained.questions) if trained.questions else config.data.open()
        names = config.data.test_modules(source)[mathematics.INTERPOLATE]
    except ValueError:
        return []  # the run's directory of questions is not on this machine
    module = module or names[0]
    if module not in names:
        raise ValueError(f"--module={module} is not one of the run's: {', '.join(names)}")
    some = Sampled(source, config.role_questions).questions(mathematics.INTERPOLATE, module)
    return [pair.question for pair in some]


@dataclasses.dataclass(frozen=True)
class Solver:
    """Answers as text.

    Attributes:
        trained: the model.
        clusters: of role vectors; None shows none.
        beams: how many answers are followed side by side.
        colour: whether to colour characters, by escape sequences of terminals.
    """

    trained: Trained
    clusters: roles.RoleClusters | None
    beams: int = 5
    colour: bool = False

    def solve(self, question: str) -> str:
        """The question, its roles, the answer and the beam, as lines; ValueError as `Trained.encode`."""
        (answer,) = self.trained.answer([question])
        beam = self.trained.beam(question, self.beams)
        candidates = [f"   {probability:7.2%}  {candidate}" for candidate, probability in beam]
        return "\n".join([*self.roles(question), f"= {answer}", *candidates])

    def labels(self, question: str) -> np.ndarray:
        """The cluster of each symbol of a question, its start and end included."""
        if self.clusters is None or not isinstance(self.trained.model, TPTransformer):
            raise ValueError("clusters must be given to show roles, got none")
        ids = self.trained.encode([question])
        labels = roles.assign(self.clusters, self.trained.model, self.trained.params, ids)
        return labels[0, : len(question) + 2]

    def roles(self, question: str) -> list[str]:
        """The question with its start and end, coloured by clusters, and their numbers below as signs."""
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
        """Questions coloured by the clusters of their role vectors; ValueError without clusters."""
        return figures.coloured(
            [figures.marked(question) for question in questions],
            [self.labels(question) for question in questions],
            title="Characters by the cluster of their role vector",
        )


if __name__ == "__main__":
    flags.DEFINE_string("run", None, "a run, a released folder or the authors' file", required=True)
    flags.DEFINE_integer("step", None, "which checkpoint; the last by default", lower_bound=0)
    flags.DEFINE_multi_string("question", [], "a question; may be given several times; else they are typed")
    flags.DEFINE_integer("beams", Solver.beams, "answers followed side by side", lower_bound=1)
    flags.DEFINE_string("module", None, "whose test questions are clustered; the run's first by default")
    flags.DEFINE_integer("head", None, "whose role vectors are clustered, from 0; the run's by default")
    flags.DEFINE_integer("clusters", None, "how many clusters; the run's by default", lower_bound=1)
    flags.DEFINE_enum("colour", "auto", ("auto", "always", "never"), "colour in the terminal")
    flags.DEFINE_string("picture", None, "draw the roles into this file, .png or .svg")
    runtime.run_program(main, reports=(ValueError, OSError, runtime.CheckpointError))
