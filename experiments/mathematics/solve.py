"""Asks a trained model of the Mathematics Dataset: the answer, the beam and the roles of its characters.

    python -m experiments.mathematics.solve --run=runs/mathematics-quick         # then type a question a line
    python -m experiments.mathematics.solve --run=runs/mathematics-quick --question="Is 3 > -1/2?"

`--run` is a run's directory, a released folder, or a file of the authors' weights. Each character of a
question is coloured by the cluster that its role vector belongs to (figure 2 of the paper), with the
cluster's number below it; clusters are those of the run's own test questions of `--module`, or of the
questions asked if there are none. `--picture=FILE.png` draws them.
"""

import string
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

import numpy as np
from absl import app, flags, logging

from experiments import runtime
from experiments.mathematics import figures
from experiments.mathematics.load import Trained, load
from experiments.mathematics.measures import Sampled
from tp_transformer import TPTransformer, mathematics, roles

PROMPT = "? "
DIGITS = string.digits + string.ascii_lowercase + string.ascii_uppercase
"""One sign for each cluster."""


def main(arguments: Sequence[str]) -> None:
    """The program."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected argument {arguments[1]!r}; a question is given by --question")
    values = flags.FLAGS
    try:
        trained = load(values.run, step=values.step)
        asked = list(values.question)
        for question in asked:
            trained.encode([question])  # all are checked before any is answered
        clusters = find_clusters(trained, asked, module=values.module, head=values.head, k=values.clusters)
    except (ValueError, OSError, runtime.CheckpointError) as error:
        raise app.UsageError(str(error)) from error
    if clusters is None and isinstance(trained.model, TPTransformer):
        print("roles are not shown: there are no test questions to find clusters in", file=sys.stderr)
    shown = Solver(trained, clusters, beams=values.beams, colour=colourful(values.colour, sys.stdout))
    told = []
    for question in asked or typed(sys.stdin):
        try:
            print(shown.solve(question), flush=True)
            told.append(question)
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
    if values.picture and told:
        try:
            print(runtime.plots.save(shown.picture(told), values.picture))
        except ValueError as error:
            raise app.UsageError(str(error)) from error


def typed(stream: TextIO) -> Iterator[str]:
    """Questions from a stream, one a line, until it ends or a line is empty; asked for at a terminal."""
    while True:
        if stream.isatty():
            print(PROMPT, end="", flush=True)
        line = stream.readline()
        if not line.strip():
            return
        yield line.strip()


def colourful(choice: str, stream: TextIO) -> bool:
    """Whether to colour what is printed."""
    return stream.isatty() if choice == "auto" else choice == "always"


def find_clusters(
    trained: Trained, asked: Iterable[str], *, module: str | None, head: int | None, k: int | None
) -> roles.RoleClusters | None:
    """Clusters of the role vectors of test questions, or, without any, of those asked; None if neither will
    do.

    Args:
        trained: the model; None is returned of one without roles.
        asked: questions.
        module: whose test questions; the run's first by default.
        head: from 0; that of the run's config by default.
        k: how many clusters; as in the run's config by default.

    Raises:
        ValueError: a module or head that is not there, or more clusters than different role vectors.
    """
    model, config = trained.model, trained.config
    if not isinstance(model, TPTransformer):
        return None
    if head is None:
        head = config.role_head if config else 0
    questions = test_questions(trained, module)
    chosen = k
    if not questions:
        questions = list(asked)
        if not questions:
            return None
    if k is None:
        k = config.role_clusters if config else 20
    ids = trained.encode(questions)
    try:
        return roles.cluster_roles(model, trained.params, ids, head=head, k=k)
    except ValueError:
        if chosen is None and 0 <= head < model.num_heads:
            return None  # too few role vectors for as many clusters as nobody asked for
        raise


def test_questions(trained: Trained, module: str | None) -> list[str]:
    """Some test questions of a run; none if the run's questions are not at hand.

    Raises:
        ValueError: the module is not one of the run's.
    """
    config = trained.config
    if config is None:
        return []
    data = config.data
    try:
        source = mathematics.open_source(trained.questions) if trained.questions else data.open()
        names = data.test_modules(source)[mathematics.INTERPOLATE]
    except ValueError:
        return []  # the run's directory of questions is not on this machine
    module = module or names[0]
    if module not in names:
        raise ValueError(f"--module={module} is not one of the run's: {', '.join(names)}")
    some = Sampled(source, config.role_questions).questions(mathematics.INTERPOLATE, module)
    return [pair.question for pair in some]


class Solver:
    """Answers as text."""

    def __init__(
        self, trained: Trained, clusters: roles.RoleClusters | None, *, beams: int = 5, colour: bool = False
    ):
        """Takes what answers.

        Args:
            trained: the model.
            clusters: of role vectors; None shows none.
            beams: how many answers are followed side by side.
            colour: whether to colour characters, by escape sequences of terminals.
        """
        self.trained, self.clusters, self.beams, self.colour = trained, clusters, beams, colour

    def solve(self, question: str) -> str:
        """The question, its roles, the answer and the beam, in a few lines.

        Raises:
            ValueError: the question has characters that the model does not know, or is too long.
        """
        (answer,) = self.trained.answer([question])
        lines = [*self.roles(question), f"= {answer}"]
        for candidate, probability in self.trained.beam(question, self.beams):
            lines.append(f"   {probability:7.2%}  {candidate}")
        return "\n".join(lines)

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
        colours = figures.palette(len(self.clusters.centroids))
        shown = text
        if self.colour:
            shown = "".join(
                f"\x1b[30;48;2;{';'.join(str(round(255 * part)) for part in colours[label])}m{character}"
                for character, label in zip(text, labels, strict=True)
            )
            shown += "\x1b[0m"
        return [shown, "".join(DIGITS[label] if label < len(DIGITS) else "+" for label in labels)]

    def picture(self, questions: Sequence[str]):
        """Questions coloured by the clusters of their role vectors.

        Raises:
            ValueError: there are no clusters.
        """
        rows = [self.labels(question) for question in questions]
        padded = np.full((len(rows), max(map(len, rows))), roles.PADDING)
        for place, row in zip(padded, rows, strict=True):
            place[: len(row)] = row
        return figures.coloured(
            [figures.marked(question) for question in questions],
            padded,
            title="Characters by the cluster of their role vector",
        )


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    flags.DEFINE_string(
        "run", None, "a run's directory, a released folder or the authors' file", required=True
    )
    flags.DEFINE_integer("step", None, "which checkpoint; the last by default", lower_bound=0)
    flags.DEFINE_multi_string("question", [], "a question; may be given several times; else they are typed")
    flags.DEFINE_integer("beams", 5, "answers followed side by side", lower_bound=1)
    flags.DEFINE_string("module", None, "whose test questions are clustered; the run's first by default")
    flags.DEFINE_integer("head", None, "whose role vectors are clustered, from 0; the run's by default")
    flags.DEFINE_integer("clusters", None, "how many clusters; the run's by default", lower_bound=1)
    flags.DEFINE_enum("colour", "auto", ("auto", "always", "never"), "colour in the terminal")
    flags.DEFINE_string("picture", None, "draw the roles into this file, .png or .svg")
    app.run(main)
