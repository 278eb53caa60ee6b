"""Widths at which two models have the same number of parameters."""

import bisect
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from flax import linen as nn


def count(module: nn.Module, *inputs: Any) -> int:
    """Returns the number of parameters of a module on these inputs, by tracing alone.

    Inputs are arrays or `jax.ShapeDtypeStruct`s.
    """
    variables = jax.eval_shape(module.init, jax.random.key(0), *inputs)
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(variables["params"]))


def matched(
    make: Callable[[int], nn.Module],
    target: int,
    *inputs: Any,
    candidates: Sequence[int] = range(1, 4097),
    tolerance: float = 0.02,
) -> int:
    """Returns the width whose number of parameters is nearest to a target; of two, the smaller.

    Args:
      make: from a width, such as that of the feed-forward blocks, to the module.
      target: number of parameters.
      *inputs: of the module, as for `count`.
      candidates: increasing widths. The number of parameters must increase with the width.
      tolerance: largest relative difference from the target.

    Raises:
      ValueError: no candidate is within the tolerance.
    """
    if not candidates:
        raise ValueError("candidates: got none, expected at least one width")

    @functools.cache
    def size(width: int) -> int:
        return count(make(width), *inputs)

    above = bisect.bisect_left(candidates, target, key=size)
    near = [candidates[i] for i in (above - 1, above) if 0 <= i < len(candidates)]
    best = min(near, key=lambda width: abs(size(width) - target))
    if abs(size(best) - target) > tolerance * target:
        raise ValueError(
            f"target: got {target} parameters, expected a number within {tolerance:.1%} of a candidate's; "
            f"the nearest is {size(best)} at width {best}"
        )
    return best
