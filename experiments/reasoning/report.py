"""Writes the table of tasks by models, and what was expected, from the lines of the suite's claims.

    python -m experiments.reasoning.report        # results/reasoning/matrix.md from results/claims.jsonl

Tasks and models without lines are left out, so that a part of the suite has its table, too.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from experiments import runtime
from experiments.reasoning.models import MODELS
from experiments.reasoning.suite_claims import BASELINE
from experiments.reasoning.tasks import TASKS
from experiments.runtime import claim_lines, claim_tables
from experiments.runtime.claims import Line
from logic_zoo.writing import whole

PAGE = """# The reasoning suite

Written by `python -m experiments.reasoning.report`; [the suite](../../docs/how_to/reasoning_suite.md)
explains it. Every number is the mean over {seeds} seeds with its interval at the level that corrects for all
comparisons, {level:.3%}. The Transformer has that of three learning rates with which it answers most.

## After equal time

Accuracy on the test of each task. Bold: above the Transformer with each of its learning rates, seed by seed.

{time}
## After equal steps

Accuracy of each model minus that of the Transformer, by seed, on the problems of the curves. Bold: as above.

{steps}
## What was expected

{score}

<!-- claims: {ids}; columns: id, expected, holds -->
<!-- end of claims -->
"""


def matrix(lines: Sequence[Line], part: str, show: Callable[[Line], str], first: bool) -> str:
    """Returns a Markdown table with a row per task and a column per model.

    Args:
        lines: of claims.
        part: the last part of the ids of those shown.
        show: what a cell shows of its line; bold if its claim holds.
        first: whether the Transformer has a column, before all others.
    """
    by_cell = _by_cell(lines, part)
    models = [model for model in MODELS if any(of == model for _, of in by_cell)]
    rows = [["task", *([BASELINE] if first else []), *models]]
    rows.append(["---"] * len(rows[0]))
    for task in TASKS:
        cells = {model: line for (of, model), line in by_cell.items() if of == task}
        if not cells:
            continue
        line = next(iter(cells.values()))
        row = [task]
        if first:
            row.append(claim_tables.spread(strongest(line)["per_seed"], line["level"]))
        for model in models:
            shown = show(cells[model]) if model in cells else "-"
            row.append(f"**{shown}**" if model in cells and cells[model]["holds"] else shown)
        rows.append(row)
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def strongest(line: Line) -> Mapping[str, Any]:
    """Returns the entry of the Transformer with the learning rate with which it answers most, in the mean."""
    return max(line["baselines"], key=lambda entry: statistics.fmean(entry["per_seed"]))


def _by_cell(lines: Sequence[Line], part: str) -> Mapping[tuple[str, str], Line]:
    by_id = {line["id"]: line for line in lines}
    found = {
        (task, model): by_id.get(f"reasoning.{task}.{model}.{part}") for task in TASKS for model in MODELS
    }
    return {cell: line for cell, line in found.items() if line is not None}


def score(lines: Sequence[Line]) -> str:
    """Returns in a sentence how many expectations were right, of both kinds."""
    counts = {True: [0, 0], False: [0, 0]}
    for line in _by_cell(lines, "equal_steps").values():
        counts[line["expected"]][0] += line["holds"] == line["expected"]
        counts[line["expected"]][1] += 1
    right, every = (counts[True][place] + counts[False][place] for place in (0, 1))
    return (
        f"{right} of {every} expectations were right: {counts[True][0]} of {counts[True][1]} that a model "
        f"answers more than the Transformer after equal steps, and {counts[False][0]} of {counts[False][1]} "
        "that it does not."
    )


def page(lines: Sequence[Line]) -> str:
    """Returns the page.

    Raises:
        ValueError: no claim of the suite has a line.
    """
    steps = _by_cell(lines, "equal_steps")
    if not steps:
        raise ValueError("out: got no lines of reasoning.TASK.MODEL.equal_steps, expected some")

    def differences(line: Line) -> str:
        found = claim_lines.differences(line["ours"], strongest(line))
        return claim_tables.spread(found, line["level"])

    line = next(iter(steps.values()))
    text = PAGE.format(
        seeds=len(line["ours"]["per_seed"]),
        level=line["level"],
        time=matrix(lines, "equal_time", claim_tables.COLUMNS["mean"][1], True),
        steps=matrix(lines, "equal_steps", differences, False),
        score=score(lines),
        ids=" ".join(line["id"] for line in steps.values()),
    )
    return claim_tables.filled(text, lines)


def main() -> None:
    """Writes the page to the folder of results."""
    out = Path(flags.FLAGS.out)
    text, path = page(claim_lines.read(out)), out / "reasoning" / "matrix.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    flags.DEFINE_string("out", "results", "the folder of claims.jsonl, and of the page")
    runtime.run_program(main, reports=(ValueError,))
