"""Widths at which two models have the same number of parameters."""

import bisect
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
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

    above = _first_of_at_least(candidates, target, size)
    near = [candidates[i] for i in (above - 1, above) if 0 <= i < len(candidates)]
    best = min(near, key=lambda width: abs(size(width) - target))
    if abs(size(best) - target) > tolerance * target:
        raise ValueError(
            f"target: got {target} parameters, expected a number within {tolerance:.1%} of a candidate's; "
            f"the nearest is {size(best)} at width {best}"
        )
    return best


def _first_of_at_least(candidates: Sequence[int], target: int, size: Callable[[int], int]) -> int:
    """Returns what `bisect.bisect_left(candidates, target, key=size)` does, from fewer sizes.

    Numbers of parameters are nearly always polynomials of the width of degree 2 at most, up to rounding. So
    after two halvings the guess is where the polynomial through the last three sizes reaches the target; if
    that has failed five times, the rest is halved.
    """
    low, high = 0, len(candidates)
    known: list[tuple[int, int]] = []
    while low < high:
        guess = (low + high) // 2
        if 2 <= len(known) < 7:
            widths, sizes = np.array(known[-3:], float).T
            curve = np.polynomial.Polynomial.fit(widths, sizes - target, len(widths) - 1)
            least, most = candidates[max(low - 1, 0)], candidates[min(high, len(candidates) - 1)]
            roots = [root.real for root in curve.roots() if root.imag == 0 and least < root.real < most + 0.5]
            if roots:
                guess = min(bisect.bisect_left(candidates, min(roots) - 1e-6), high - 1)
        known.append((candidates[guess], size(candidates[guess])))
        if known[-1][1] < target:
            low = guess + 1
        else:
            high = guess
    return low
