"""Comparisons of training steps: the same course of training first, then the time of a step."""

import itertools
import math
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from benchmarks import timing
from benchmarks.peers import comparing
from benchmarks.peers.training.subjects import Batch, Subject

TOLERANCE = {"change": 1e-3, "losses": 2e-3, "later_losses": 2e-2}
MARGIN, NUDGES = 4, 3
"""Tolerances of a course of training, relative to ours.

"change" bounds the norm of the difference of the parameters' change in the first step, "losses" the
difference of each loss in the first half of the steps, and "later_losses" in the second half. A wrong term of
the gradient, epsilon, clip, decay or rate changes the first step by more than a thousandth, wrong moments the
later losses. Correct programs differ by rounding, which every step amplifies, in particular once it decides
which entity of a picture is the largest: for the relational agent to 1e-5 in ten steps and 1e-3 in twenty,
for the simplicial one to 5e-3 in five. Where our own course differs by more from itself, begun from weights
that are a rounding error away, others may differ by `MARGIN` times that, the most of `NUDGES` courses.
"""


class Program(Protocol):
    """A model in training."""

    def __call__(self, batch: Batch) -> Any:
        """Makes a step on a host batch; `jax.block_until_ready` must be able to wait for the result."""
        ...

    def loss(self, result: Any) -> float:
        """Returns the loss before a step from its result."""
        ...

    def params(self) -> dict[str, np.ndarray]:
        """Returns copies of the parameters by our paths, in our layout."""
        ...


Make = Callable[[dict[str, np.ndarray]], Program]
"""Makes a program that starts with our parameters."""


class Course(NamedTuple):
    """The losses of a program's steps, and the change of its parameters in the first one, by path."""

    losses: list[float]
    change: dict[str, np.ndarray]


def course(program: Program, start: Mapping[str, np.ndarray], batches: Sequence[Batch]) -> Course:
    """Makes a step on each batch, from the parameters `start`."""
    losses = [program.loss(program(batches[0]))]
    change = {path: array - start[path] for path, array in program.params().items()}
    return Course(losses + [program.loss(program(batch)) for batch in batches[1:]], change)


class Distance(NamedTuple):
    """How far a course is from another, relative to that: each loss, and the first change of the parameters.

    Losses can be close to 0 by cancellation; each counts as at least a tenth of the largest one.
    """

    losses: list[float]
    change: float


def distance(found: Course, expected: Course, without_effect: str = "(?!)") -> Distance:
    """Returns the distance of a course from the expected one.

    Parameters in whose paths the expression `without_effect` is found are left out.

    Raises:
        ValueError: a loss is not finite.
    """
    for number, loss in enumerate(found.losses):
        if not math.isfinite(loss):
            raise ValueError(f"loss of step {number + 1}: got {loss}, expected {expected.losses[number]}")
    least = 0.1 * max(map(abs, expected.losses))
    losses = [abs(a - b) / max(abs(b), least) for a, b in zip(found.losses, expected.losses, strict=True)]
    paths = [path for path in expected.change if not re.search(without_effect, path)]
    over = _norm(found.change[path] - expected.change[path] for path in paths)
    return Distance(losses, over / _norm(expected.change[path] for path in paths))


def compared(
    found: Course, expected: Course, without_effect: str = "(?!)", own: Distance | None = None
) -> dict[str, Any]:
    """Returns how far a course is from the expected one; with "differs" beyond `TOLERANCE`.

    `own` is the distance of the expected course from itself, begun a rounding error away.
    """
    apart, over = distance(found, expected, without_effect)
    own = own or Distance([0.0] * len(apart), 0.0)
    reasons, half = [], len(apart) // 2
    if not over <= max(TOLERANCE["change"], MARGIN * own.change):
        reasons.append(f"the first step by {over:.1e} of its norm")
    for number, (loss, each) in enumerate(zip(found.losses, apart, strict=True)):
        allowed = TOLERANCE["losses" if number < half else "later_losses"]
        if each > max(allowed, MARGIN * max(own.losses[: number + 1])):
            reasons.append(
                f"the loss of step {number + 1}, {loss:.6g} instead of {expected.losses[number]:.6g}"
            )
            break
    facts = {"difference": max(apart), "change_difference": over}
    return facts | ({"differs": "; ".join(reasons)} if reasons else {})


def _norm(arrays: Any) -> float:
    return math.sqrt(sum(float(np.linalg.norm(array.astype(np.float64))) ** 2 for array in arrays))


def measure(
    subject: Subject,
    programs: Mapping[str, Make],
    *,
    rate: float,
    blocks: int,
    block_seconds: float,
    end: float = float("inf"),
) -> dict[str, Any]:
    """Measures a step of ours and of all others in alternating blocks, and returns a row.

    Every step takes the next batch from the host. Programs whose course of training differs are reported and
    not timed, and so are those that fail. Programs not started before `end`, a time of `time.monotonic`, are
    left out. `rate` is that of large matrix products, in operations per second.
    """
    began = time.perf_counter()
    ours = subject.start()
    start = ours.params()
    expected = course(ours, start, subject.batches)
    facts = {"prepared_seconds": time.perf_counter() - began, "losses": expected.losses, **ours.facts}
    nudged = []
    for seed in range(NUDGES):
        ours.nudge(seed)
        nudged.append(distance(course(ours, start, subject.batches), expected, subject.without_effect))
    losses, changes = zip(*nudged, strict=True)
    own = Distance(list(map(max, zip(*losses, strict=True))), max(changes))
    facts |= {"own_difference": max(own.losses), "own_change_difference": own.change}

    def prepare(make: Make) -> tuple[Callable[[], Any], Course]:
        program = make(start)
        found = course(program, start, subject.batches)
        return _calls(program, subject.batches), found

    def judge(found: Course) -> dict[str, Any]:
        return compared(found, expected, subject.without_effect, own)

    calls, peers = comparing.checked(programs, prepare, judge, end)
    calls = {"ours": _calls(ours, subject.batches), **calls}
    row = comparing.timed(calls, facts, peers, blocks=blocks, block_seconds=block_seconds)
    if ours.facts["operations"] and "seconds" in row["ours"]:
        row["ours"]["utilisation"] = ours.facts["operations"] / row["ours"]["seconds"] / rate
    return {"subject": subject.name, "shape": subject.shape, **row}


def _calls(program: Program, batches: Sequence[Batch]) -> Callable[[], Any]:
    """Returns a function that makes the next step, over and over the batches."""
    order = itertools.cycle(batches)
    return lambda: program(next(order))


def geometric_means(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns the spread over blocks of the geometric mean of all rows' ratios, for programs in all rows."""
    every = [
        {
            name: peer["times_as_long"]["blocks"]
            for name, peer in row["peers"].items()
            if "times_as_long" in peer
        }
        for row in rows
    ]
    names = [name for name in every[0] if all(name in row for row in every)] if every else []
    return {
        name: timing.spread(
            [statistics.geometric_mean(block) for block in zip(*(row[name] for row in every), strict=True)]
        )
        for name in names
    }
