"""Shared by the tests of attention, blocks and agents: random numbers and compiled calls.

Numbers are NumPy arrays: outside `jit`, JAX would compile a program for every index and sum.
"""

from typing import Any

import jax
import numpy as np


def draw(seed: int, *shape: int) -> np.ndarray:
    """Draws normal numbers in float64, which JAX converts to float32 unless float64 is enabled."""
    return np.random.default_rng(seed).normal(size=shape)


def perturbed(tree: Any) -> Any:
    """Adds noise to parameters; none stays 0 or 1, so a missing bias or gain would show."""
    leaves, treedef = jax.tree.flatten(jax.device_get(tree))
    return jax.tree.unflatten(
        treedef, [x + (0.1 * draw(i, *x.shape)).astype(x.dtype) for i, x in enumerate(leaves)]
    )


def on_host(function: Any, **options: Any) -> Any:
    """Compiles a function and returns its outputs as NumPy arrays."""
    compiled = jax.jit(function, compiler_options=options)
    return lambda *args, **kwargs: jax.device_get(compiled(*args, **kwargs))


def quickly(function: Any) -> Any:
    """Does the same as `on_host`, with half the compile time.

    For values only: XLA computes wrong float64 gradients at this optimisation level.
    """
    return on_host(function, xla_backend_optimization_level=0)


def parameters(module: Any, *inputs: Any, **masks: Any) -> Any:
    """Draws variables of about the sizes of initial ones, without compiling; none is 0 or 1."""
    return of_shapes(jax.eval_shape(module.init, jax.random.key(0), *inputs, **masks))


def of_shapes(shapes: Any) -> Any:
    """Draws variables of these shapes, as `parameters` does."""
    leaves, treedef = jax.tree.flatten_with_path(shapes)

    def drawn(seed, path, shape):
        if len(shape) > 1:
            return draw(seed, *shape) / np.sqrt(np.prod(shape[:-1]))
        return 0.1 * draw(seed, *shape) + (path[-1].key == "scale")

    values = [drawn(i, path, leaf.shape).astype(leaf.dtype) for i, (path, leaf) in enumerate(leaves)]
    return jax.tree.unflatten(treedef, values)


def made(module: Any, *inputs: Any, **masks: Any) -> tuple[Any, Any]:
    """Returns variables of a module and its compiled call."""
    return parameters(module, *inputs, **masks), quickly(module.apply)


def with_maps(module: Any, variables: Any, *inputs: Any, method: str | None = None, **masks: Any) -> Any:
    """Returns a call's output and what it sows, by name."""

    def call(variables, inputs, masks):
        return module.apply(variables, *inputs, **masks, method=method, mutable=["intermediates"])

    output, state = quickly(call)(variables, inputs, masks)
    return output, {name: value[0] for name, value in state.get("intermediates", {}).items()}
