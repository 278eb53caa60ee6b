"""Checks and times the hand-written kernels on the chip at hand, at the shapes of a program.

A kernel is proven in a process of its own, so that one that crashes or hangs takes nothing with it; on a TPU,
which only one process can hold, in a thread that is given up when its time is over. `kernels/proofs.py` keeps
the outcomes.
"""

import ast
import dataclasses
import functools
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kernels import chips, implementations, proofs, timing
from kernels.proofs import Proof

MODELS = (
    "two_simplicial_attention(bfloat16[8,1024,8,48], bfloat16[8,32,8,48], bfloat16[8,32,8,48], "
    "bfloat16[8,32,8,48], bfloat16[8,48,48,48])",
    "two_simplicial_attention(bfloat16[8,256,8,64], bfloat16[8,256,8,64], bfloat16[8,256,8,64], "
    "bfloat16[8,256,8,64], bfloat16[8,64,64,64])",
    "trans(bfloat16[8,64,128,128], bfloat16[8,64,128,128])",
    "trans(bfloat16[8,12,512,512], bfloat16[8,12,512,512])",
    "trilinear_attention(bfloat16[1,1024,64,128], bfloat16[1,1024,1,128], bfloat16[1,1024,1,128], "
    "bfloat16[1,1024,1,128], bfloat16[1,1024,1,128], causal=True, window1=32, window2=512)",
)
"""Calls of the papers' models, for a proof without a program."""
WORST = 0.1
"""An error of `xla` itself, relative to float64, with which nothing can be judged."""
SECONDS = 180.0
"""How long a proof may last."""
THREAD = "kernels.prove"
BLOCKS, BLOCK_SECONDS = 5, 0.1
"""How often and how long each program is measured."""
ROUNDINGS = 8
"""Errors of so many roundings of the arrays' dtype are always allowed."""
GIVEN, ANSWER, STAGE = "given", "answer", "stage"
"""Files for the worker process: its call, its result, and the stage that it has reached."""


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of an operation: its settings and the shapes and dtypes of its arrays, None for no mask."""

    operation: implementations.Operation
    config: Any
    avals: tuple[jax.ShapeDtypeStruct | None, ...]

    def __str__(self) -> str:
        arrays = ", ".join(f"{x.dtype}{list(x.shape)}" for x in self.avals if x is not None)
        return f"{self.operation.name}({arrays})".replace(" ", "").replace("],", "], ")


class KernelFailed(UserWarning):
    """A hand-written kernel is wrong, slow to the point of hanging, or raises; it will not be used."""


def prove(
    function: Callable[..., Any] | str | None = None,
    /,
    *args: Any,
    seconds: float = SECONDS,
    again: bool = False,
    **kwargs: Any,
) -> list[Proof]:
    """Proves the hand-written kernels for this machine's chip, so that `implementation=None` may use them.

        kernels.prove(train_step, state, batch)      # every call that the program makes, once per machine

    Each call with `implementation=None` is computed by the chip's kernel and by `xla` on random arrays of
    deviation 1, and compared with float64 on the host: output and gradients may be twice as wrong as those of
    `xla`. Both are timed in alternation. The outcome is kept for this chip, version of jaxlib and source of
    this package (`kernels.proofs.path`). From then on, in this process and later ones, the same call takes
    the kernel if it passed and was faster in every block of the measurement. A kernel that failed is never
    taken; it is reported once, as a `KernelFailed` warning. With LOGIC_ZOO_PROVE=1 in the environment each
    call is proven when it is first compiled. Programs that the compiler partitions over devices take `xla`
    and have nothing to prove.

    Args:
        function: what to prove the calls of; it is traced and lowered for `args` and `kwargs`, not run. Or
            one call in text, such as "trans(bfloat16[8,12,512,512], bfloat16[8,12,512,512], causal=True)".
            None for calls of the papers' models.
        *args: arguments of the function: arrays or `jax.ShapeDtypeStruct`s.
        seconds: how long a proof may last, compilation included.
        again: prove also what has been proven.
        **kwargs: named arguments of the function.

    Returns:
        The proofs, also those made earlier; none if there are no kernels for the chip.

    Raises:
        ValueError: a call in text that cannot be read.
    """
    chip = chips.at_hand()
    if chip.backend is None:
        return []
    if function is None:
        calls = list(dict.fromkeys(call for text in MODELS for call in calls_of(parsed(text))))
    else:
        program = parsed(function) if isinstance(function, str) else (function, args, kwargs)
        calls = calls_of(program)
    found = [prove_call(call, chip, seconds=seconds, again=again) for call in calls]
    jax.clear_caches()  # programs that were compiled before would not use what is known now
    return found


def describe(proof: Proof) -> str:
    """Returns a proof as a line of text."""
    sizes = " ".join(f"{name}={size}" for name, size in proof.sizes.items())
    head = f"{proof.operation} {proof.kind.get('dtype', '')} {sizes}: {proof.backend}"
    if proof.state != "passed":
        return f"{head} FAILED, xla is used: {proof.reason}"
    speedup = ", ".join(f"{ratio:.2f} {name}" for name, ratio in proof.speedup.items())
    worst = max(own for own, _ in proof.errors)
    chosen = "used" if proof.use else "not used"
    return f"{head} is right (error {worst:.1e}), times as fast as xla: {speedup}; {chosen}"


# ---- calls


def calls_of(program: tuple[Callable[..., Any], Sequence[Any], dict[str, Any]]) -> list[Call]:
    """Returns the calls with `implementation=None` that a function makes, without running it."""
    function, args, kwargs = program
    with implementations.collecting() as collected:
        jax.jit(function).lower(*args, **kwargs)
    return [Call(*call) for call in collected]


def parsed(text: str) -> tuple[Callable[..., Any], Sequence[Any], dict[str, Any]]:
    """Reads a call such as "trans(bfloat16[8,12,512,512], bfloat16[8,12,512,512], causal=True)".

    Raises:
        ValueError: it is not the call of an operation with shapes and constants.
    """
    import kernels

    functions = {
        name: getattr(kernels, name) for name in ("two_simplicial_attention", "trans", "trilinear_attention")
    }
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("it is not a call")
        function = functions[call.func.id]
        args = [_described(argument) for argument in call.args]
        kwargs = {
            str(keyword.arg): _described(keyword.value)
            if isinstance(keyword.value, ast.Subscript)
            else ast.literal_eval(keyword.value)
            for keyword in call.keywords
        }
    except (SyntaxError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"call: got {text!r} ({error}), expected one of {', '.join(functions)} with shapes, such as "
            f"{MODELS[2]!r}"
        ) from error

    def run(arrays, named):
        return function(*arrays, **named, **{k: v for k, v in kwargs.items() if k not in named})

    named = {name: value for name, value in kwargs.items() if isinstance(value, jax.ShapeDtypeStruct)}
    return run, (args, named), {}


def _described(node: ast.expr) -> jax.ShapeDtypeStruct:
    """Returns `float32[2,3]` as a shape and a dtype."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        raise ValueError(f"{ast.unparse(node)} is not a shape such as bfloat16[8,12]")
    shape = ast.literal_eval(node.slice)
    shape = shape if isinstance(shape, tuple) else (shape,)
    return jax.ShapeDtypeStruct(shape, jnp.dtype(node.value.id))


# ---- proofs


def prove_call(
    call: Call,
    chip: chips.Chip,
    *,
    seconds: float = SECONDS,
    again: bool = False,
    isolated: bool | None = None,
) -> Proof:
    """Returns what is known about the chip's kernel for a call; finds out if nothing is, and keeps it.

    Args:
        call: the call.
        chip: the chip at hand.
        seconds: how long it may last.
        again: find out in any case.
        isolated: whether in a process of its own; None for all chips but TPUs.
    """
    operation, backend = call.operation, chip.backend
    assert backend is not None
    kind, sizes = operation.describe(call.config, *call.avals)
    known = proofs.find(chip.kind, operation.name, kind, sizes, backend)
    if known is not None and not again:
        return known
    begun = Proof(operation.name, kind, sizes, backend, "began", reason="it never ended")
    _keep(chip, begun)
    run = _in_a_process if (chip.platform != "tpu" if isolated is None else isolated) else _in_a_thread
    try:
        outcome = run(call, chip, seconds)
    except BaseException:  # such as KeyboardInterrupt: nothing is known about the kernel
        _keep(chip, dataclasses.replace(begun, state="interrupted", reason=""))
        raise
    proof = dataclasses.replace(begun, **outcome)
    _keep(chip, proof)
    if proof.state == "failed":
        warnings.warn(
            f"the {backend} kernel of {call} failed on {chip.kind} and will not be used: {proof.reason}",
            KernelFailed,
            stacklevel=2,
        )
    return proof


def _keep(chip: chips.Chip, proof: Proof) -> None:
    try:
        proofs.append(chip.kind, proof)
    except OSError as error:
        warnings.warn(f"{proofs.path(chip.kind)}: proofs are not kept: {error}", stacklevel=3)


def _in_a_process(call: Call, chip: chips.Chip, seconds: float) -> dict[str, Any]:
    """Returns the outcome that a worker reports; one that crashes or takes too long has failed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / GIVEN).write_bytes(pickle.dumps((call, chip)))
        root = str(Path(__file__).resolve().parents[1])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # most of the memory belongs to this process
        }
        environment.pop("LOGIC_ZOO_PROVE", None)
        if platforms := environment.get("JAX_PLATFORMS"):  # float64 is for the host
            environment["JAX_PLATFORMS"] = ",".join(dict.fromkeys((*platforms.split(","), "cpu")))
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "kernels.prove", f"--worker={folder}"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            stage = folder / STAGE
            return _late(seconds, stage.read_text() if stage.exists() else "starting")
        if ended.returncode != 0 or not (folder / ANSWER).exists():
            last = (ended.stderr.strip().splitlines() or ["nothing was said"])[-1]
            return _failed(f"its process ended with {ended.returncode}: {last}")
        return pickle.loads((folder / ANSWER).read_bytes())


def work(folder: Path) -> None:
    """What the process of `_in_a_process` does: it finds the call in a folder and leaves its answer there."""
    call, chip = pickle.loads((folder / GIVEN).read_bytes())
    outcome = examined(call, chip, at=(folder / STAGE).write_text)
    (folder / ANSWER).write_bytes(pickle.dumps(outcome))


def _in_a_thread(call: Call, chip: chips.Chip, seconds: float) -> dict[str, Any]:
    outcome: list[dict[str, Any]] = []
    stages = ["starting"]
    run = threading.Thread(
        target=lambda: outcome.append(examined(call, chip, at=stages.append)), name=THREAD, daemon=True
    )
    run.start()
    run.join(seconds)
    return outcome[0] if outcome else _late(seconds, stages[-1])


def _late(seconds: float, stage: str) -> dict[str, Any]:
    return _failed(f"it did not end within {seconds:g} s (it was {stage})")


def _failed(reason: str, **more: Any) -> dict[str, Any]:
    return {"state": "failed", "reason": reason, **more}


def examined(
    call: Call, chip: chips.Chip, *, at: Callable[[str], Any] = lambda stage: None
) -> dict[str, Any]:
    """Checks and times a kernel: the fields of a `Proof` that this decides.

    The example that is last in the batch is compared with float64, for a cotangent that is 0 for all others,
    so that the sum over the batch in a gradient is that example's. The others are compared with `xla`.

    Args:
        call: the call.
        chip: the chip at hand.
        at: called with the name of each stage before it starts.
    """
    names = ("xla", str(chip.backend))
    try:
        arrays, cotangent = drawn(call)
        last = cotangent.at[:-1].set(0)
        programs = {name: passes(call, name, chip) for name in names}
        got: dict[str, list] = {}
        for name, (_, both) in programs.items():
            at(f"running the {name} kernel" if name != "xla" else "running xla")
            found = (both(*arrays, last), both(*arrays, cotangent))
            got[name] = [[np.asarray(x).astype(np.float64) for x in one] for one in found]
        at("computing in float64 on the host")
        wanted = in_float64(call, arrays, last)
    except Exception as error:  # whatever a kernel or its compiler raises
        return _failed(f"{type(error).__name__}: {(str(error).strip() or '-').splitlines()[0][:300]}")
    batched = (True, *call.operation.batch_axis[: call.operation.differentiable])
    blockwise, own = (
        [_error(x[-1:] if b else x, y) for x, y, b in zip(got[name][0], wanted, batched, strict=True)]
        for name in names
    )
    between = [_error(x, y) for x, y in zip(got[names[1]][1], got["xla"][1], strict=True)]
    errors = tuple(zip(own, blockwise, strict=True))
    if not max(blockwise) <= WORST:
        return _failed(f"xla's own error is {max(blockwise):.1e}, expected at most {WORST}", errors=errors)
    rounding = ROUNDINGS * float(jnp.finfo(cotangent.dtype).eps)
    for place, (mine, its, apart) in enumerate(zip(own, blockwise, between, strict=True)):
        # Not a number is wrong, too.
        if not (mine <= 2 * its + rounding and apart <= 3 * its + 2 * rounding):
            name = f"gradient {place}" if place else "output"
            return _failed(
                f"the error of its {name} is {mine:.1e} relative to float64, that of xla {its:.1e}; they are "
                f"{apart:.1e} apart",
                errors=errors,
            )
    at("timing")
    speedup = {}
    for index, direction in enumerate(("forward", "both")):
        operands = (*arrays, cotangent) if index else arrays
        timed = {name: functools.partial(pair[index], *operands) for name, pair in programs.items()}
        times = timing.alternate(timed, blocks=BLOCKS, block_seconds=BLOCK_SECONDS, uncounted=1)
        neighbours = zip(times["xla"], times[names[1]], strict=True)
        speedup[direction] = min(blockwise / own for blockwise, own in neighbours)
    return {"state": "passed", "errors": errors, "speedup": speedup, "reason": ""}


def passes(call: Call, name: str, chip: chips.Chip) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns an implementation's forward pass, and a pass with gradients that also takes a cotangent."""
    options = {} if name == "xla" else {"interpret": False, "chip": chip}

    def run(direction, *operands):
        return implementations.run_backend(call.operation, name, direction, call.config, operands, **options)

    def forward(*arrays):
        return run("forward", *arrays)

    def both(*operands):
        *arrays, cotangent = operands
        out, residual = forward(*arrays)
        return out, *run("backward", *arrays, out, residual, cotangent)

    return jax.jit(lambda *arrays: forward(*arrays)[0]), jax.jit(both)


def drawn(call: Call) -> tuple[list[jax.Array | None], jax.Array]:
    """Returns random arrays of deviation 1, masks that allow four of five, and a cotangent."""
    random = np.random.default_rng(0)

    def draw(aval: jax.ShapeDtypeStruct) -> jax.Array:
        if aval.dtype == jnp.bool_:
            return jnp.asarray(random.random(aval.shape) < 0.8)
        return jnp.asarray(random.standard_normal(aval.shape, np.float32), aval.dtype)

    arrays = [None if aval is None else draw(aval) for aval in call.avals]
    out, _ = call.operation.outputs(call.config, *call.avals)
    return arrays, draw(out)


def in_float64(call: Call, arrays: Sequence[Any], cotangent: Any) -> list[np.ndarray]:
    """Returns output and gradients of the batch's last example in float64, blockwise, on the host."""
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):

        def wide(x):
            x = np.asarray(x)
            return jnp.asarray(x if x.dtype == np.bool_ else x.astype(np.float64))

        axes = call.operation.batch_axis
        own = [x if x is None or not b else x[-1:] for x, b in zip(arrays, axes, strict=True)]
        _, both = passes(call, "xla", chips.HOPPER)
        operands = [None if x is None else wide(x) for x in (*own, cotangent[-1:])]
        return [np.asarray(x) for x in both(*operands)]


def _error(got: Any, wanted: np.ndarray) -> float:
    """Returns the relative L2 error of an array."""
    return float(np.linalg.norm(got - wanted) / max(np.linalg.norm(wanted), np.finfo(np.float32).tiny))
