"""2-simplicial attention on Hopper GPUs (Pallas Mosaic GPU, sm90).

What is small is left to XLA: dot products of queries and keys, W_jk = B(value_j, value_k), and in the
backward pass the way from the gradients of those to the inputs. What is as large as the triples is in the
kernels of `gpu_forward.py` and `gpu_backward.py`. W (and C, the products of keys of the linear logits) has
the size of the pairs; `gpu_plan.py` cuts a call into chunks of examples and slices of the keys in first
place, so that only a part of it exists at a time.

bfloat16 inputs go through the tensor core as they are, the logits' dot products exactly; float32 numbers are
split into bfloat16 parts and multiplied in three (values) or six (linear logits) products.

The gradient of a logit is P (dP - delta), delta = sum P dP = dout . out. Where a softmax is nearly all at one
pair the difference is small, and an output rounded to 16 bits gives a delta that is wrong by more than that.
The backward pass of 16-bit values therefore computes the output again, in float32, which costs a forward
pass, and takes W as two numbers.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernels import chips
from kernels.arrays import Described, filled
from kernels.softmax import LOG2E, MASKED
from kernels.two_simplicial import gpu_backward, gpu_forward, gpu_operands, pairwise
from kernels.two_simplicial.gpu_plan import Plan, default_blocks, plan
from kernels.two_simplicial.reference import Config

__all__ = ["backward", "block_candidates", "forward", "plan"]


def forward(
    config: Config,
    *arrays: Any,
    blocks: Mapping[str, int] | None = None,
    interpret: bool = False,
    chip: chips.Chip = chips.HOPPER,
) -> tuple[Float[Array, "B N H F"], Float[Array, "B H N"]]:
    """`reference.two_simplicial_attention` by the forward kernel: its arrays and its results.

    `blocks` are "k" keys of a tile, "j" tiles of a step and "stages" of the pipeline.

    Raises:
      Refused: for arguments that `plan` refuses.
    """
    cut = plan("forward", config, *arrays, chip=chip, blocks=blocks)
    out, lse = _attended(config, cut, interpret, _of_one_type(arrays))
    return out.astype(arrays[3].dtype), lse


def _joined(
    sums: tuple[Float[Array, "G N F"], Float[Array, "G N"], Float[Array, "G N"]],
    out: Float[Array, "G N F"],
    top: Float[Array, "G N"],
) -> tuple[Float[Array, "G N F"], Float[Array, "G N"], Float[Array, "G N"]]:
    """Adds a slice of the pairs to (weighted outputs, largest log-sum-exp, total weight), to base 2.

    Each slice is a softmax of its own; together they are weighted by their denominators.
    """
    accumulator, above, total = sums
    largest = jnp.maximum(above, top)
    shrink, weight = jnp.exp2(above - largest), jnp.exp2(top - largest)
    return accumulator * shrink[..., None] + out * weight[..., None], largest, total * shrink + weight


def _attended(
    config: Config, cut: Plan, interpret: bool, arrays: tuple[Any, ...]
) -> tuple[Float[Array, "B N H F"], Float[Array, "B H N"]]:
    """Output and log-sum-exp, both float32."""
    n, features = arrays[0].shape[1], arrays[4].shape[1]

    def chunk(_, arrays):
        problem = gpu_operands.prepare(config, cut, interpret, *arrays)
        kernel = dataclasses.replace(cut.tilings["forward"], interpret=interpret)

        def attend(carry, piece):
            out, top = gpu_forward.attend(kernel, problem.operands(piece))
            if carry is None:
                return (out, top, jnp.ones_like(top)), None
            return _joined(carry, out, top), None

        carry = None
        if cut.slices > 1:
            rows = kernel.groups, kernel.queries
            none = jnp.full(rows, MASKED), jnp.zeros(rows)
            carry = _varying(problem.query, (jnp.zeros((*rows, kernel.features)), *none))
        (out, top, total), _ = problem.over_slices(attend, carry)
        out = problem.ungrouped(out / total[..., None])
        lse = problem.ungrouped(jnp.where(top > 0.5 * MASKED, (top + jnp.log2(total)) / LOG2E, 0.0))
        out, lse = out[:, :, :n, :features].swapaxes(1, 2), lse[:, :, :n]
        if problem.rows is not None:
            out = jnp.where(problem.rows, out, 0.0)
            lse = jnp.where(problem.rows[:, None, :, 0, 0], lse, 0.0)
        return None, (out, lse)

    return _over_chunks(cut, chunk, None, arrays, ())[1]


def backward(
    config: Config,
    *operands: Any,
    blocks: Mapping[str, int] | None = None,
    interpret: bool = False,
    chip: chips.Chip = chips.HOPPER,
) -> tuple[Array, ...]:
    """Gradients of query, key1, key2, value and bilinear, each in its type.

    `operands` are the arrays of `forward`, its results, and the gradient of its output; `blocks` are as
    there, "j" times "k" being 64.

    Raises:
      Refused: for arguments that `plan` refuses.
    """
    *given, out, lse, dout = operands
    cut = plan("backward", config, *given, chip=chip, blocks=blocks)
    arrays = _of_one_type(given)
    n, m = given[0].shape[1], given[1].shape[1]
    if cut.output is not None:
        out, _ = _attended(config, cut.output, interpret, arrays)
    delta = pairwise.product("bnhf,bnhf->bhn", dout.astype(jnp.float32), out.astype(jnp.float32))

    def chunk(dbilinear, operands):
        *arrays, lse, delta, dout = operands
        problem = gpu_operands.prepare(config, cut, interpret, *arrays)
        additional = problem.backward_operands(lse, delta, dout)
        query_side, pair_side = (
            dataclasses.replace(cut.tilings[kernel], interpret=interpret)
            for kernel in ("query_side", "pair_side")
        )

        def differentiate(sums, piece):
            found = problem.operands(piece) | additional
            towards_queries = gpu_backward.query_side(query_side, found)
            towards_pairs = gpu_backward.pair_side(pair_side, found)
            dquery, dkey1, dkey2, dfirst, dsecond, dbilinear = problem.gradients(
                piece, towards_queries, towards_pairs
            )
            added = dquery, dkey2, dsecond, dbilinear
            return tuple(a + b for a, b in zip(sums, added, strict=True)), (dkey1, dfirst)

        like = problem.query, problem.key2, problem.value
        sums = *(jax.lax.full_like(a, 0, jnp.float32) for a in like), dbilinear
        (dquery, dkey2, dsecond, dbilinear), of_slices = problem.over_slices(differentiate, sums)
        dkey1, dfirst = (
            jnp.moveaxis(a, 0, 1).reshape(a.shape[1], -1, *a.shape[3:])[:, :m] for a in of_slices
        )
        gradients = dquery[:, :n], dkey1, dkey2[:, :m], dfirst + dsecond[:, :m]
        return dbilinear, tuple(g.astype(a.dtype) for g, a in zip(gradients, given, strict=False))

    dbilinear = jax.lax.full_like(arrays[4], 0, jnp.float32)
    dbilinear, gradients = _over_chunks(cut, chunk, dbilinear, arrays, (lse, delta, dout))
    return *gradients, dbilinear.astype(given[4].dtype)


def block_candidates(
    config: Config, query: Described, key1: Described, *_: Any
) -> dict[str, list[dict[str, int]]]:
    """Block sizes to try when tuning, the default first: "k" keys of a tile, "j" tiles of a step."""
    del config, query
    keys = key1.shape[1]
    start = default_blocks("forward", keys)
    forward = [{**start, "j": j, "stages": stages} for j in (4, 2, 8) for stages in (2, 3)]
    if keys % 64 == 0:
        forward.append({"k": 64, "j": 2, "stages": 2})
    # A tile of 64 pairs: with more, their sums over queries do not fit in registers.
    backward = [{**default_blocks("backward", keys), "stages": stages} for stages in (2, 3)]
    return {"forward": forward, "backward": backward}


def _of_one_type(arrays) -> tuple[Any, ...]:
    """Arrays of one type, and the mask."""
    *inputs, mask = arrays
    dtype = jnp.result_type(*inputs)
    return *(a.astype(dtype) for a in inputs), mask


def _over_chunks(cut: Plan, function, carry, arrays, more) -> tuple[Any, Any]:
    """`function(carry, (*arrays, *more))` for chunks of examples, its results with all examples again.

    The bilinear map, and a mask for all examples, are no part of a chunk.
    """
    *inputs, bilinear, mask = arrays
    batch = inputs[0].shape[0]
    if cut.chunks == 1:
        return function(carry, (*arrays, *more))
    common = mask is None or mask.shape[0] == 1
    split = (*inputs, *more) if common else (*inputs, *more, mask)

    def cut_up(a):
        return filled(a, 0, cut.chunks * cut.examples).reshape(cut.chunks, cut.examples, *a.shape[1:])

    def chunk(carry, part):
        part, own = (part, mask) if common else (part[:-1], part[-1])
        return function(carry, (*part[: len(inputs)], bilinear, own, *part[len(inputs) :]))

    carry, results = jax.lax.scan(chunk, carry, tuple(map(cut_up, split)))
    return carry, jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[:batch], results)


def _varying(like: Array, arrays: Any) -> Any:
    """Marks arrays as varying over the mesh axes of `like`, as the carry of a loop in `shard_map` must."""
    return jax.tree.map(lambda a: a + jax.lax.full_like(like, 0, a.dtype, ()), arrays)
