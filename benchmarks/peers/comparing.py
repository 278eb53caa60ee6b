"""What a comparison is: one computation, ours and others', checked equal, timed in turns, as ratios.

A subject is a function of ours with parameters and inputs. A program computes it, forward or forward and
backward, with whatever library; it takes our arrays and gives back ours, so that all can be compared.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from benchmarks import timing

DIRECTIONS = ("forward", "gradient")
TOLERANCE = {"forward": 1e-4, "gradient": 1e-3}
"""How far a float32 result may be from ours; what was found is in the record.

Forward it is the greatest difference that counts. Gradients have kinks: of a million ReLUs one is so near 0
that rounding decides, and its weights' gradients differ by a token's share in two right programs. So it is
the norm of the difference there; the greatest one is recorded as well.
"""
NEGLIGIBLE = 1e-3
"""Part of the greatest number of all results that an array is measured against at least."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is compared."""

    name: str  # of the row
    kind: str  # what the libraries know it by; several subjects may be of one kind
    shape: str  # the sizes, in words
    ours: Callable[..., tuple[jax.Array, ...]]  # from nested parameters and inputs to a tuple of arrays
    params: Mapping[str, np.ndarray]  # float32 arrays by their path, "attention/query/kernel"
    inputs: tuple[np.ndarray, ...]  # the arrays it is called with; gradients are of floating ones
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # what cannot be read off the arrays

    def cotangents(self) -> tuple[np.ndarray, ...]:
        """What the backward pass starts from: normal numbers for each output."""
        rng = np.random.default_rng(1)
        outputs = jax.eval_shape(self.ours, traverse_util.unflatten_dict(self.params, sep="/"), *self.inputs)
        return tuple(rng.standard_normal(out.shape, np.float32) for out in outputs)

    @property
    def differentiable(self) -> tuple[int, ...]:
        """Numbers of the floating inputs."""
        return tuple(i for i, x in enumerate(self.inputs) if np.issubdtype(x.dtype, np.floating))


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a library wants its arrays: for each input and output our axes in its order, None for as they are."""

    inputs: tuple[tuple[int, ...] | None, ...] = ()  # of each input; () for all as they are
    outputs: tuple[tuple[int, ...] | None, ...] = ()  # of each output; () for all as they are

    def to_peer(self, arrays: Sequence[np.ndarray], which: str) -> tuple[np.ndarray, ...]:
        """Our "inputs" or "outputs" as the library has them, contiguous."""
        axes = getattr(self, which) or (None,) * len(arrays)
        return tuple(
            np.ascontiguousarray(x if a is None else x.transpose(a))
            for x, a in zip(arrays, axes, strict=True)
        )

    def to_ours(self, number: int, array: np.ndarray, which: str) -> np.ndarray:
        """One of the library's as ours."""
        axes = (getattr(self, which) or (None,) * (number + 1))[number]
        return array if axes is None else array.transpose(np.argsort(axes))


class Program(Protocol):
    """A subject as some library computes it."""

    def call(self, direction: str) -> Callable[[], Any]:
        """A function that computes once, everything included that a user's step has; its result can be waited
        for with `jax.block_until_ready`.
        """
        ...

    def arrays(self, direction: str, result: Any) -> dict[str, np.ndarray]:
        """What a call gave, in our layout: "output 0", and "gradient of input 0" or of a parameter's path."""
        ...


class JaxProgram:
    """A JAX function, compiled: ours, or that of a library on JAX."""

    def __init__(
        self, subject: Subject, function: Callable[..., Any] | None = None, layout: Layout | None = None
    ):
        """Places the arrays.

        Args:
          subject: what is computed.
          function: from inputs in its layout to outputs in its layout, for subjects without parameters; None
            for the subject's own.
          layout: of the function.
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

    def call(self, direction: str) -> Callable[[], Any]:
        """A call of the compiled function, its arrays handed over as arguments."""

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

    def arrays(self, direction: str, result: Any) -> dict[str, np.ndarray]:
        """Outputs and gradients by name."""
        outputs, (params, inputs) = (result, ({}, ())) if direction == "forward" else result
        found = {
            f"output {i}": self.layout.to_ours(i, np.asarray(out), "outputs") for i, out in enumerate(outputs)
        }
        for path, grad in traverse_util.flatten_dict(params, sep="/").items():
            found[f"gradient of {path}"] = np.asarray(grad)
        for i, grad in zip(self.differentiable, inputs, strict=False):
            found[f"gradient of input {i}"] = self.layout.to_ours(i, np.asarray(grad), "inputs")
        return found


class Apart(NamedTuple):
    """How far results are from ours."""

    greatest: float  # the greatest difference in an array over the greatest number in it, of the worst array
    where: str  # the name of that array
    norm: float  # the norm of the difference over that of the array, of the array that is worst by it

    def judged(self, direction: str) -> float:
        """What `TOLERANCE` is about."""
        return self.greatest if direction == "forward" else self.norm


def difference(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> Apart:
    """How far results are from what is expected.

    Numbers that should be 0 (the gradient of a key's bias, which no softmax sees) would only be rounding over
    rounding, so an array counts as at least a thousandth of the greatest of its kind, outputs or gradients.

    Raises:
      ValueError: arrays that only one of them has, other shapes, or numbers that are not finite.
    """
    if set(found) != set(expected):
        raise ValueError(f"only one side has {', '.join(sorted(set(found) ^ set(expected)))}")
    sizes: dict[str, list[float]] = {"output": [0.0, 0.0], "gradient": [0.0, 0.0]}
    for name, array in expected.items():
        if not (np.isfinite(array).all() and np.isfinite(found[name]).all()):
            raise ValueError(f"{name} is not finite")
        if found[name].shape != array.shape:
            raise ValueError(f"{name} has shape {found[name].shape}, ours {array.shape}")
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
    """The greatest number and the norm."""
    array = array.astype(np.float64)
    return float(np.max(np.abs(array), initial=0)), float(np.linalg.norm(array.ravel()))


def one_line(error: BaseException, length: int = 200) -> str:
    """An error's type and first line."""
    return f"{type(error).__name__}: {(str(error).strip() or '-').splitlines()[0][:length]}"


def measure(
    subject: Subject,
    direction: str,
    programs: Mapping[str, Callable[[], Program]],
    *,
    blocks: int = 5,
    block_seconds: float = 0.25,
    end: float = float("inf"),
) -> dict[str, Any]:
    """A row: ours against every program, in blocks that take turns.

    Args:
      subject: what is computed.
      direction: "forward", or "gradient" for forward and backward.
      programs: the peers, made when it is their turn.
      blocks: of each.
      block_seconds: about how long a block is.
      end: on the clock of `time.monotonic`; a peer whose turn to be prepared comes later is left out.

    Returns:
      The row. A peer whose numbers are not ours is told and not timed; one that fails says how.
    """
    ours = JaxProgram(subject)
    calls: dict[str, Callable[[], Any]] = {}
    peers: dict[str, dict[str, Any]] = {}
    start = time.perf_counter()
    calls["ours"] = ours.call(direction)
    expected = ours.arrays(direction, jax.block_until_ready(calls["ours"]()))
    prepared = {"ours": time.perf_counter() - start}
    for name, make in programs.items():
        if time.monotonic() > end:
            peers[name] = {"left_out": "the budget ended"}
            continue
        start = time.perf_counter()
        try:
            program = make()
            call = program.call(direction)
            found = program.arrays(direction, jax.block_until_ready(call()))
        except Exception as error:  # unsupported, no compiler, out of memory: a finding; the others go on
            peers[name] = {"failed": one_line(error)}
            continue
        seconds = time.perf_counter() - start
        try:
            apart = difference(found, expected)
        except ValueError as error:
            peers[name] = {"differs": str(error)}
            continue
        peers[name] = {
            "difference": apart.greatest,
            "where": apart.where,
            "norm_of_difference": apart.norm,
            "tolerance": TOLERANCE[direction],
        }
        if apart.judged(direction) > TOLERANCE[direction]:
            peers[name]["differs"] = (
                f"{apart.where} by {apart.greatest:.1e} of its greatest number, in norm {apart.norm:.1e}"
            )
            continue
        prepared[name], calls[name] = seconds, call
    if len(calls) > 1:
        # The first call of a block pays for memory and threads that another gave up.
        times = timing.alternate(calls, blocks=blocks, block_seconds=block_seconds, uncounted=1)
    else:
        times = {}
    row: dict[str, Any] = {"subject": subject.name, "shape": subject.shape, "direction": direction}
    row["ours"] = {"prepared_seconds": prepared["ours"], **_times(times.get("ours", []))}
    for name in times:
        if name != "ours":
            peers[name] |= {"prepared_seconds": prepared[name], **_times(times[name])}
            peers[name]["times_as_long"] = timing.ratio(times[name], times["ours"])
    row["peers"] = peers
    return row


def _times(blocks: list[float]) -> dict[str, Any]:
    return {"seconds": float(np.median(blocks)), "blocks": blocks} if blocks else {}


def told(row: Mapping[str, Any]) -> str:
    """A row as lines."""
    text = []
    for name, peer in row["peers"].items():
        head = f"{row['subject'][:40]:40} {row['direction']:8} {name[:30]:30}"
        word = next((f"{key}: {peer[key]}" for key in ("failed", "differs", "left_out") if key in peer), None)
        if word is not None:
            text.append(f"{head} {word}")
            continue
        over = peer["times_as_long"]
        text.append(
            f"{head} {1e3 * peer['seconds']:10.3f} ms, ours {1e3 * row['ours']['seconds']:10.3f} ms: "
            f"{over['median']:.2f} times as long ({over['least']:.2f} to {over['greatest']:.2f}); "
            f"apart {peer['difference']:.0e}"
        )
    return "\n".join(text)
