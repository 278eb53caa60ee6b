"""How fast kinship problems are drawn, on one core.

    python -m benchmarks.kinship

Writes `results/kinship/speed.json`: problems a second for each length of the chain, for the lengths of
training and with distractors, and how many of them become arrays and stories a second. Rounds of all kinds
take turns, so that a slow moment hits all alike; a rate is the median of its rounds.
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
"""What is timed."""
READ = kinship.Kinship(lengths=(2, 3))
"""What is made arrays and stories of."""


def tasks(problems: int) -> dict[str, Callable[[int], object]]:
    """What is done with some problems, from a number on, for each line of the record."""
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
    """Problems a second: the median of rounds with new problems; one before them makes the tables."""
    rates: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        for name, task in tasks(problems).items():
            start = time.process_time()
            task(number * problems)
            rates.setdefault(name, []).append(problems / (time.process_time() - start))
    return {name: round(statistics.median(found[1:]), 1) for name, found in rates.items()}


def record(problems: int, rounds: int) -> dict[str, Any]:
    """The rates with where and when they were measured."""
    return {
        "problems_per_second": measure(problems, rounds),
        "problems": problems,
        "rounds": rounds,
        "cores": 1,
        "command": "python -m benchmarks.kinship",
        **timing.where_and_when(),
    }


def main() -> None:
    """The program."""
    found = record(flags.FLAGS.problems, flags.FLAGS.rounds)
    machine.write(Path(flags.FLAGS.out), found)
    for name, rate in found["problems_per_second"].items():
        print(f"{name:24} {rate:9.0f} a second")


if __name__ == "__main__":
    flags.DEFINE_string("out", "results/kinship/speed.json", "where the record goes")
    flags.DEFINE_integer("problems", 300, "in a round", lower_bound=1)
    flags.DEFINE_integer("rounds", 5, "that are counted", lower_bound=1)
    launching.run(main)
