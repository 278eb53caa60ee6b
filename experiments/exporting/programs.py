"""Exports the function of a model with `jax.export`, as one program per length."""

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
    """Exports the model's function for each length; the key None means any length, or no length at all.

    Raises:
        ValueError: if the model does not support the options, or an output has an undeclared shape.
    """
    function = _choose_function(model, options)
    made = {length: _export(model, function, options, length) for length in _choose_lengths(model, options)}
    for length, exported in made.items():
        found = dict(zip(sorted(model.outputs), exported.out_avals, strict=True))
        for name, output in model.outputs.items():
            wanted = f"[{', '.join(map(str, sizes(output.shape, options, length)))}]"
            if f"[{', '.join(map(str, found[name].shape))}]" != wanted:
                raise ValueError(f"output {name}: got shape {found[name].shape}, expected {wanted}")
    return made


def _choose_function(model: Exportable, options: Options) -> Function:
    if options.derivative:
        if model.derivable is None:
            raise ValueError(
                f"derivative: got True, expected False for this {model.kind}, whose outputs are discrete"
            )
        if options.chips:
            raise ValueError(
                f"kernels: got {','.join(options.kernels)}, expected {PORTABLE} for a derivative"
            )
        return model.derivable
    if not options.chips:
        return model.function
    if model.with_kernels is None:
        raise ValueError(
            f"kernels: got {','.join(options.kernels)}, expected {PORTABLE} for this {model.kind}"
        )
    return model.with_kernels(tuple(dict.fromkeys(chip.implementation for chip in options.chips)))


def _choose_lengths(model: Exportable, options: Options) -> tuple[int | None, ...]:
    """Returns the length of each program; a single None means any length, or no length at all."""
    has_length = any(LENGTH in one.shape for one in model.inputs.values())
    if not has_length and options.lengths:
        raise ValueError(
            f"length: got {options.lengths[0]}, expected none, since this {model.kind} has no length"
        )
    lengths = model.lengths if options.lengths == () else options.lengths
    if not lengths:
        return (None,)
    if model.longest is not None and max(lengths) > model.longest:
        raise ValueError(
            f"length: got {max(lengths)}, expected at most {model.longest}, the model's number of positions"
        )
    if min(lengths) < model.shortest:
        raise ValueError(f"length: got {min(lengths)}, expected at least {model.shortest}")
    return tuple(sorted(set(lengths)))


def _export(model: Exportable, function: Function, options: Options, length: int | None) -> export.Exported:
    mesh = options.mesh
    weights = named_weights(model)
    structure, order = jax.tree.structure(model.params), list(weights)
    splits = splits_of(weights, options)

    def program(weights, inputs):  # flat dicts, which other programs can build too
        return dict(function(jax.tree.unflatten(structure, [weights[name] for name in order]), inputs))

    def described(shape, dtype, split):
        sharding = None if mesh is None else NamedSharding(mesh, PartitionSpec(*split))
        return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype), sharding=sharding)

    bounds = [f"{LENGTH} >= {model.shortest}"] if model.shortest > 1 else []
    bounds += [] if model.longest is None else [f"{LENGTH} <= {model.longest}"]
    scope = export.SymbolicScope(bounds if length is None else ())
    inputs = {}
    for name, one in model.inputs.items():
        shape = ",".join(map(str, sizes(one.shape, options, length)))
        inputs[name] = described(
            export.symbolic_shape(shape, scope=scope), one.dtype, split_of_input(options)
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
        raise ValueError(
            f"kernels: got {','.join(options.kernels)}, which do not support this model: "
            f"{processes.first_line(error)}"
        ) from error
    except Exception as error:  # code that needs concrete sizes fails in different ways
        read = str([one.shape for one in inputs.values()])
        free = [name for name in (BATCH, LENGTH) if name in read]
        if not free:
            raise
        raise ValueError(
            f"{', '.join(free)}: got any size, expected a number, since exporting with a symbol failed: "
            f"{processes.first_line(error)}"
        ) from error


def named_weights(model: Exportable) -> dict[str, np.ndarray]:
    """Returns the parameters on the host, by names with slashes, in the tree's order.

    They are in C order, since safetensors writes memory as it lies.
    """
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf, order="C")
        for path, leaf in jax.tree_util.tree_leaves_with_path(jax.device_get(model.params))
    }


def splits_of(weights: Mapping[str, np.ndarray], options: Options) -> dict[str, list[str | None]]:
    """Returns the partition specs of the matrices to split along `model`; other weights are replicated."""
    parts = options.sharding.get(mesh_lib.MODEL_AXIS, 1)
    splits = {
        name: mesh_lib.split_longest(array.shape, mesh_lib.MODEL_AXIS, parts if parts > 1 else 0)
        for name, array in weights.items()
    }
    return {name: split for name, split in splits.items() if split}


def split_of_input(options: Options) -> list[str | None]:
    """Returns the partition spec of an input: its batch is split along `data`."""
    return [mesh_lib.AXIS] if options.rows > 1 else []


def sizes(shape: tuple[int | str, ...], options: Options, length: int | None = None) -> list[int | str]:
    """Returns a shape for export: the batch is fixed, or a symbolic multiple of the devices along `data`."""
    batch = options.batch or (BATCH if options.rows == 1 else f"{options.rows}*{BATCH}")
    chosen = {BATCH: batch, LENGTH: length or LENGTH}
    return [chosen.get(size, size) if isinstance(size, str) else size for size in shape]
