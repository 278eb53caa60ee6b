"""The train state, its update, and the compiled programs that make many updates in one call.

A loss function returns sums, not means. The loss of a batch is `sum of numerators / sum of denominators` over
all its examples. A device that has a part of the batch does not know the denominator (the number of unmasked
positions, for example) of the other parts, so a mean of means would weight examples by their device. With
sums, all modes agree:

    loss = psum(numerator) / psum(denominator)
    gradient = psum(d numerator / d params) / psum(denominator)

The denominator must not depend on the parameters. No collective is differentiated: JAX inserts the transposed
psum under `shard_map` with replication checks, but not under `pmap` or without the checks, so code that is
correct in one mode would be wrong by a factor of the device count in another. Differentiating only local sums
is correct in all of them.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Int, PRNGKeyArray, Shaped

from experiments.runtime import mesh as mesh_lib
from experiments.runtime import row_keys

PyTree = Any
Scalar = Shaped[Array, ""] | float


@flax.struct.dataclass
class Sums:
    """The return value of a loss function: totals over the given examples.

    Attributes:
        numerator: total loss, which is differentiated.
        denominator: divisor of the total (number of examples or of unmasked positions); it must not depend on
            the parameters.
        metrics: (numerator, denominator) of further metrics by name.
    """

    numerator: Scalar
    denominator: Scalar
    metrics: dict[str, tuple[Scalar, Scalar]] = dataclasses.field(default_factory=dict)


@flax.struct.dataclass
class TrainState:
    """The state that a run carries from step to step and saves in checkpoints.

    Attributes:
        step: number of updates made.
        params: the parameters.
        opt_state: the optimizer's state.
        extra: any other changing state (of environments, for example), or None.
    """

    step: Int[Array, ""]
    params: PyTree
    opt_state: PyTree
    extra: PyTree = None


@flax.struct.dataclass
class Trace:
    """The metrics of one step, or of several steps stacked along a leading axis.

    Attributes:
        ratios: (numerator, denominator) of each metric, including `loss` and `grad_norm` (the norm of the
            whole gradient, before the optimizer).
        finite: whether the loss and all updated parameters are finite.
    """

    ratios: dict[str, tuple[Scalar, Scalar]]
    finite: Bool[Array, ""]


Init = Callable[[PRNGKeyArray], PyTree]
Loss = Callable[[PyTree, PyTree, PRNGKeyArray], Sums]


@dataclasses.dataclass(frozen=True)
class Task:
    """The pure functions that define a training problem; see `fit` for their signatures."""

    seed: int
    batch_size: int
    init: Init
    loss: Loss
    optimizer: optax.GradientTransformation
    sample: Callable[..., PyTree] | None = None
    init_extra: Init | None = None
    accumulate: int = 1
    totals: Callable[[PyTree], dict[str, Scalar]] | None = None


def run_keys(seed: int) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """Returns the two keys of a run: for the initial state, and for the steps (folded with their number)."""
    init, train = jax.random.split(jax.random.key(seed))
    return init, train


def initial_state(task: Task, key: PRNGKeyArray) -> TrainState:
    """Returns the state before the first step for the first of `run_keys`."""
    params_key, extra_key = jax.random.split(key)
    params = task.init(params_key)
    extra = task.init_extra(extra_key) if task.init_extra is not None else None
    return TrainState(jnp.int32(0), params, task.optimizer.init(params), extra)


class Program:
    """The compiled programs of a task on all devices, in one of the three modes.

    Between calls a state is *placed*: replicated over the mesh or split, as the layout says, or, under
    `pmap`, with a leading axis of devices.

    Attributes:
        key: the data of the second of `run_keys`, [2] uint32, an argument of all compiled steps.
    """

    def __init__(self, task: Task, parallel: str | mesh_lib.Layout):
        """Prepares the programs without compiling them.

        Raises:
            ValueError: if the mode is unknown, or the batch cannot be split equally.
        """
        self.layout = mesh_lib.Layout.of(parallel)
        self.layout.check(task.batch_size, jax.device_count())
        data = self.layout.mesh().shape[mesh_lib.AXIS]
        check_parts(task.accumulate, task.batch_size // data)
        self.task, self.parallel, self.mesh = task, self.layout.mode, self.layout.mesh()
        self.devices = self.mesh.size
        self.replicated = NamedSharding(self.mesh, PartitionSpec())
        self._split = NamedSharding(self.mesh, PartitionSpec(mesh_lib.AXIS))
        # Arguments of the programs, so that runs of several seeds have the same ones, which a compilation
        # cache keeps. As NumPy's arrays they are on every device.
        self._init_key, self.key = (np.asarray(jax.random.key_data(key)) for key in run_keys(task.seed))
        # One function object: JAX then traces it once for the shapes and for the program.
        self._initial = lambda key: initial_state(task, jax.random.wrap_key_data(key))
        self._spread = jax.jit(
            lambda tree: jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.devices, *leaf.shape)), tree),
            out_shardings=self._split,
        )
        self._gather = jax.jit(
            lambda tree: jax.tree.map(lambda leaf: leaf[0], tree), out_shardings=self.replicated
        )

    def naming(self) -> contextlib.AbstractContextManager[None]:
        """Returns the context for tracing steps on this mesh; see `Layout.naming`."""
        return self.layout.naming(self.mesh)

    def measuring(self) -> contextlib.AbstractContextManager[None]:
        """Returns the context for tracing evaluations, which each of several processes makes by itself."""
        return self.naming() if jax.process_count() == 1 else contextlib.nullcontext()

    def abstract_state(self) -> TrainState:
        """Returns the shapes, dtypes and shardings of an unplaced state, as restored from a checkpoint."""
        shapes = jax.eval_shape(self._initial, self._init_key)
        return jax.tree.map(
            lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
            shapes,
            self.layout.state_shardings(self.mesh, shapes),
        )

    def check(self, state: TrainState, batch: PyTree = None) -> None:
        """Traces the loss on a batch without computing it, to find mistakes before files are written.

        Args:
            state: the shapes of an unplaced state.
            batch: a placed batch from the host, or None for one that is drawn on the device.

        Raises:
            ValueError: for a batch or sums of the wrong shape.
        """
        task, key = self.task, run_keys(self.task.seed)[1]
        if batch is not None:
            batch = jax.tree.map(self._unplaced_shape, batch)
        elif task.sample is None:
            raise ValueError("sample: got None, expected a function when there is no batch")
        elif task.init_extra is not None:
            batch, extra = jax.eval_shape(task.sample, key, state.step, state.params, state.extra)
            kinds = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), (extra, state.extra))
            if kinds[0] != kinds[1]:
                raise ValueError(
                    "sample: got an extra of other structure, shapes or dtypes, expected those of init_extra"
                )
        else:
            batch = jax.eval_shape(task.sample, key, state.step)
        mesh_lib.check_batch(batch, task.batch_size)
        if task.totals is not None:
            batch = {**batch, **jax.eval_shape(task.totals, batch)}
        with self.naming():
            rows = jnp.arange(task.batch_size)
            jax.eval_shape(functools.partial(accumulated_gradient, task), state.params, batch, key, rows)

    def initial(self) -> TrainState:
        """Creates the initial state directly with its final shardings.

        A copy made later might share buffers with the original, and donating it would delete both.
        """
        where = jax.tree.map(lambda leaf: leaf.sharding, self.abstract_state())
        with self.naming():
            return jax.jit(self._initial, out_shardings=where)(self._init_key)

    def place(self, state: TrainState) -> TrainState:
        """Converts an unplaced state to the form that the compiled programs need."""
        return self._spread(state) if self.parallel == "pmap" else state

    def unplace(self, tree: PyTree) -> PyTree:
        """Inverts `place`, for a state or a part of it; the result is valid until the next update."""
        return self._gather(tree) if self.parallel == "pmap" else tree

    def place_batch(self, batch: PyTree) -> PyTree:
        """Puts this process's rows of a host batch on its devices."""
        if self.parallel == "pmap":
            local = jax.local_device_count()

            def cut(leaf):
                parts = leaf.reshape(local, -1, *leaf.shape[1:]) if leaf.ndim else np.repeat(leaf, local)
                if jax.process_count() == 1:
                    return parts
                return jax.make_array_from_process_local_data(self._split, parts)

            return jax.tree.map(cut, batch)
        return jax.tree.map(
            lambda leaf, spec: jax.make_array_from_process_local_data(NamedSharding(self.mesh, spec), leaf),
            batch,
            mesh_lib.batch_specs(batch),
        )

    def _unplaced_shape(self, leaf: Any) -> jax.ShapeDtypeStruct:
        """Returns the shape of an array of a placed batch with the rows of all processes and devices."""
        shape = leaf.shape
        if self.parallel == "pmap":  # with an axis of devices
            shape = (shape[0] * shape[1], *shape[2:]) if len(shape) > 1 else ()
        return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(leaf.dtype))

    def compile_chunk(
        self, state: TrainState, length: int
    ) -> Callable[[TrainState, Array], tuple[TrainState, Trace]]:
        """Compiles `length` updates, with batches drawn on the device, into one call.

        Returns:
            A function from a placed state, which is donated, and `key` to the new state and stacked traces
            [length].
        """

        def chunk(state, key):
            return lax.scan(lambda state, _: self._update(state, key), state, length=length)

        return self._compile(chunk, state, self.key)

    def compile_step(self, state: TrainState, batch: PyTree) -> Callable:
        """Compiles one update for the shapes of a placed state and batch.

        Returns:
            A function from a placed state, which is donated, a batch and `key` to the new state and its
            trace.
        """

        def step(state, batch, key):
            return self._update(state, key, batch)

        return self._compile(step, state, batch, self.key)

    def _compile(self, function: Callable, *arguments: PyTree) -> Callable:
        if self.parallel == "pmap":
            axes = (*(0 for _ in arguments[:-1]), None)
            mapped = jax.pmap(function, axis_name=mesh_lib.AXIS, in_axes=axes, donate_argnums=0)
            compiled = mapped.lower(*arguments).compile()

            def first_trace(*arguments):
                state, trace = compiled(*arguments)
                return state, jax.tree.map(lambda leaf: leaf[0], trace)

            return first_trace
        where = self.layout.state_shardings(self.mesh, arguments[0]), self.replicated
        with self.naming():
            return jax.jit(function, donate_argnums=0, out_shardings=where).lower(*arguments).compile()

    def _update(self, state: TrainState, key: Array, batch: PyTree = None) -> tuple[TrainState, Trace]:
        """Makes one step: draw a batch, differentiate, update. Under pmap it runs on each device."""
        task, extra = self.task, state.extra
        step_key = jax.random.fold_in(jax.random.wrap_key_data(key), state.step)
        sample_key, loss_key = jax.random.split(step_key)
        if batch is None:
            if task.sample is None:
                raise ValueError("sample: got None, expected a function when there is no batch")
            if task.init_extra is None:
                batch = task.sample(sample_key, state.step)
            else:
                batch, extra = task.sample(sample_key, state.step, state.params, extra)
            mesh_lib.check_batch(batch, task.batch_size)
            batch = self._distribute(batch)
        if task.totals is not None:
            found = task.totals(batch)
            batch = {**batch, **(lax.psum(found, mesh_lib.AXIS) if self.parallel == "pmap" else found)}
        gradient, sums = self._gradient(state.params, batch, loss_key)
        if self.layout.fsdp:  # each device then reduces only its own part of the gradient
            where = self.layout.state_shardings(self.mesh, gradient)
            gradient = lax.with_sharding_constraint(gradient, where)
        updates, opt_state = task.optimizer.update(gradient, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        ratios = {
            "loss": (sums.numerator, sums.denominator),
            "grad_norm": (optax.tree.norm(gradient), jnp.float32(1)),
            **sums.metrics,
        }
        finite = jnp.isfinite(sums.numerator / sums.denominator)
        for leaf in jax.tree.leaves(params):
            finite &= jnp.all(jnp.isfinite(leaf))
        return TrainState(state.step + 1, params, opt_state, extra), Trace(ratios, finite)

    def _distribute(self, batch: PyTree) -> PyTree:
        """Splits a batch that was drawn as a whole, so that each device has its rows."""
        if self.parallel == "pmap":
            # Every device draws the same whole batch and keeps its part. This costs more than drawing only
            # the part, but the examples are then the same as in the other modes.
            rows = self.task.batch_size // self.devices
            start = lax.axis_index(mesh_lib.AXIS) * rows
            return jax.tree.map(
                lambda leaf: lax.dynamic_slice_in_dim(leaf, start, rows) if leaf.ndim else leaf, batch
            )
        shardings = jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), mesh_lib.batch_specs(batch))
        return lax.with_sharding_constraint(batch, shardings)

    def _gradient(self, params: PyTree, batch: PyTree, key: PRNGKeyArray) -> tuple[PyTree, Sums]:
        """Returns the gradient of the loss over the whole batch, and the sums over the whole batch."""
        if self.parallel == "jit":
            rows = jnp.arange(self.task.batch_size)
            gradient, sums = accumulated_gradient(self.task, params, batch, key, rows)
        elif self.parallel == "pmap":
            gradient, sums = self._summed_gradient(params, batch, key)
        else:
            # check_vma would require models to mark the carries of their scans as varying; it is not needed.
            gradient, sums = jax.shard_map(
                self._summed_gradient,
                mesh=self.mesh,
                in_specs=(PartitionSpec(), mesh_lib.batch_specs(batch), PartitionSpec()),
                out_specs=PartitionSpec(),
                check_vma=False,
            )(params, batch, key)
        return jax.tree.map(lambda leaf: (leaf / sums.denominator).astype(leaf.dtype), gradient), sums

    def _summed_gradient(self, params: PyTree, batch: PyTree, key: PRNGKeyArray) -> tuple[PyTree, Sums]:
        each = self.task.batch_size // self.devices
        rows = lax.axis_index(mesh_lib.AXIS) * each + jnp.arange(each)
        return lax.psum(accumulated_gradient(self.task, params, batch, key, rows), mesh_lib.AXIS)


def accumulated_gradient(
    task: Task, params: PyTree, batch: PyTree, key: PRNGKeyArray, rows: Int[Array, "R"]
) -> tuple[PyTree, Sums]:
    """Computes `local_gradient` of a batch, in `task.accumulate` sequential parts.

    The sums of the parts add up to the sums of the whole batch, and each row has its own key, so the step is
    the same for any number of parts and devices up to the order of the sums.

    Args:
        task: the training problem.
        params: the parameters.
        batch: R rows of the step's batch.
        key: the key of the step's loss.
        rows: numbers of these rows in the step's batch.
    """

    def of_part(part):
        batch, rows = part
        return local_gradient(task.loss, params, batch, row_keys.of_rows(key, rows))

    return summed(of_part, (batch, rows), task.accumulate)


def check_parts(parts: int, rows: int) -> None:
    """Raises a `ValueError` unless a device's `rows` of a batch can be cut into equal parts."""
    if parts < 1 or rows % parts:
        raise ValueError(
            f"accumulate: got {parts}, expected a divisor of {rows}, the rows of a batch per device"
        )


def summed(function: Callable[[PyTree], PyTree], batch: PyTree, parts: int) -> PyTree:
    """Returns the sum of `function(part)` over equal parts of a batch, computed one after another.

    Only one part's temporary arrays are alive at a time. On CPUs, parts that fit into the cache can be faster
    than the whole batch; see `experiments.runtime.chunks`.

    Args:
        function: returns a tree of arrays that add up over the rows of a batch.
        batch: arrays whose first axis are the rows, and scalars, which every part gets.
        parts: number of parts; must divide the number of rows.
    """
    if parts == 1:
        return function(batch)

    def cut(leaf):
        """Assigns rows i, i + parts, ... to part i: if rows are split over devices, so is every part."""
        if not leaf.ndim:
            return jnp.broadcast_to(leaf, (parts,))
        return jnp.moveaxis(leaf.reshape(-1, parts, *leaf.shape[1:]), 1, 0)

    def one(index):
        return function(jax.tree.map(lambda leaf: leaf[index], cuts))

    cuts = jax.tree.map(cut, batch)
    shapes = jax.eval_shape(one, jnp.int32(0))
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return lax.fori_loop(0, parts, lambda index, sums: jax.tree.map(jnp.add, sums, one(index)), nothing)


def local_gradient(loss: Loss, params: PyTree, batch: PyTree, key: PRNGKeyArray) -> tuple[PyTree, Sums]:
    """Returns the gradient of the loss's numerator on the given examples, and all its sums as floats.

    Raises:
        ValueError: if the loss returns anything but scalar sums, or uses a reserved metric name.
    """

    def numerator(params):
        sums = loss(params, batch, key)
        if not isinstance(sums, Sums):
            raise ValueError(f"loss: got a result of type {type(sums).__name__}, expected runtime.Sums")
        for path, leaf in jax.tree_util.tree_leaves_with_path(sums):
            if jnp.shape(leaf):
                name = jax.tree_util.keystr(path).lstrip(".")
                raise ValueError(f"loss: got {name} of shape {jnp.shape(leaf)}, expected a scalar total")
        if taken := {"loss", "grad_norm", "step"} & set(sums.metrics):
            raise ValueError(f"loss: got metrics {', '.join(sorted(taken))}, expected unreserved names")
        floats = jax.tree.map(lambda leaf: jnp.promote_types(jnp.result_type(leaf), jnp.float32), sums)
        sums = jax.tree.map(jnp.asarray, sums, floats)
        return sums.numerator, sums

    return jax.grad(numerator, has_aux=True)(params)
