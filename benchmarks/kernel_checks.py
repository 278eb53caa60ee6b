"""Checks values and gradients of every kernel on this machine's chip against the definition in float64.

    python -m benchmarks.kernel_checks --out=checks.json

The definition runs in float64 on the host, on the same inputs as the kernel (bfloat16 inputs are converted
exactly). The relative error is ||got - want|| / ||want|| over a whole array. The exit status is 1 if an error
exceeds its tolerance.
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

# Minimum norm in relative errors, relative to the cotangent's norm, so that zero gradients can be compared.
FLOOR = 0.3
TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2}
# Real sizes except for the batch, so that the host can compute them in float64.
MEDIUM = (
    two_simplicial_shapes.Shape("virtual, one group", 1, 2, 1024, 32, 48),
    two_simplicial_shapes.Shape("full, one group", 1, 1, 256, 256, 64),
    two_simplicial_shapes.Shape("keys in slices", 1, 1, 64, 640, 48),
    trans_shapes.square("FOLIO, one group", 1, 3, 512),
    trans_shapes.square("decoder, one group", 1, 3, 512, causal=True),
    trans_shapes.square("rows that no program holds", 1, 1, 2048),
    trans_shapes.square("rows that no program holds, causal", 1, 1, 2048, causal=True),
    # Short, because the definition materializes all triples of positions.
    trilinear_shapes.Shape("windows, one group", 1, 96, 64, 1, 128, 32, 64),
)


MASKED = two_simplicial_shapes.Shape("masked triples", 2, 2, 150, 24, 12)


def to_check() -> Iterator[kernel_cases.Case]:
    """Yields small irregular shapes and one of each real size, in both dtypes."""
    for dtype in (jnp.bfloat16, jnp.float32):
        for logit in ("unsigned", "trilinear"):
            yield kernel_cases.two_simplicial(MASKED, dtype, logit, masked=True)
        for shape in (*MEDIUM, *two_simplicial_shapes.SMALL, *trans_shapes.SMALL, *trilinear_shapes.SMALL):
            if isinstance(shape, two_simplicial_shapes.Shape):
                for logit in ("unsigned", "trilinear", "signed"):
                    if logit != "signed" or shape.features % 3 == 0:  # a sum of determinants of 3 x 3
                        yield kernel_cases.two_simplicial(shape, dtype, logit)
            elif isinstance(shape, trans_shapes.Shape):
                yield kernel_cases.trans(shape, dtype)
            else:
                yield kernel_cases.trilinear(shape, dtype)


def expected(case: kernel_cases.Case, arrays: tuple, cotangent: np.ndarray) -> list[np.ndarray]:
    """Computes output and gradients of the definition in float64 on the host."""
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        wide = [x if x is None or x.dtype == bool else np.asarray(x, np.float64) for x in arrays]
        count = case.operation.differentiable
        out, pullback = jax.vjp(
            lambda *x: case.operation.reference(case.config, *x, *wide[count:])[0],
            *(jnp.asarray(x) for x in wide[:count]),
        )
        return [np.asarray(out), *map(np.asarray, pullback(jnp.asarray(cotangent, np.float64)))]


def check(case: kernel_cases.Case, implementation: dispatch.Name) -> dict[str, Any]:
    """Computes a row: the relative errors of one implementation on one case."""
    kind = str(case.dtype)
    row = {"operation": case.operation.name, "case": case.name, "implementation": implementation}
    if reason := dispatch.unsupported(case.operation, implementation, case.config, case.avals):
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
    except Exception as error:  # recorded as a result; the other cases still run
        return {**row, "failed": timing.one_line(error)}
    floor = FLOOR * float(np.linalg.norm(np.asarray(cotangent, np.float64)))
    errors = [
        float(np.linalg.norm(g - w) / max(np.linalg.norm(w), floor)) for g, w in zip(got, want, strict=True)
    ]
    # A NaN fails this comparison.
    return {**row, "errors": errors, "holds": all(error <= TOLERANCE[kind] for error in errors)}


def describe(row: dict[str, Any]) -> str:
    """Formats a row as a line: the error of the output, then those of the gradients."""
    head = f"{row['operation'][:24]:24} {row['case'][:44]:44} {row['implementation']:14}"
    if "errors" not in row:
        return f"{head} {row.get('failed') or 'not supported: ' + row['unsupported']}"[:200]
    return f"{head} {'holds' if row['holds'] else 'WRONG'} " + " ".join(
        f"{error:.1e}" for error in row["errors"]
    )


def main() -> int:
    """Runs the program with the values of its flags."""
    out = ("", "output file; empty to write none")
    parser = machine.parser(__doc__, only=("", "only cases whose operation or name contains this"), out=out)
    arguments = parser.parse_args()
    found = list(kernel_cases.chosen(to_check(), arguments.only))
    kernel_cases.check_only(parser, arguments.only, found)
    rows = []
    for case in found:
        for implementation in kernels.IMPLEMENTATIONS[jax.default_backend()]:
            with timing.turn(alone=False):
                rows.append(check(case, implementation))
            print(describe(rows[-1]), flush=True)
            # Written after every row, so that a kernel that hangs or crashes loses only its own row.
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
