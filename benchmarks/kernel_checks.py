"""Values and gradients of every kernel on the chip that is here, against the definition in float64.

    python -m benchmarks.kernel_checks --out=checks.json

The definition runs in float64 on the host, on the same inputs as the kernel has (bfloat16 ones taken
exactly). A relative error is ||got - want|| / ||want|| over a whole array. Exit status 1 when an error is
above its tolerance.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import kernel_cases, kernels, machine, timing
from kernels import dispatch
from kernels.trans import shapes as trans_shapes
from kernels.trilinear import shapes as trilinear_shapes
from kernels.two_simplicial import shapes as two_simplicial_shapes

# Of the norm of the cotangent: an array smaller than that, such as a gradient that is 0, counts as so large.
FLOOR = 0.3
TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2}
# Real in every size but the batch, so that a host can do them in float64.
MEDIUM = (
    two_simplicial_shapes.Shape("virtual, one group", 1, 2, 1024, 32, 48),
    two_simplicial_shapes.Shape("full, one group", 1, 1, 256, 256, 64),
    trans_shapes.square("FOLIO, one group", 1, 3, 512),
    trans_shapes.square("decoder, one group", 1, 3, 512, causal=True),
    # Short, since the definition has an array over all triples of positions.
    trilinear_shapes.Shape("windows, one group", 1, 96, 64, 1, 128, 32, 64),
)


def to_check() -> Iterator[kernel_cases.Case]:
    """Awkward small shapes and one of each real size, in both types."""
    for dtype in (jnp.bfloat16, jnp.float32):
        for shape in (*MEDIUM, *two_simplicial_shapes.SMALL, *trans_shapes.SMALL, *trilinear_shapes.SMALL):
            if isinstance(shape, two_simplicial_shapes.Shape):
                for logit in ("unsigned", "trilinear", "signed"):
                    yield kernel_cases.two_simplicial(shape, dtype, logit)
            elif isinstance(shape, trans_shapes.Shape):
                yield kernel_cases.trans(shape, dtype)
            else:
                yield kernel_cases.trilinear(shape, dtype)


def expected(case: kernel_cases.Case, arrays: tuple, cotangent: np.ndarray) -> list[np.ndarray]:
    """Output and gradients of the definition in float64, on the host."""
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        wide = [x if x is None else np.asarray(x, np.float64) for x in arrays]
        count = case.operation.differentiable
        out, pullback = jax.vjp(
            lambda *x: case.operation.reference(case.config, *x, *wide[count:])[0],
            *(jnp.asarray(x) for x in wide[:count]),
        )
        return [np.asarray(out), *map(np.asarray, pullback(jnp.asarray(cotangent, np.float64)))]


def check(case: kernel_cases.Case, implementation: dispatch.Name) -> dict[str, Any]:
    """A row: the relative errors of one implementation on one case."""
    kind = str(case.dtype)
    row = {"operation": case.operation.name, "case": case.name, "implementation": implementation}
    backend = case.operation.backend(implementation)
    if reason := backend.unsupported(case.config, *case.avals):
        return {**row, "unsupported": reason}
    arrays = case.draw(seed=1)
    count = case.operation.differentiable
    forward = case.function("forward", implementation)

    @jax.jit
    def both(cotangent, *arrays):
        out, pullback = jax.vjp(lambda *x: forward(*x, *arrays[count:]), *arrays[:count])
        return out, *pullback(cotangent)

    shape = jax.eval_shape(forward, *arrays)
    cotangent = jax.random.normal(jax.random.key(2), shape.shape).astype(shape.dtype)
    try:
        got = [np.asarray(x, np.float64) for x in both(cotangent, *arrays)]
        want = expected(case, arrays, np.asarray(cotangent))
    except Exception as error:  # the finding; the other cases go on
        return {**row, "failed": timing.one_line(error)}
    floor = FLOOR * float(np.linalg.norm(np.asarray(cotangent, np.float64)))
    errors = [
        float(np.linalg.norm(g - w) / max(np.linalg.norm(w), floor)) for g, w in zip(got, want, strict=True)
    ]
    # A NaN is no error that compares as small.
    return {**row, "errors": errors, "holds": all(error <= TOLERANCE[kind] for error in errors)}


def describe(row: dict[str, Any]) -> str:
    """A row as a line: the error of the output, then those of the gradients."""
    head = f"{row['operation'][:24]:24} {row['case'][:44]:44} {row['implementation']:14}"
    if "errors" not in row:
        return f"{head} {row.get('failed') or 'not supported: ' + row['unsupported']}"[:200]
    return f"{head} {'holds' if row['holds'] else 'WRONG'} " + " ".join(
        f"{error:.1e}" for error in row["errors"]
    )


def main() -> int:
    """The program."""
    out = ("", "the record; empty: nowhere")
    arguments = machine.parser(
        __doc__, only=("", "only cases whose operation or name has this in it"), out=out
    ).parse_args()
    rows = []
    for case in kernel_cases.chosen(to_check(), arguments.only):
        for implementation in kernels.IMPLEMENTATIONS[jax.default_backend()]:
            rows.append(check(case, implementation))
            print(describe(rows[-1]), flush=True)
            # After every row: a kernel that hangs or takes the process down loses only itself.
            if arguments.out:
                record = {**machine.describe(), "command": "python -m benchmarks.kernel_checks", "rows": rows}
                machine.write(Path(arguments.out), record)
    wrong = [row for row in rows if "failed" in row or not row.get("holds", True)]
    print(
        f"{len(rows)} checks, {len(wrong)} wrong or failed, "
        f"{sum('unsupported' in row for row in rows)} not supported"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
