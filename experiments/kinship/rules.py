"""Writes the rules of a trained model as Horn clauses, and how many of its answers they explain.

    python -m experiments.kinship.rules --run=runs/kinship --out=runs/clauses

The folder gets `clauses.txt`, `clauses.png` and `clauses.json`.
"""

import json
import sys
from pathlib import Path

from absl import flags

from experiments import runtime
from experiments.kinship import clauses
from folnet import kinship


def main() -> None:
    """Writes the clauses of `--run` to `--out`."""
    out = Path(flags.FLAGS.out)
    probabilities, config = clauses.of_run(Path(flags.FLAGS.run))
    problems = kinship.Kinship(clauses.SEED, config.data.test_lengths)
    found = clauses.report(probabilities, problems, flags.FLAGS.problems)
    out.mkdir(parents=True, exist_ok=True)
    (out / "clauses.txt").write_text(found.text(), encoding="utf-8")
    (out / "clauses.json").write_text(json.dumps(found._asdict(), indent=1) + "\n", encoding="utf-8")
    if runtime.can_draw():
        runtime.plots.save(clauses.figure_of(found), out / "clauses.png")
    sys.stdout.write("".join(f"{line}\n" for line in found.text().splitlines()[:12]))


if __name__ == "__main__":
    flags.DEFINE_string("run", None, "the run's directory, or a released folder", required=True)
    flags.DEFINE_string("out", "runs/clauses", "the folder to write to")
    flags.DEFINE_integer("problems", clauses.PROBLEMS, "problems on which clauses and model are compared", 1)
    runtime.run_program(main, reports=(ValueError,))
