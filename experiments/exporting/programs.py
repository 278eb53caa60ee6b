"""A model's function as programs of `jax.export`, one for each length."""

import contextlib
import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import export
from jax.sharding import NamedSharding, PartitionSpec

from experiments.exporting.interface import BATCH, LENGTH, Exportable, Function
from experiments.exporting.options import CONSTANTS, PORTABLE, Options
from experiments.runtime import mesh as mesh_lib
from experiments.runtime import processes


def export_programs(model: Exportable, options: Options) -> dict[int | None, export.Exported]:
    """The model's function, for each of its lengths; the key is None if that is free or there is none.

    Raises:
        ValueError: what the model cannot be exported as.
    """
    function = _choose_function(model, options)
    made = {length: _export(model, function, options, length) for length in _choose_lengths(model, options)}
    for length, exported in made.items():
        found = dict(zip(sorted(model.outputs), exported.out_avals, strict=True))
        for name, told in model.outputs.items():
            wanted = f"[{', '.join(map(str, sizes(told.shape, options, length)))}]"
            if f"[{', '.join(map(str, found[name].shape))}]" != wanted:
                raise ValueError(f"output {name} has shape {found[name].shape}, expected {wanted}")
    return made


def _choose_function(model: Exportable, options: Options) -> Function:
    if options.derivative:
        if model.derivable is None:
            raise ValueError(
                f"derivative: this {model.kind} has none, its outputs are symbols chosen one by one"
            )
        if options.chips:
            raise ValueError("derivative: exported with --kernels=portable only")
        return model.derivable
    if not options.chips:
        return model.function
    if model.with_kernels is None:
        raise ValueError(
            f"kernels={','.join(options.kernels)}: this {model.kind} has none to choose, expected {PORTABLE}"
        )
    return model.with_kernels(tuple(dict.fromkeys(chip.implementation for chip in options.chips)))


def _choose_lengths(model: Exportable, options: Options) -> tuple[int | None, ...]:
    """The length of each program; a single None if it is free, or there is none."""
    has_length = any(LENGTH in told.shape for told in model.inputs.values())
    if not has_length and options.lengths:
        raise ValueError(f"length={options.lengths[0]}: this {model.kind} has no length")
    lengths = model.lengths if options.lengths == () else options.lengths
    if not lengths:
        return (None,)
    if model.longest is not None and max(lengths) > model.longest:
        raise ValueError(f"length={max(lengths)} must be at most {model.longest}, the positions there are")
    return tuple(sorted(set(lengths)))


def _export(model: Exportable, function: Function, options: Options, length: int | None) -> export.Exported:
    mesh = options.mesh
    weights = named_weights(model)
    structure, order = jax.tree.structure(model.params), list(weights)
    splits = splits_of(weights, options)

    def program(weights, inputs):  # flat dicts: other programs can make them, too
        return dict(function(jax.tree.unflatten(structure, [weights[name] for name in order]), inputs))

    def described(shape, dtype, split):
        sharding = None if mesh is None else NamedSharding(mesh, PartitionSpec(*split))
        return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype), sharding=sharding)

    bounds = [f"{LENGTH} >= {model.shortest}"] if model.shortest > 1 else []
    bounds += [] if model.longest is None else [f"{LENGTH} <= {model.longest}"]
    scope = export.SymbolicScope(bounds if length is None else ())
    inputs = {}
    for name, told in model.inputs.items():
        shape = ",".join(map(str, sizes(told.shape, options, length)))
        inputs[name] = described(
            export.symbolic_shape(shape, scope=scope), told.dtype, split_of_input(options)
        )
    if options.weights == CONSTANTS:
        traced, arguments = jax.jit(functools.partial(program, weights)), (inputs,)
    else:
        shapes = {
            name: described(array.shape, array.dtype, splits.get(name, ())) for name, array in weights.items()
        }
        traced, arguments = jax.jit(program), (shapes, inputs)
    try:
        with contextlib.ExitStack() as naming:
            if mesh is not None:
                naming.enter_context(jax.sharding.use_abstract_mesh(mesh))
                naming.enter_context(nn.logical_axis_rules(mesh_lib.RULES))
            return export.export(traced, platforms=options.platforms)(*arguments)
    except NotImplementedError as error:  # a kernel that does not support these shapes
        raise ValueError(f"kernels={','.join(options.kernels)}: {processes.first_line(error)}") from error
    except Exception as error:  # what a size that is a symbol breaks depends on where it is looked at
        read = str([one.shape for one in inputs.values()])
        free = [name for name in (BATCH, LENGTH) if name in read]
        if not free:
            raise
        raise ValueError(
            f"this model cannot be exported for any {' and '.join(free)}, give a number: "
            f"{processes.first_line(error)}"
        ) from error


def named_weights(model: Exportable) -> dict[str, np.ndarray]:
    """The parameters by names with slashes, in the tree's order, on the host."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(jax.device_get(model.params))
    }


def splits_of(weights: Mapping[str, np.ndarray], options: Options) -> dict[str, list[str | None]]:
    """How the weights lie on the devices: matrices are cut along `model`, all others are copied."""
    parts = options.sharding.get(mesh_lib.MODEL_AXIS, 1)
    splits = {
        name: mesh_lib.split_longest(array.shape, mesh_lib.MODEL_AXIS, parts if parts > 1 else 0)
        for name, array in weights.items()
    }
    return {name: split for name, split in splits.items() if split}


def split_of_input(options: Options) -> list[str | None]:
    """How inputs lie on the devices: their batch is cut along `data`."""
    return [mesh_lib.AXIS] if options.rows > 1 else []


def sizes(shape: tuple[int | str, ...], options: Options, length: int | None = None) -> list[int | str]:
    """A shape as it is exported: the batch fixed, or a multiple of the devices along `data`."""
    batch = options.batch or (BATCH if options.rows == 1 else f"{options.rows}*{BATCH}")
    chosen = {BATCH: batch, LENGTH: length or LENGTH}
    return [chosen.get(size, size) if isinstance(size, str) else size for size in shape]
