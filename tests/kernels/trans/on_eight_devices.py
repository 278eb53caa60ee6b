"""Run by test_sharded.py with eight devices: prints, as JSON, the errors of every way to spread a call."""

import functools
import json

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from kernels.trans.api import trans
from kernels.trans.shapes import square
from kernels.trans.sharded import trans_sharded
from tests.kernels.trans import cases

BATCH, HEADS, TOKENS = 2, 4, 24
ROWS = P(None, None, "rows")


def errors(function, causal, mask="none", dtype="float32"):
    """How far values and gradients of function(kernel_logits, premise, mask) are from float64 ones."""
    shape = square("", BATCH, HEADS, TOKENS, causal=causal)
    arrays, dout = cases.make(shape, dtype, mask)
    want = cases.answers(shape.config, arrays, dout)
    mask = None if arrays[2] is None else jnp.asarray(arrays[2])

    def both(kernel_logits, premise, dout):
        out, pull = jax.vjp(lambda *pair: function(*pair, mask), kernel_logits, premise)
        return out, *pull(dout)

    got = jax.jit(both)(*map(jnp.asarray, arrays[:2]), jnp.asarray(dout))
    names = ("out", "dkernel_logits", "dpremise")
    return {name: cases.error(value, want[name]) for name, value in zip(names, got, strict=True)}


def by_ring(mesh, causal, spec=ROWS, mask_spec=None, **options):
    """`trans_sharded` on a mesh."""

    def function(kernel_logits, premise, mask):
        ring = functools.partial(trans_sharded, axis_name="rows", causal=causal)
        if mask is None:
            inner = jax.shard_map(ring, mesh=mesh, in_specs=(spec, spec), out_specs=spec, **options)
            return inner(kernel_logits, premise)
        inner = jax.shard_map(
            lambda kernel, premise, mask: ring(kernel, premise, mask=mask),
            mesh=mesh,
            in_specs=(spec, spec, mask_spec),
            out_specs=spec,
            **options,
        )
        return inner(kernel_logits, premise, mask)

    return function


def by_shards(mesh, spec, causal):
    """`trans` in shard_map, batch and heads sharded."""

    def function(kernel_logits, premise, mask):
        inner = functools.partial(trans, causal=causal)
        if mask is None:
            return jax.shard_map(inner, mesh=mesh, in_specs=(spec, spec), out_specs=spec)(
                kernel_logits, premise
            )
        return jax.shard_map(
            lambda kernel, premise, mask: inner(kernel, premise, mask=mask),
            mesh=mesh,
            in_specs=(spec, spec, P()),
            out_specs=spec,
        )(kernel_logits, premise, mask)

    return function


def by_compiler(mesh, spec, causal):
    """`trans` under jit with sharded arguments, cut up by the compiler."""

    def function(kernel_logits, premise, mask):
        place = functools.partial(jax.lax.with_sharding_constraint, shardings=NamedSharding(mesh, spec))
        return place(trans(place(kernel_logits), place(premise), causal=causal, mask=mask))

    return function


def second_order(mesh):
    """The gradient of the gradient's norm, through the ring and without it."""
    arrays, _ = cases.make(square("", 1, 2, 8), "float32")

    def norm(function):
        def of(kernel_logits, premise):
            gradients = jax.grad(lambda *pair: (function(*pair, None) ** 2).sum(), (0, 1))(
                kernel_logits, premise
            )
            return sum((g**2).sum() for g in gradients)

        return jax.jit(jax.grad(of, (0, 1)))(*map(jnp.asarray, arrays[:2]))

    got, want = norm(by_ring(mesh, False)), norm(lambda k, p, _: trans(k, p, implementation="reference"))
    errors = [cases.error(g, jnp.asarray(w)) for g, w in zip(got, want, strict=True)]
    return float(jnp.max(jnp.asarray(errors)))  # nan, if any is


def main():
    one = jax.make_mesh((8,), ("rows",), axis_types=(AxisType.Auto,))
    two = jax.make_mesh((2, 4), ("data", "rows"), axis_types=(AxisType.Auto,) * 2)
    data_and_rows = P("data", None, "rows")
    found = {"devices": jax.device_count()}
    for causal, name in ((False, "full"), (True, "causal")):
        found |= {
            f"ring, {name}": errors(by_ring(one, causal), causal),
            f"ring, {name}, mask": errors(by_ring(one, causal, mask_spec=ROWS), causal, "full"),
        }
    found |= {
        "ring, causal, padding": errors(by_ring(one, True, mask_spec=P()), True, "padding"),
        "ring and data, causal": errors(by_ring(two, True, data_and_rows, data_and_rows), True, "full"),
        "shards, causal": errors(by_shards(two, P("data", "rows"), True), True),
        "compiler, rows, causal": errors(by_compiler(two, data_and_rows, True), True, "padding"),
        "compiler, heads, causal": errors(by_compiler(two, P("data", "rows"), True), True),
    }
    found |= {
        "ring, unchecked": errors(by_ring(one, True, check_vma=False), True),
        "shards, one mask for all": errors(by_shards(two, P("data", "rows"), False), False, "tokens"),
        "ring, bfloat16": errors(by_ring(one, True), True, dtype="bfloat16"),
        "second order": {"ring": second_order(one)},
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
