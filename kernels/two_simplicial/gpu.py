"""2-simplicial attention on Hopper GPUs (Pallas Mosaic GPU, sm90).

What is small is left to XLA: dot products of queries and keys, W_jk = B(value_j, value_k), and in the
backward pass the way from the gradients of those to the inputs. What is as large as the triples is in the
kernels of `gpu_forward.py` and `gpu_backward.py`. W (and C, the products of keys of the linear logits) has
the size of the pairs; where that is much, the keys in first place are worked through in slices, so that only
a slice of it exists.

bfloat16 inputs go through the tensor core as they are, the logits' dot products exactly; float32 numbers are
split into bfloat16 parts and multiplied in three (values) or six (linear logits) products.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from kernels.arrays import Described
from kernels.softmax import LOG2E, MASKED
from kernels.two_simplicial import gpu_backward, gpu_forward, gpu_operands
from kernels.two_simplicial.reference import Config

# With fewer keys most of a tile of 16 would be padding; the plain path is hard to beat there.
LEAST_KEYS = 8
MOST_KEYS = 4096
MOST_FEATURES = 128


def unsupported(
    config: Config,
    query: Described,
    key1: Described,
    key2: Described,
    value: Described,
    bilinear: Described,
    mask: Described | None = None,
) -> str | None:
    """Why these arguments, of which shapes and dtypes suffice, cannot be computed here, or None."""
    del mask
    arrays = {"query": query, "key1": key1, "key2": key2, "value": value, "bilinear": bilinear}
    for name, array in arrays.items():
        if array.dtype not in (jnp.float32, jnp.bfloat16):
            return f"{name}: got dtype {array.dtype}, expected float32 or bfloat16"
    keys, features, depth = key1.shape[1], bilinear.shape[1], query.shape[-1]
    if keys < LEAST_KEYS:
        return f"M: got {keys} keys, expected at least {LEAST_KEYS} (fewer leave most of a tile empty)"
    if keys > MOST_KEYS:
        return f"M: got {keys} keys, expected at most {MOST_KEYS} (the limit of shared memory)"
    if features > MOST_FEATURES:
        return f"F: got {features} features, expected at most {MOST_FEATURES} (the limit of registers)"
    if config.logit != "unsigned" and depth > MOST_FEATURES:
        return f"D: got {depth} features, expected at most {MOST_FEATURES} with logit={config.logit!r}"
    if config.scale <= 0:
        # The largest logit is found before scaling.
        return f"scale: got {config.scale}, expected a positive number"
    return None


def forward(
    config: Config, *arrays: Any, blocks: Mapping[str, int] | None = None, interpret: bool = False
) -> tuple[Float[Array, "B N H F"], Float[Array, "B H N"]]:
    """`reference.two_simplicial_attention` by the forward kernel: its arrays and its results.

    `blocks` are "k" keys of a tile, "j" tiles of a pipeline step and "stages" of the pipeline.

    Raises:
      NotImplementedError: for arguments that `unsupported` names.
    """
    problem = _prepared("forward", config, arrays, blocks, interpret)
    outs, sums = problem.each_chunk(lambda piece: gpu_forward.attend(problem.plan, problem.operands(piece)))
    # Each slice is a softmax of its own; together they are weighted by their denominators.
    top = jnp.max(sums, axis=0, keepdims=True)
    weights = jnp.exp2(sums - top)
    total = jnp.sum(weights, axis=0, keepdims=True)
    out = problem.ungrouped(jnp.sum(outs * (weights / total)[..., None], axis=0))
    lse = jnp.where(top > 0.5 * MASKED, (top + jnp.log2(total)) / LOG2E, 0.0)
    lse = problem.ungrouped(lse[0])
    n, _, _, features = problem.sizes
    out, lse = out[:, :, :n, :features].swapaxes(1, 2), lse[:, :, :n]
    if problem.rows is not None:
        out = jnp.where(problem.rows, out, 0.0)
        lse = jnp.where(problem.rows[:, None, :, 0, 0], lse, 0.0)
    return out.astype(arrays[3].dtype), lse


def backward(
    config: Config, *operands: Any, blocks: Mapping[str, int] | None = None, interpret: bool = False
) -> tuple[Array, ...]:
    """Gradients of query, key1, key2, value and bilinear, each in its type.

    `operands` are the arrays of `forward`, its results, and the gradient of its output; `blocks` are as
    there, "j" times "k" a multiple of 64.

    Raises:
      NotImplementedError: for arguments that `unsupported` names.
    """
    *arrays, out, lse, dout = operands
    problem = _prepared("backward", config, arrays, blocks, interpret)
    of_queries, of_pairs = problem.backward_operands(out, lse, dout)

    def chunk(piece):
        operands = problem.operands(piece)
        towards_queries = gpu_backward.query_side(problem.plan, {**operands, **of_queries})
        towards_pairs = gpu_backward.pair_side(problem.plan, {**operands, **of_pairs})
        return problem.gradients(piece, towards_queries, towards_pairs)

    dquery, dkey1, dkey2, dfirst, dsecond, dbilinear = problem.each_chunk(chunk)
    n, m, *_ = problem.sizes
    dkey1, dfirst = (
        jnp.moveaxis(a, 0, 1).reshape(a.shape[1], -1, *a.shape[3:])[:, :m] for a in (dkey1, dfirst)
    )
    dquery, dkey2, dsecond, dbilinear = (jnp.sum(a, axis=0) for a in (dquery, dkey2, dsecond, dbilinear))
    gradients = dquery[:, :n], dkey1, dkey2[:, :m], dfirst + dsecond[:, :m], dbilinear
    return tuple(g.astype(a.dtype) for g, a in zip(gradients, arrays, strict=False))


def block_candidates(
    config: Config, query: Described, key1: Described, *_: Any
) -> dict[str, list[dict[str, int]]]:
    """Block sizes to try when tuning, the default first: "k" keys of a tile, "j" tiles of a pipeline step."""
    del config, query
    keys = key1.shape[1]
    width = 16 if keys <= 16 else 32
    forward = [{"k": width, "j": j, "stages": stages} for j in (4, 2, 8) for stages in (2, 3)]
    if keys % 64 == 0:
        forward.append({"k": 64, "j": 2, "stages": 2})
    # A tile of 64 pairs: with more, their sums over queries do not fit in registers.
    backward = [{"k": width, "j": 64 // width, "stages": stages} for stages in (2, 3)]
    return {"forward": forward, "backward": backward}


def _prepared(direction, config, arrays, blocks, interpret) -> gpu_operands.Problem:
    reason = unsupported(config, *arrays)
    if reason is not None:
        raise NotImplementedError(reason)
    blocks = {**block_candidates(config, *arrays)[direction][0], **(blocks or {})}
    return gpu_operands.prepare(config, *arrays, blocks=blocks, interpret=interpret)
