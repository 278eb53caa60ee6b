"""Run by `test_sharded.py` in a process of its own: every operation on eight devices against one.

Batch over the axis `data`, heads over `model`; by the compiler (`jit` with shardings, mesh axes of type Auto
and Explicit) and by `shard_map`. Prints the greatest relative error of output and gradients for each as JSON,
infinite where a result is not sharded as it should be or a program gathers an array.
"""

import functools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType

from kernels import Logit, trans, trilinear_attention, two_simplicial_attention

jax.config.update("jax_numpy_rank_promotion", "raise")

BATCH, HEADS = jax.P("data"), jax.P("data", None, "model")


def draw(*shape: int, seed: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape) * 0.7, jnp.float32)


def operations():
    """Name: function, arrays, how each is cut, how the output is."""
    key = [draw(4, 6, 4, 9, seed=seed) for seed in (1, 2)]
    two = (draw(4, 10, 4, 9, seed=0), *key, draw(4, 6, 4, 5, seed=3), draw(4, 3, 5, 5, seed=4))
    two_cuts = (*[HEADS] * 4, jax.P("model"))
    logits: tuple[Logit, ...] = ("unsigned", "signed")
    for logit in logits:
        yield (
            f"two_simplicial, {logit}",
            functools.partial(two_simplicial_attention, logit=logit),
            two,
            two_cuts,
            HEADS,
        )
    yield (
        "trans",
        trans,
        (draw(4, 4, 7, 7, seed=5), draw(4, 4, 7, 7, seed=6)),
        (jax.P("data", "model"),) * 2,
        None,
    )
    grouped = (draw(4, 12, 8, 6, seed=7), *(draw(4, 12, 4, 6, seed=seed) for seed in range(8, 12)))
    yield (
        "trilinear",
        lambda *x, **o: trilinear_attention(*x, causal=True, window1=3, window2=5, **o),
        grouped,
        (HEADS,) * 5,
        HEADS,
    )


def errors(got, want) -> float:
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)
    return float(np.max([jnp.linalg.norm(g - w) / jnp.linalg.norm(w) for g, w in pairs]))  # nan, if any is


def gradients(function, axes=()):
    """Output and gradients of a loss that is summed over `axes`."""

    def loss(*x):
        out = function(*x)
        value = (out * jnp.sin(out)).sum()
        return (jax.lax.psum(value, axes) if axes else value), out

    def both(*x):
        (_, out), found = jax.value_and_grad(loss, argnums=tuple(range(len(x))), has_aux=True)(*x)
        return out, found

    return both


def by_compiler(function, placed, want, cuts) -> float:
    """The error of a program that the compiler partitions, which needs to gather nothing."""
    compiled = jax.jit(gradients(function)).lower(*placed).compile()
    got = compiled(*placed)
    whole = "all-gather" in str(compiled.as_text())
    for x, cut in zip(jax.tree.leaves(got), cuts, strict=True):
        whole |= not x.sharding.is_equivalent_to(jax.NamedSharding(x.sharding.mesh, cut), x.ndim)
    return math.inf if whole else errors(jax.device_get(got), want)


def long_batch():
    """A batch sharded over more devices than one tile of the blockwise path has entries."""
    key = draw(16, 32, 8, 6, seed=1)
    return draw(16, 128, 8, 6, seed=0), key, key, key, draw(8, 3, 6, 6, seed=2)


def by_rows(mesh) -> dict[str, float]:
    """Positions sharded over `model`: the compiler gathers what it needs."""
    found = {}
    for name, function, arrays, _, _ in operations():
        cut = jax.P("data", None, "model") if name == "trans" else jax.P("data", "model")
        cuts = [cut if name != "two_simplicial, signed" and x.shape[1] % 2 == 0 else jax.P() for x in arrays]
        cuts[0] = cut
        if name == "trans":
            arrays = tuple(x[:, :, :6, :6] for x in arrays)
        placed = [jax.device_put(x, jax.NamedSharding(mesh, c)) for x, c in zip(arrays, cuts, strict=True)]
        got = jax.jit(gradients(function))(*placed)
        found[f"{name}, rows"] = errors(jax.device_get(got), jax.jit(gradients(function))(*arrays))
    return found


def main() -> None:
    assert len(jax.devices()) == 8
    auto, explicit = (
        jax.make_mesh((4, 2), ("data", "model"), axis_types=(kind,) * 2)
        for kind in (AxisType.Auto, AxisType.Explicit)
    )
    found = by_rows(explicit)
    for name, function, arrays, cuts, cut_out in operations():
        cut_out = cuts[0] if cut_out is None else cut_out
        want = jax.jit(gradients(function))(*arrays)

        def place(mesh, arrays=arrays, cuts=cuts):
            return [jax.device_put(x, jax.NamedSharding(mesh, c)) for x, c in zip(arrays, cuts, strict=True)]

        for way, mesh in (("jit", auto), ("jit, explicit", explicit)):
            found[f"{name}, {way}"] = by_compiler(function, place(mesh), want, (cut_out, *cuts))
        # bilinear is cut over heads only: its gradient must be summed over the batch's devices.
        for implementation in ("xla", "tpu_interpret"):
            local = gradients(
                lambda *x, f=function, i=implementation: f(*x, implementation=i), ("data", "model")
            )
            mesh = explicit if implementation == "xla" else auto
            mapped = jax.shard_map(local, mesh=mesh, in_specs=cuts, out_specs=(cut_out, cuts))
            got = jax.jit(mapped)(*place(mesh))
            found[f"{name}, shard_map, {implementation}"] = errors(jax.device_get(got), want)
    arrays = long_batch()
    want = jax.jit(gradients(two_simplicial_attention))(*arrays)
    cuts = (*[BATCH] * 4, jax.P())
    for way, kind in (("jit", AxisType.Auto), ("jit, explicit", AxisType.Explicit)):
        mesh = jax.make_mesh((8,), ("data",), axis_types=(kind,))
        placed = [jax.device_put(x, jax.NamedSharding(mesh, c)) for x, c in zip(arrays, cuts, strict=True)]
        found[f"long batch, {way}"] = by_compiler(two_simplicial_attention, placed, want, (BATCH, *cuts))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
