"""Reads a trained model's rules as Horn clauses, and counts the answers that they explain.

The run's model says what everyone is to everyone (`--config=looped`). For each two relations r and s it is
asked about three people and two facts, r(x, a) and s(a, y); what it says of x and y is the conclusion of a
clause: grandson(x, y) <- son(x, a), son(a, y). Chaining the clauses forward answers whole problems; where
that gives the model's own answers, the clauses are what it has learned. `rules.py` is the program.

Axis letters: B batch; T tokens; C classes, the relations and "unrelated".
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments import runtime
from experiments.kinship import measures, pairs, parts, train
from experiments.kinship.config import Config
from experiments.kinship.inputs import Arrays, Graph
from experiments.runtime import releasing
from folnet import kinship

PROBLEMS = 1000
SEED = parts.TEST_SEED + 10**6
"""Of the problems on which clauses are compared with the model: of no training and no test."""

Probabilities = Callable[[Arrays], np.ndarray]
"""From problems, as `Graph` reads them, to the probability of each class for each pair, [B, T, T, C]."""


class Clause(NamedTuple):
    """conclusion(x, y) <- first(x, a), second(a, y), by numbers, with the model's probability."""

    first: int
    second: int
    conclusion: int
    probability: float

    def __str__(self) -> str:
        first, second, conclusion = (kinship.RELATIONS[number] for number in self[:3])
        return f"{conclusion}(x, y) <- {first}(x, a), {second}(a, y)"


class Answer(NamedTuple):
    """What follows of a problem's question, and the clause that it follows by; None and None for nothing."""

    relation: int | None
    clause: Clause | None


def extract(probabilities: Probabilities) -> list[Clause]:
    """Returns a model's clauses by their premises; two relations of which nothing follows have none."""
    premises = [(r, s) for r in range(kinship.NUM_EDGES) for s in range(kinship.NUM_EDGES)]
    tokens = np.array([kinship.arrays.CLS, *[kinship.arrays.PERSON] * 3], np.int32)
    relations = np.full((len(premises), 4, 4), -1, np.int32)
    relations[:, 1, 2], relations[:, 2, 3] = np.transpose(premises)
    arrays = {
        "input_ids": np.tile(tokens, (len(premises), 1)),
        "attention_mask": np.ones((len(premises), 4), bool),
        "relation_ids": relations,
    }
    found = probabilities(arrays)[:, 1, 3]
    return [
        Clause(*of, int(row.argmax()), float(row.max()))
        for of, row in zip(premises, found, strict=True)
        if row.argmax() != kinship.UNRELATED
    ]


def answer(problem: kinship.Problem, clauses: Iterable[Clause]) -> Answer:
    """Chains clauses forward from a problem's facts until nothing new follows.

    In each round, a pair of people of whom nothing is known gets the relation that most of its derivations
    conclude; of several, the one with the smallest number.
    """
    by_premises = {(clause.first, clause.second): clause for clause in clauses}
    known = {(x, y): relation for x, relation, y in problem.facts}
    how: dict[tuple[int, int], Clause | None] = dict.fromkeys(known)
    while True:
        derived: dict[tuple[int, int], Counter[Clause]] = {}
        for (x, a), first in known.items():
            for (b, y), second in known.items():
                clause = by_premises.get((first, second))
                if a == b and x != y and (x, y) not in known and clause is not None:
                    derived.setdefault((x, y), Counter())[clause] += 1
        if not derived:
            return Answer(known.get(problem.query), how.get(problem.query))
        for pair, counts in derived.items():
            votes: Counter[int] = Counter()
            for clause, count in counts.items():
                votes[clause.conclusion] += count
            known[pair] = min(votes, key=lambda relation, votes=votes: (-votes[relation], relation))
            how[pair] = next(clause for clause in counts if clause.conclusion == known[pair])


class Report(NamedTuple):
    """Clauses next to the model that they were read from.

    Attributes:
        clauses: the clauses.
        decides: for each, how many questions it answers in the last step.
        agrees: on how many problems the clauses give the model's answer.
        total: the number of problems.
    """

    clauses: Sequence[Clause]
    decides: Sequence[int]
    agrees: int
    total: int

    def text(self) -> str:
        """Returns a line for each clause, those that decide most answers first."""
        order = sorted(zip(self.decides, self.clauses, strict=True), key=lambda row: (-row[0], row[1]))
        lines = [f"The clauses give the model's answer to {self.agrees} of {self.total} problems.", ""]
        lines += [f"{count:5d}  {clause}  ({clause.probability:.3f})" for count, clause in order]
        return "\n".join(lines) + "\n"


def report(probabilities: Probabilities, source: kinship.Kinship, count: int = PROBLEMS) -> Report:
    """Extracts a model's clauses and compares their answers with the model's on a source's problems."""
    clauses, problems = extract(probabilities), source.draw(range(count))
    read = Graph(source.max_people, pairs=True, marked=False)
    agrees, decides = 0, Counter()
    for start in range(0, count, 100):
        arrays = read(source, range(start, min(start + 100, count)))
        found = probabilities(arrays)
        asked = found[np.arange(len(found)), *arrays["query"].T]
        said = pairs.ASKED[np.argmax(asked[:, pairs.ASKED], axis=-1)]
        for problem, relation in zip(problems[start : start + 100], said.tolist(), strict=True):
            follows = answer(problem, clauses)
            agrees += follows.relation == relation
            decides[follows.clause] += 1
    return Report(clauses, [decides[clause] for clause in clauses], agrees, count)


def figure_of(found: Report) -> "runtime.plots.Figure":
    """Returns a table of what each two relations conclude, coloured by whether the rules say so.

    Rows are first premises, columns second ones; a cell has the conclusion and how many answers it decides.
    """
    names, size = kinship.EDGES, kinship.NUM_EDGES
    colours = dict(
        zip(("as the rules", "another", "no rule", "missing"), runtime.plots.COLOURS, strict=False)
    )
    said = {(clause.first, clause.second): row for row, clause in enumerate(found.clauses)}
    with runtime.plots.style(), runtime.plots.without_grid():
        figure = runtime.plots.Figure(figsize=(10.5, 6.5))
        axes = figure.subplots()
        for r in range(size):
            for s in range(size):
                row, rule = said.get((r, s)), kinship.COMPOSITIONS.get((r, s))
                if row is None and rule is None:
                    continue
                if row is None:
                    kind, text = "missing", ""
                else:
                    conclusion = found.clauses[row].conclusion
                    kind = "no rule" if rule is None else "as the rules" if rule == conclusion else "another"
                    text = (
                        kinship.RELATIONS[conclusion]
                        .replace("-in-law", "\nin law")
                        .replace("grand", "grand-\n")
                    )
                    text += f"\n{found.decides[row]}" if found.decides[row] else ""
                axes.bar(s, 1, 1, r - 0.5, color=colours[kind], alpha=0.25, edgecolor="white")
                axes.text(s, r, text, ha="center", va="center", fontsize=6)
        axes.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5), ylabel="x has a as ...")
        axes.set_xticks(range(size), names, rotation=40, ha="right")
        axes.set_yticks(range(size), names)
        axes.set(xlabel="... and a has y as", title="What y is to x, with the number of answers it decides")
        for kind, colour in colours.items():
            axes.bar(0, 0, color=colour, alpha=0.25, label=kind)
        figure.legend(loc="outside lower right", ncols=len(colours))
    return figure


def of_run(path: Path) -> tuple[Probabilities, Config]:
    """Opens the model of a run.

    Raises:
        ValueError: if it does not answer for pairs from facts alone.
    """
    path = releasing.find(path)
    config = releasing.read_run_config(Config, path)
    if not (config.pairs.read and config.pairs.people == parts.ALIKE):
        raise ValueError(
            f"--run: got {path}, a run with pairs.read={config.pairs.read} and pairs.people="
            f"{config.pairs.people!r}, expected one whose model says what everyone is to everyone from facts "
            "alone, such as one of --config=looped"
        )
    params = releasing.restore(path, train.abstract_state(config)).state.params
    model: Any = config.make(config.model)

    @jax.jit
    def probabilities(arrays):
        every = measures.apply(model, params, arrays, num_loops=config.pairs.loops_of_tests)
        return jax.nn.softmax(every[-1], axis=-1)

    names = ("input_ids", "attention_mask", "relation_ids")
    return lambda arrays: np.asarray(probabilities({name: arrays[name] for name in names})), config
