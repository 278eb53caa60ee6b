"""Comparisons of one computation in several libraries: checked for equality, timed in turns, as ratios.

A subject is one of our functions with parameters and inputs. A program computes a subject with some library,
forward or forward and backward; its inputs and outputs are in our layout, so that they can be compared.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from benchmarks import timing

Direction = Literal["forward", "gradient"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
TOLERANCE: Mapping[Direction, float] = {"forward": 1e-4, "gradient": 1e-3}
"""Tolerance of float32 results relative to ours; the record has the actual differences.

For the forward pass it bounds the maximum difference. Gradients are discontinuous: among a million ReLUs, one
is so close to 0 that rounding decides, and the gradients of its weights differ by a token's share in two
correct programs. So for gradients it bounds the norm of the difference; the maximum is recorded as well.
"""
NEGLIGIBLE = 1e-3
"""Differences are relative to at least this fraction of the largest value among all results."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """A computation to compare, with its parameters and inputs."""

    name: str  # name of the row
    kind: str  # key by which libraries select their programs; several subjects may share it
    shape: str  # the sizes as text
    ours: Callable[..., tuple[jax.Array, ...]]  # from nested parameters and inputs to a tuple of arrays
    params: Mapping[str, np.ndarray]  # float32 arrays by path, such as "attention/query/kernel"
    inputs: tuple[np.ndarray, ...]  # the arguments; gradients are taken of floating-point ones
    settings: Mapping[str, Any] = dataclasses.field(
        default_factory=dict
    )  # settings that cannot be inferred from the arrays

    def cotangents(self) -> tuple[np.ndarray, ...]:
        """Returns random normal cotangents, one per output."""
        rng = np.random.default_rng(1)
        outputs = jax.eval_shape(self.ours, traverse_util.unflatten_dict(self.params, sep="/"), *self.inputs)
        return tuple(rng.standard_normal(out.shape, np.float32) for out in outputs)

    @property
    def differentiable(self) -> tuple[int, ...]:
        """Indices of the floating-point inputs."""
        return tuple(i for i, x in enumerate(self.inputs) if np.issubdtype(x.dtype, np.floating))


Which = Literal["inputs", "outputs"]


@dataclasses.dataclass(frozen=True)
class Layout:
    """A library's array layout: for each array our axes in its order, or None for the same order."""

    inputs: tuple[tuple[int, ...] | None, ...] = ()  # one per input; () keeps all
    outputs: tuple[tuple[int, ...] | None, ...] = ()  # one per output; () keeps all

    def to_peer(self, arrays: Sequence[np.ndarray], which: Which) -> tuple[np.ndarray, ...]:
        """Returns our "inputs" or "outputs" in the library's layout, contiguous."""
        axes = getattr(self, which) or (None,) * len(arrays)
        return tuple(
            np.ascontiguousarray(x if a is None else x.transpose(a))
            for x, a in zip(arrays, axes, strict=True)
        )

    def to_ours(self, number: int, array: np.ndarray, which: Which) -> np.ndarray:
        """Returns one of the library's "inputs" or "outputs" in our layout."""
        axes = (getattr(self, which) or (None,) * (number + 1))[number]
        return array if axes is None else array.transpose(np.argsort(axes))


class Program(Protocol):
    """A library's implementation of a subject."""

    def call(self, direction: Direction) -> Callable[[], Any]:
        """Returns a function that computes the subject once, including everything a user's step includes.

        `jax.block_until_ready` must accept its result.
        """
        ...

    def arrays(self, direction: Direction, result: Any) -> dict[str, np.ndarray]:
        """Returns a call's arrays in our layout by name: "output 0", "gradient of input 0" or "... PATH"."""
        ...


class JaxProgram:
    """A compiled JAX function, ours or that of another JAX library."""

    def __init__(
        self, subject: Subject, function: Callable[..., Any] | None = None, layout: Layout | None = None
    ):
        """Puts the arrays on the device.

        The function (ours by default) maps inputs to outputs, both in its layout, without parameters.
        """
        self.layout = layout or Layout()
        self.differentiable = subject.differentiable
        if function is None:
            self.function = subject.ours
        else:
            self.function = lambda params, *inputs: function(*inputs)
        params = traverse_util.unflatten_dict(subject.params, sep="/")
        arrays = params, self.layout.to_peer(subject.inputs, "inputs")
        cotangents = self.layout.to_peer(subject.cotangents(), "outputs")
        self.params, self.inputs, self.cotangents = jax.tree.map(jnp.asarray, (*arrays, cotangents))

    def call(self, direction: Direction) -> Callable[[], Any]:
        """Returns a call of the compiled function with its arrays as arguments."""

        def forward(params, inputs):
            return tuple(self.function(params, *inputs))

        def gradient(params, inputs, cotangents):
            chosen = tuple(inputs[i] for i in self.differentiable)

            def of_floats(params, chosen):
                given = list(inputs)
                for i, x in zip(self.differentiable, chosen, strict=True):
                    given[i] = x
                return forward(params, given)

            outputs, back = jax.vjp(of_floats, params, chosen)
            return outputs, back(cotangents)

        if direction == "forward":
            compiled = jax.jit(forward).lower(self.params, self.inputs).compile()
            return lambda: compiled(self.params, self.inputs)
        compiled = jax.jit(gradient).lower(self.params, self.inputs, self.cotangents).compile()
        return lambda: compiled(self.params, self.inputs, self.cotangents)

    def arrays(self, direction: Direction, result: Any) -> dict[str, np.ndarray]:
        """Returns outputs and gradients by name, in our layout."""
        outputs, (params, inputs) = (result, ({}, ())) if direction == "forward" else result
        found = {
            f"output {i}": self.layout.to_ours(i, np.asarray(out), "outputs") for i, out in enumerate(outputs)
        }
        for path, grad in traverse_util.flatten_dict(params, sep="/").items():
            found[f"gradient of {path}"] = np.asarray(grad)
        for i, grad in zip(self.differentiable, inputs, strict=False):
            found[f"gradient of input {i}"] = self.layout.to_ours(i, np.asarray(grad), "inputs")
        return found


def jax_programs(
    functions: Mapping[str, tuple[str, Callable[..., Any], Layout]], subject: Subject
) -> dict[str, Callable[[], Program]]:
    """Returns a JAX library's programs for a subject.

    `functions` maps kinds of subjects to the name of the row, the function and its layout.
    """
    if subject.kind not in functions:
        return {}
    name, function, layout = functions[subject.kind]
    return {name: lambda: JaxProgram(subject, function, layout)}


class Apart(NamedTuple):
    """Differences between results and ours.

    `greatest` is the maximum difference in an array relative to the array's maximum, for the worst array,
    `where`; `norm` is the norm of the difference relative to the array's norm, for its worst array.
    """

    greatest: float
    where: str
    norm: float

    def judged(self, direction: Direction) -> float:
        """Returns the difference that `TOLERANCE` bounds."""
        return self.greatest if direction == "forward" else self.norm


def difference(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> Apart:
    """Returns how much results differ from expected ones.

    For values that should be 0 (such as the gradient of a key's bias, which a softmax ignores), relative
    differences would be rounding errors over rounding errors. So each array counts as at least a thousandth
    of the largest one of its kind, outputs or gradients.

    Raises:
      ValueError: names or shapes differ, or values are not finite.
    """
    if set(found) != set(expected):
        only = ", ".join(sorted(set(found) ^ set(expected)))
        raise ValueError(f"results: got different names, expected the same as ours; one side lacks {only}")
    sizes: dict[str, list[float]] = {"output": [0.0, 0.0], "gradient": [0.0, 0.0]}
    for name, array in expected.items():
        if not (np.isfinite(array).all() and np.isfinite(found[name]).all()):
            raise ValueError(f"{name}: got values that are not finite")
        if found[name].shape != array.shape:
            raise ValueError(f"{name}: got shape {found[name].shape}, expected {array.shape}")
        kind = name.split()[0]
        sizes[kind] = [max(pair) for pair in zip(sizes[kind], _sizes(array), strict=True)]
    greatest, where, norm = 0.0, "", 0.0
    for name, array in expected.items():
        apart = _sizes(found[name].astype(np.float64) - array)
        least = (NEGLIGIBLE * size for size in sizes[name.split()[0]])
        over = [max(pair) or 1.0 for pair in zip(_sizes(array), least, strict=True)]
        if apart[0] / over[0] >= greatest:
            greatest, where = apart[0] / over[0], name
        norm = max(norm, apart[1] / over[1])
    return Apart(greatest, where, norm)


def _sizes(array: np.ndarray) -> tuple[float, float]:
    """Returns the maximum absolute value and the norm."""
    array = array.astype(np.float64)
    return float(np.max(np.abs(array), initial=0)), float(np.linalg.norm(array.ravel()))


def measure(
    subject: Subject,
    direction: Direction,
    programs: Mapping[str, Callable[[], Program]],
    *,
    blocks: int = 5,
    block_seconds: float = 0.25,
    end: float = float("inf"),
) -> dict[str, Any]:
    """Measures a subject with our program and all others, in alternating blocks, and returns a row.

    Peers with different results are reported and not timed, and so are those that fail. Peers not started
    before `end`, a time of `time.monotonic`, are left out.
    """
    ours = JaxProgram(subject)
    start = time.perf_counter()
    call = ours.call(direction)
    expected = ours.arrays(direction, jax.block_until_ready(call()))
    seconds = time.perf_counter() - start

    def prepare(make):
        program = make()
        call = program.call(direction)
        return call, program.arrays(direction, jax.block_until_ready(call()))

    def judge(found):
        apart = difference(found, expected)
        facts = {
            "difference": apart.greatest,
            "where": apart.where,
            "norm_of_difference": apart.norm,
            "tolerance": TOLERANCE[direction],
        }
        if apart.judged(direction) > TOLERANCE[direction]:
            words = f"{apart.where} by {apart.greatest:.1e} of its maximum, in norm {apart.norm:.1e}"
            facts["differs"] = words
        return facts

    calls, peers = checked(programs, prepare, judge, end)
    row = {"subject": subject.name, "shape": subject.shape, "direction": direction}
    facts = {"prepared_seconds": seconds}
    return row | timed({"ours": call, **calls}, facts, peers, blocks=blocks, block_seconds=block_seconds)


def checked[P, F](
    programs: Mapping[str, P],
    prepare: Callable[[P], tuple[Callable[[], Any], F]],
    judge: Callable[[F], dict[str, Any]],
    end: float,
) -> tuple[dict[str, Callable[[], Any]], dict[str, dict[str, Any]]]:
    """Prepares other libraries' programs one after another and compares their results with ours.

    Args:
        programs: what `prepare` needs, by name.
        prepare: returns a call to time, and results to compare.
        judge: returns facts about results; among them "differs" if they are not ours. It may also raise a
            `ValueError`.
        end: a time of `time.monotonic` from which on programs are left out.

    Returns:
        The calls of those with our results; and for every program its facts, with "left_out", "failed" or
        "differs" if there is no call, else with "prepared_seconds".
    """
    calls: dict[str, Callable[[], Any]] = {}
    peers: dict[str, dict[str, Any]] = {}
    for name, program in programs.items():
        if time.monotonic() > end:
            peers[name] = {"left_out": "budget exhausted"}
            continue
        start = time.perf_counter()
        try:
            call, found = prepare(program)
        except Exception as error:  # unsupported, no compiler, out of memory: recorded, the others continue
            peers[name] = {"failed": timing.one_line(error)}
            continue
        seconds = time.perf_counter() - start
        try:
            peers[name] = judge(found)
        except ValueError as error:
            peers[name] = {"differs": str(error)}
        if "differs" not in peers[name]:
            peers[name]["prepared_seconds"], calls[name] = seconds, call
    return calls, peers


def timed(
    calls: Mapping[str, Callable[[], Any]],
    ours: Mapping[str, Any],
    peers: Mapping[str, Mapping[str, Any]],
    *,
    blocks: int,
    block_seconds: float,
) -> dict[str, Any]:
    """Times our call, "ours", and those of others in alternating blocks; returns facts with the times.

    Nothing is timed if there are no others.
    """
    times = {}
    if len(calls) > 1:
        # The first call of a block pays for memory and threads released by another program.
        times = timing.alternate(calls, blocks=blocks, block_seconds=block_seconds, uncounted=1)
    found = {name: dict(facts) for name, facts in peers.items()}
    for name in times.keys() - {"ours"}:
        found[name] |= {**_times(times[name]), "times_as_long": timing.ratio(times[name], times["ours"])}
    return {"ours": {**ours, **_times(times.get("ours", []))}, "peers": found}


def _times(blocks: list[float]) -> dict[str, Any]:
    return {"seconds": float(np.median(blocks)), "blocks": blocks} if blocks else {}


def summary(row: Mapping[str, Any]) -> str:
    """Returns a row as text to print, with a line per peer."""
    text = []
    for name, peer in row["peers"].items():
        head = f"{row['subject'][:40]:40} {row.get('direction', 'step'):8} {name[:30]:30}"
        word = next((f"{key}: {peer[key]}" for key in ("failed", "differs", "left_out") if key in peer), None)
        if word is not None:
            text.append(f"{head} {word}")
            continue
        text.append(
            f"{head} {1e3 * peer['seconds']:10.3f} ms, ours {1e3 * row['ours']['seconds']:10.3f} ms: "
            f"{timing.shown(peer['times_as_long'])} times as long; difference {peer['difference']:.0e}"
        )
    return "\n".join(text)
