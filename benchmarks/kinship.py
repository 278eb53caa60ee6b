"""Measures how fast kinship problems are generated on one core.

    python -m benchmarks.kinship

Writes `results/kinship/speed.json`: problems per second for each chain length, for the training lengths and
with distractors, and the rates of converting problems to arrays and to stories. All kinds alternate, so that
a slow moment affects them equally; each rate is a median over rounds.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks import launching, machine, timing
from folnet import kinship

KINDS: Mapping[str, kinship.Kinship] = {
    **{f"k={length}": kinship.Kinship(lengths=(length,)) for length in kinship.LENGTHS},
    "k=2,3": kinship.Kinship(lengths=(2, 3)),
    "k=2,3,4": kinship.Kinship(lengths=(2, 3, 4)),
    "k=2..10": kinship.Kinship(lengths=tuple(kinship.LENGTHS)),
    "k=2..10, distractors": kinship.Kinship(
        lengths=tuple(kinship.LENGTHS), supporting=1, irrelevant=1, disconnected=1
    ),
}
"""The kinds of problems whose generation is timed."""
READ = kinship.Kinship(lengths=(2, 3))
"""The problems converted to arrays and stories."""


def tasks(problems: int) -> dict[str, Callable[[int], object]]:
    """Returns a function for each line of the record that processes problems starting at a given number."""
    drawn = READ.draw(range(problems))

    def draw(source: kinship.Kinship) -> Callable[[int], object]:
        return lambda start: source.draw(range(start, start + problems))

    return {name: draw(source) for name, source in KINDS.items()} | {
        "arrays of k=2,3": lambda start: kinship.symbols(drawn),
        "stories of k=2,3": lambda start: [
            READ.story(number).text for number in range(start, start + problems)
        ],
    }


def measure(problems: int, rounds: int) -> dict[str, float]:
    """Measures problems per second as medians over rounds of new problems, after one warm-up round."""
    rates: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        for name, task in tasks(problems).items():
            start = time.process_time()
            task(number * problems)
            rates.setdefault(name, []).append(problems / (time.process_time() - start))
    return {name: round(statistics.median(found[1:]), 1) for name, found in rates.items()}


def record(problems: int, rounds: int) -> dict[str, Any]:
    """Measures the rates and adds hardware, versions and date."""
    return {
        "problems_per_second": measure(problems, rounds),
        "problems": problems,
        "rounds": rounds,
        "cores": 1,
        "command": "python -m benchmarks.kinship",
        **timing.where_and_when(),
    }


def main() -> None:
    """Runs the program with the values of its flags."""
    found = record(flags.FLAGS.problems, flags.FLAGS.rounds)
    machine.write(Path(flags.FLAGS.out), found)
    for name, rate in found["problems_per_second"].items():
        print(f"{name:24} {rate:9.0f} per second")


if __name__ == "__main__":
    flags.DEFINE_string("out", "results/kinship/speed.json", "output file")
    flags.DEFINE_integer("problems", 300, "problems per round", lower_bound=1)
    flags.DEFINE_integer("rounds", 5, "rounds after the warm-up", lower_bound=1)
    launching.run(main)
