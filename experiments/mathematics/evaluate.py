"""Scores weights on each module of the Mathematics Dataset, as in Table 1 and Figure 3 of the paper.

    python -m experiments.mathematics.evaluate --weights=best_eval_model.pt --out=runs/scores
    python -m experiments.mathematics.evaluate --weights=runs/mine --modules=numbers__gcd --out=runs/gcd
    python -m experiments.mathematics.evaluate --weights=models/tp --data=mathematics_v1.0 --out=runs/v1
    python -m experiments.mathematics.evaluate --weights=runs/one --weights=runs/two --out=runs/both

`--weights` is a run's directory, a released folder or its name, a folder for `from_pretrained`, or a file
of the authors' weights. The questions are a fixed set of 500 per module, drawn once and checked by their
hash, or those of published files (`--data`). Killed at any time, the same command continues and ends with the
same files: `scores.jsonl` with a line per module, `answers/` with every answer, `table.md`, and a figure for
each split. With several weights, each has these in a folder of its name, and the table and the figures next
to these folders show all of them.
"""

import collections
import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from absl import flags

from experiments import runtime
from experiments.mathematics import evaluation_set, figures, load, measures
from experiments.mathematics.evaluation_set import Key
from experiments.mathematics.measures import Sampled
from experiments.runtime.workdir import Workdir
from logic_zoo.writing import whole
from tp_transformer import evaluation, mathematics, pretrained

SCORES, ANSWERS, TABLE, QUESTIONS = "scores.jsonl", "answers", "table.md", ".questions"
PAPER = (
    ("Transformer (Saxton et al.)", "30M", "500k", "76.00 %", "13", "50.00 %", "1"),
    ("Transformer (Schlag et al.)", "44.2M", "700k", "77.42 %", "14", "52.00 %", "2"),
    ("TP-Transformer (Schlag et al.)", "49.2M", "700k", "80.67 %", "18", "52.48 %", "3"),
    ("TP-Transformer (Schlag et al.)", "49.2M", "1.7M", "84.24 %", "25", "55.40 %", "3"),
)
"""Rows of Table 1, on the published questions."""
PAPER_QUESTIONS = 10_000
"""Published test questions per module."""
ROW = {"index": int, "answer": str, "right": bool}
"""The fields of an answer: index of the question, the model's answer, and whether it is right."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What determines the scores in a directory; its `config.json`.

    Attributes:
        params_sha256: hash of the parameters.
        model: the architecture and its fields.
        characters: the characters of the vocabulary, in the order of their ids.
        modules: the modules as SPLIT/NAME.
        questions: number of evenly spaced questions per module; 0 for all.
        batch_size: questions per batch, which are of similar length.
        beams: beam width; 1 decodes greedily.
        weights: path of the weights, which may change.
        data: folder of the questions, which may change, or "" for the fixed set.
        note: what is known about the ids of the vocabulary.
    """

    experiment: ClassVar[str] = "mathematics.evaluate"

    params_sha256: str
    model: dict[str, Any]
    characters: str
    modules: tuple[str, ...]
    questions: int
    batch_size: int
    beams: int
    weights: str = runtime.resumable("")
    data: str = runtime.resumable("")
    note: str = runtime.resumable("", added=True)


@dataclasses.dataclass(frozen=True)
class Together:
    """Which weights have a folder in a directory; its `config.json`.

    Attributes:
        names: the names of the weights.
    """

    experiment: ClassVar[str] = "mathematics.evaluate.together"

    names: tuple[str, ...]


class Evaluated(NamedTuple):
    """What was evaluated, and the lines of its modules."""

    trained: load.Trained
    lines: Sequence[Mapping[str, Any]]


def main() -> None:
    """Evaluates the weights that the flags name, and prints, tabulates and draws their scores."""
    values = flags.FLAGS
    trained = load_all(values.weights, step=values.step, num_heads=values.num_heads)
    source = mathematics.open_source(values.data) if values.data else None
    chosen, out = choose(source, values.modules, values.splits), Path(values.out)
    found, text = {}, ""
    with contextlib.ExitStack() as stack:
        folders = dict.fromkeys(trained, out)
        if len(trained) > 1:
            folders = {name: out / name for name in trained}
            stack.enter_context(contextlib.closing(Workdir(out, Together(tuple(trained)))))
        settings = {}
        for (name, one), path in zip(trained.items(), values.weights, strict=True):
            settings[name] = Settings(
                params_sha256=runtime.params_sha256(one.params),
                model={"architecture": type(one.model).__name__, **pretrained.settings(one.model)},
                characters=one.vocabulary.characters,
                modules=tuple("/".join(key) for key in chosen),
                questions=values.questions,
                batch_size=values.batch_size,
                beams=values.beams,
                weights=path,
                data=values.data or "",
                note=one.vocabulary.note,
            )
            stack.enter_context(contextlib.closing(Workdir(folders[name], settings[name])))
        for note in dict.fromkeys(one.vocabulary.note for one in trained.values() if one.vocabulary.note):
            print(note, file=sys.stderr)
        if source is None:
            source = draw(chosen, out / QUESTIONS, processes=values.processes)
        for name, one in trained.items():
            if len(trained) > 1:
                print(f"{name}:")
            lines = evaluate(one, Sampled(source, values.questions), chosen, settings[name], folders[name])
            found[name] = Evaluated(one, lines)
            text = report({name: found[name]}, settings[name], folders[name])
        if len(trained) > 1:
            text = report(found, next(iter(settings.values())), out)
        print(text, end="")


def load_all(paths: Sequence[str], *, step: int | None, num_heads: int) -> dict[str, load.Trained]:
    """Loads weights by the names of their folders or files.

    Raises:
        ValueError: as `load.load`, or several have the same name.
    """
    names = [Path(path).name for path in paths]
    if len(set(names)) < len(names):
        raise ValueError(f"--weights: got the names {', '.join(names)}, expected different ones")
    return {
        name: load.load(path, step=step, num_heads=num_heads) for name, path in zip(names, paths, strict=True)
    }


def choose(
    source: mathematics.Source | None, modules: Sequence[str], splits: Sequence[mathematics.Split]
) -> list[Key]:
    """Returns the splits and modules to evaluate: those named, or else all of the source (None: of the set).

    Raises:
        ValueError: a name does not exist, or the source lacks it; missing ones are all listed.
    """
    chosen = evaluation_set.keys(modules, splits)
    if source is None:
        return chosen
    there = [key for key in chosen if key[1] in _modules(source, key[0])]
    if not there or (modules and there != chosen):
        lacking = ", ".join("/".join(key) for key in chosen if key not in there)
        raise ValueError(f"--data: got no questions of {lacking}, expected them in the folder")
    return there


def _modules(source: mathematics.Source, split: mathematics.Split) -> Sequence[str]:
    try:
        return source.modules(split)
    except ValueError:  # TFDS has no extrapolation
        return ()


def draw(chosen: Sequence[Key], folder: Path, *, processes: int | None = None) -> mathematics.Source:
    """Draws the modules of the fixed set into a folder, on all cores, and checks and prints their hash.

    Raises:
        ValueError: the questions are not those of the set, or the folder has other modules.
    """
    made = mathematics.generate(folder, evaluation_set.source(chosen), processes=processes)
    digests = {key: evaluation_set.digest(made.questions(*key)) for key in chosen}
    evaluation_set.check(digests, folder)
    found = evaluation_set.digest_of_all(digests)
    print(
        f"evaluation set: {len(chosen)} modules of {evaluation_set.QUESTIONS} questions, SHA-256 {found}, ok"
    )
    return made


def evaluate(
    trained: load.Trained,
    source: mathematics.Source,
    chosen: Sequence[Key],
    settings: Settings,
    out: Path,
) -> list[dict[str, Any]]:
    """Answers the questions that have no answer yet; returns a line for each module, which it also writes.

    Raises:
        ValueError: questions are missing or damaged, or the directory has answers to other questions.
    """
    (out / ANSWERS).mkdir(exist_ok=True)
    # All files are read before the first question is answered, so that damage is found at once.
    modules = {key: Answers(out / ANSWERS / f"{'__'.join(key)}.jsonl", source, *key) for key in chosen}
    lines = []
    for (split, module), answers in modules.items():
        right, total = answers.complete(trained, settings.batch_size, settings.beams), answers.total
        low, high = runtime.intervals.wilson_interval(right, total)
        line = {"split": split, "module": module, "right": right, "total": total}
        line |= {"accuracy": right / total, "interval": [low, high], "questions_sha256": answers.digest}
        line |= {"note": settings.note} if settings.note else {}
        lines.append(line)
        with whole(out / SCORES) as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        shown = f"{right / total:7.2%}  {right} of {total}, {low:.2%} to {high:.2%}"
        print(f"{split:12} {module:42} {shown}", flush=True)
    return lines


class Answers:
    """The answers to a module's questions, in a file that grows by a batch at a time.

    The first line has the hash of the questions; the others have the answers, in the order of the batches.

    Attributes:
        total: number of questions.
        digest: hash of the questions and the right answers.
    """

    def __init__(self, path: Path, source: mathematics.Source, split: mathematics.Split, module: str):
        """Opens the questions and what was answered before.

        Raises:
            ValueError: the questions are missing or damaged, or the file is damaged or has answers to others.
        """
        self._path, self._where = path, (source, split, [module])
        questions = source.questions(split, module)
        self.total, self.digest = len(questions), evaluation_set.digest(questions)
        self._head = {"questions_sha256": self.digest}
        self._rows = self._read() if path.exists() else []

    def complete(self, trained: load.Trained, batch_size: int, beams: int) -> int:
        """Answers the questions that have no line yet; returns how many answers are right.

        An interrupted batch is computed again as a whole, since the rounding of logits may depend on the
        batch; so the file ends as that of an uninterrupted run.
        """
        sizes = {"batch_size": batch_size, "shuffle": False, "keep_last": True}
        batches = mathematics.Batches(*self._where, vocabulary=trained.vocabulary, **sizes)
        place = 0
        if not self._path.exists():
            with whole(self._path) as temporary:
                temporary.write_text(json.dumps(self._head) + "\n", encoding="utf-8")
        for batch in batches:
            valid = batch.valid
            indices = batch.index[valid].tolist()
            before = [row["index"] for row in self._rows[place : place + len(indices)]]
            if before != indices[: len(before)]:
                raise ValueError(f"{self._path}: got answers in another order, expected that of the batches")
            place += len(indices)
            if len(before) == len(indices):
                continue
            found, right = measures.answered(trained.model, trained.params, batch, beams)
            texts = map(trained.vocabulary.decode, np.asarray(found)[valid])
            answers = zip(indices, texts, np.asarray(right)[valid].tolist(), strict=True)
            fresh = [dict(zip(ROW, answer, strict=True)) for answer in answers][len(before) :]
            with self._path.open("a", encoding="utf-8") as file:
                file.write("".join(json.dumps(row) + "\n" for row in fresh))
            self._rows += fresh
        if len(self._rows) != self.total:
            raise ValueError(f"{self._path}: got {len(self._rows)} answers, expected {self.total}")
        return sum(row["right"] for row in self._rows)

    def _read(self) -> list[dict[str, Any]]:
        """Returns the answers in the file, which is cut after its last complete line."""
        lines = self._path.read_bytes().split(b"\n")
        if lines[-1]:  # cut off by a kill
            os.truncate(self._path, self._path.stat().st_size - len(lines[-1]))
        rows = []
        for number, line in enumerate(lines[:-1], 1):
            try:
                row = json.loads(line)
                if number > 1 and {name: type(value) for name, value in row.items()} != ROW:
                    raise ValueError(f"expected {', '.join(ROW)}")
            except (ValueError, AttributeError) as error:
                raise ValueError(f"{self._path}, line {number}: damaged ({error})") from error
            rows.append(row)
        if not rows or rows[0] != self._head:
            raise ValueError(f"{self._path}: got answers to other questions, expected {self._head}")
        return rows[1:]


def report(found: Mapping[str, Evaluated], settings: Settings, out: Path) -> str:
    """Writes the table, and a figure for each split if Matplotlib is installed; returns the table.

    Args:
        found: what was evaluated, by name, on the same questions.
        settings: of any of these, which share all that the caption has.
        out: the directory of the files.
    """
    scores = {name: scores_of(evaluated.lines) for name, evaluated in found.items()}
    rows = [row(evaluated.trained, name, scores[name]) for name, evaluated in found.items()]
    ((_, first), *others) = found.items()
    parts = [caption(first.lines, settings), table(rows, complete=_complete(first.lines))]
    if others:
        parts.append(columns(scores))
    noted = {name: evaluated.trained.vocabulary.note for name, evaluated in found.items()}
    parts += [f"{name}: {note}\n" for name, note in noted.items() if note]
    text = "\n".join(parts)
    with whole(out / TABLE) as temporary:
        temporary.write_text(text, encoding="utf-8")
    if runtime.can_draw():
        for split in dict.fromkeys(line["split"] for line in first.lines):
            title = f"Exact match by module, {split}, with 95 % intervals"
            of_split = {name: of[split] for name, of in scores.items()}
            figure = figures.bars(of_split, title=title, intervals=True)
            runtime.plots.save(figure, out / f"accuracy_{split}.png")
    return text


def scores_of(lines: Sequence[Mapping[str, Any]]) -> dict[str, evaluation.Scores]:
    """Returns the scores of each split."""
    found: dict[str, dict[str, evaluation.Share]] = collections.defaultdict(dict)
    for line in lines:
        found[line["split"]][line["module"]] = evaluation.Share(line["right"], line["total"])
    return {split: evaluation.Scores(split, modules) for split, modules in found.items()}


def caption(lines: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """Says which questions were asked, how they were answered, and how that differs from the paper."""
    totals = sorted({line["total"] for line in lines})
    count = f"{totals[0]:,}" if len(totals) == 1 else f"{totals[0]:,} to {totals[-1]:,}"
    which = "the folder of --data" if settings.data else "the fixed evaluation set"
    some = "evenly spaced " if settings.questions else ""
    digests = {(line["split"], line["module"]): line["questions_sha256"] for line in lines}
    how = "greedily" if settings.beams == 1 else f"with {settings.beams} beams"
    text = (
        f"Exact match on {count} {some}questions per module of {which}, {len(lines)} modules (SHA-256 "
        f"{evaluation_set.digest_of_all(digests)}), decoded {how}."
    )
    if _complete(lines) and (not settings.data or totals != [PAPER_QUESTIONS] or settings.beams > 1):
        text += f" The paper's are the {PAPER_QUESTIONS:,} published questions per module, decoded greedily."
    return text + "\n"


def _complete(lines: Sequence[Mapping[str, Any]]) -> bool:
    """Returns whether all modules of both splits were evaluated."""
    return [(line["split"], line["module"]) for line in lines] == evaluation_set.keys()


def row(trained: load.Trained, name: str, scores: Mapping[str, evaluation.Scores]) -> list[str]:
    """Formats scores as a row of Table 1; cells of a split that was not evaluated are empty."""
    count = sum(leaf.size for leaf in jax.tree.leaves(trained.params))
    cells = [name, f"{count / 1e6:.3g}M", "" if trained.step is None else f"{trained.step:,}"]
    for split in (mathematics.INTERPOLATE, mathematics.EXTRAPOLATE):
        if (of_split := scores.get(split)) is None:
            cells += ["", ""]
            continue
        above = f"{of_split.above()} of {len(of_split.modules)}"
        cells += [f"{of_split.average:.2%}{_interval(of_split)}", above]
    return cells


def table(rows: Sequence[Sequence[str]], *, complete: bool) -> str:
    """Formats rows as Table 1 in Markdown, with the paper's rows if all modules were evaluated."""
    head = ["", "parameters", "steps", "interpolation", "> 95 %", "extrapolation", "> 95 %"]
    return _markdown([head, *rows, *(PAPER if complete else ())])


def columns(scores: Mapping[str, Mapping[str, evaluation.Scores]]) -> str:
    """Formats the exact match of several weights by module, a column for each."""
    first = next(iter(scores.values()))
    rows = [
        [f"{split}/{module}", *(f"{of[split].accuracies[module]:.2%}" for of in scores.values())]
        for split, of_split in first.items()
        for module in of_split.modules
    ]
    return _markdown([["", *scores], *rows])


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *others = rows
    lines = [head, ["---"] * len(head), *others]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _interval(scores: evaluation.Scores) -> str:
    """Formats the interval of an average over modules of equal size, that of all their questions together.

    It is a little too wide, since it takes the questions for a sample of all modules.
    """
    shares = list(scores.modules.values())
    if len({share.total for share in shares}) > 1:
        return ""
    totals = (sum(part) for part in zip(*shares, strict=True))
    low, high = runtime.intervals.wilson_interval(*totals)
    return f" ({low:.2%} to {high:.2%})"


if __name__ == "__main__":
    flags.DEFINE_multi_string("weights", None, "weights to evaluate, repeatable: see above", required=True)
    flags.DEFINE_string("out", None, "directory of the scores; the same command continues", required=True)
    flags.DEFINE_string("data", None, "folder of published questions (default: the fixed set)")
    flags.DEFINE_list("modules", [], "comma-separated modules (default: all)")
    flags.DEFINE_list("splits", [], "interpolate, extrapolate (default: both)")
    flags.DEFINE_integer("questions", 0, "evenly spaced questions per module; 0 for all", lower_bound=0)
    flags.DEFINE_integer("batch_size", 64, "questions per batch", lower_bound=1)
    flags.DEFINE_integer("beams", 1, "beam width; 1 decodes greedily", lower_bound=1)
    flags.DEFINE_integer("step", None, "step of a run's checkpoint (default: the last)", lower_bound=0)
    flags.DEFINE_integer(
        "num_heads", load.AUTHORS_HEADS, "heads of the authors' model, which their file lacks"
    )
    flags.DEFINE_integer("processes", None, "processes that draw questions (default: one per core)")
    runtime.run_program(main, reports=(ValueError, OSError, RuntimeError))
