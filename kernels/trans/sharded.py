"""trans with the rows of both relations spread over devices.

Device d of n holds the d-th T/n rows of the kernel (whole rows, so that their softmax is its own affair) and
the same rows of the premise. The premise's pieces go round the ring of devices, one step at a time, and each
device adds what the columns of its kernel that meet the piece give. No device ever holds the whole premise,
which would undo the sharding: it is as large as the whole kernel.

In the backward pass a piece carries its gradient along, which is complete when it is home again.

Under plain `jit` with rows sharded by a `NamedSharding` `trans` works as it is; the compiler then gathers the
premise.

Letters: X rows of this device, A = n X columns, C = X columns of one piece, Y columns of the premise.
"""

import dataclasses
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from kernels import checks, dispatch
from kernels.arrays import accumulator, zeros
from kernels.trans import xla


def trans_sharded(
    kernel_logits: Float[ArrayLike, "*batch H X A"],
    premise: Float[ArrayLike, "*batch H X Y"],
    *,
    axis_name: str,
    causal: bool = False,
    mask: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "*batch H X Y"]:
    """`trans` inside `jax.shard_map`, the rows of both relations sharded over a mesh axis.

        rows = jax.P(None, None, "rows")
        ring = functools.partial(trans_sharded, axis_name="rows")
        jax.shard_map(ring, mesh=mesh, in_specs=(rows, rows), out_specs=rows)(kernel_logits, premise)

    Every device passes pieces of the premise on n - 1 times, and in the backward pass n times together with
    their gradients (in float32); a transfer can overlap the product of its step. With a causal mask a piece
    that lies after all rows of a device is passed on unread: the first device has one piece to do and the
    last n, so energy is saved and not time. The products are in plain JAX on every chip.

    Args:
        kernel_logits: this device's rows of the kernel before its softmax, all columns.
        premise: the same rows of the relation that it is applied to.
        axis_name: the mesh axis; its n devices hold consecutive rows, so A = n X.
        causal: allow only a <= x, counted over all devices.
        mask: True where allowed, this device's rows (or one for all of them) and all columns (or one).

    Returns:
        This device's rows of the result.

    Raises:
        ValueError: shapes or types that do not fit; it names the argument and what was expected.
    """
    devices = jax.lax.axis_size(axis_name)
    kernel_logits, premise = checks.floating(kernel_logits=kernel_logits, premise=premise)
    checks.rank("kernel_logits", kernel_logits, 3, "[..., H, X, A]")
    checks.rank("premise", premise, 3, "[..., H, X, Y]")
    *batch, heads, rows, columns = kernel_logits.shape
    if columns != devices * rows:
        raise ValueError(
            f"kernel_logits: got shape {kernel_logits.shape}, expected [..., H, X, A] with A = {devices} X, "
            f"since its rows are sharded over the {devices} devices of {axis_name!r}"
        )
    to_kernel = f"to match the batch, heads and rows of kernel_logits {kernel_logits.shape}"
    outputs = premise.shape[-1]
    checks.shape("premise", premise, (*batch, heads, rows, outputs), "[..., H, X, Y]", to_kernel)
    mask = checks.mask(mask, kernel_logits.shape, "[..., H, X, A]")
    if 0 in (*batch, heads, rows, outputs):
        return jnp.zeros((*batch, heads, rows, outputs), premise.dtype)
    flat: list[Any] = [
        None if x is None else checks.flatten_batch(x, batch, 3) for x in (kernel_logits, premise, mask)
    ]
    config = Config(axis_name, causal)
    out = dispatch.run(RING, config, *flat, implementation="xla")
    if mask is not None:  # where a row attends to nothing, its cotangent may hold anything
        where: Any = allowed(config, flat[0], flat[2])
        out = jnp.where(where.any(3)[..., None], out, 0)
    return out.astype(premise.dtype).reshape(*batch, heads, rows, outputs)


@dataclasses.dataclass(frozen=True)
class Config:
    """What is fixed when a call is compiled: the mesh axis, and whether later columns are masked."""

    axis_name: str
    causal: bool


class _Ring(dispatch.Operation):
    """An operation whose one implementation is this file."""

    def backend(self, name: str) -> ModuleType:
        return sys.modules[__name__]


def unsupported(config: Config, *arrays: Any) -> None:
    """Nothing is: any size and any floating dtype."""
    del config, arrays


def forward(
    config: Config, kernel_logits: Array, premise: Array, mask: Array | None, *, blocks: None = None
) -> tuple[Float[Array, "B H X Y"], Float[Array, "B H X"]]:
    """The result and the log of the softmax's denominator, both in the dtype of sums.

    In 16 bits the result would be too coarse for the backward pass.
    """
    del blocks
    dtype = accumulator(premise.dtype)
    kernel = _Rows(config, kernel_logits, mask)

    def add(source, total, piece):
        return total + xla.product(kernel.softmax(source), kernel.read(source, piece), 3, 2, dtype)

    total = zeros(kernel_logits, (*kernel_logits.shape[:3], premise.shape[3]), dtype)
    return kernel.around(add, total, premise), kernel.lse


def tangent(config: Config, *operands: Any) -> tuple[Float[Array, "B H X Y"], Float[Array, "B H X"]]:
    """Tangents of `forward`'s results; `operands` are its arrays, its results, and tangents or None."""
    kernel_logits, premise, mask, out, lse, dkernel, dpremise = operands
    kernel = _Rows(config, kernel_logits, mask, lse)
    dlse = zeros(lse, lse.shape, lse.dtype)
    if dkernel is not None:
        where = allowed(config, kernel_logits, mask)
        dkernel = dkernel.astype(lse.dtype)
        dkernel = dkernel if where is None else jnp.where(where, dkernel, 0)
        whole = kernel_logits if where is None else jnp.where(where, kernel_logits, -jnp.inf)
        dlse = jnp.sum(jnp.exp(whole.astype(lse.dtype) - lse[..., None]) * dkernel, axis=-1)

    def add(source, total, pieces):
        softmax, (piece, dpiece) = kernel.softmax(source), pieces
        if dkernel is not None:
            change = softmax * (kernel.cut(dkernel, source) - dlse[..., None])
            total += xla.product(change, kernel.read(source, piece), 3, 2, lse.dtype)
        if dpiece is not None:
            total += xla.product(softmax, kernel.read(source, dpiece), 3, 2, lse.dtype)
        return total

    return kernel.around(add, zeros(out, out.shape, out.dtype), (premise, dpremise)), dlse


def backward(
    config: Config, *operands: Any, blocks: None = None, dresidual: Float[Array, "B H X"] | None = None
) -> tuple[Float[Array, "B H X A"], Float[Array, "B H X Y"]]:
    """Gradients of kernel_logits and premise from `forward`'s arrays, its results and the cotangents."""
    del blocks
    kernel_logits, premise, mask, out, lse, dout = operands
    kernel = _Rows(config, kernel_logits, mask, lse)
    delta = jnp.sum(dout * out, axis=-1)
    delta = (delta if dresidual is None else delta - dresidual)[..., None]

    def walk(step, carry):
        dkernel, piece, dpiece = carry
        source = kernel.source(step)

        def read():
            softmax = kernel.softmax(source)
            dsoftmax = xla.product(dout, kernel.read(source, piece), 3, 3, lse.dtype)
            part = (softmax * (dsoftmax - delta)).astype(dkernel.dtype)
            return (
                jax.lax.dynamic_update_slice(dkernel, part, (0, 0, 0, source * kernel.count)),
                dpiece + xla.product(softmax, dout, 2, 2, lse.dtype),
            )

        dkernel, dpiece = kernel.unless_later(source, (dkernel, dpiece), read)
        return dkernel, *_pass_on(config.axis_name, (piece, dpiece))

    dkernel = zeros(kernel_logits, kernel_logits.shape, kernel_logits.dtype)
    start = dkernel, premise, zeros(premise, premise.shape, lse.dtype)
    dkernel, _, dpremise = jax.lax.fori_loop(0, kernel.devices, walk, start)
    return dkernel, dpremise.astype(premise.dtype)


def _outputs(config, kernel_logits, premise, *_):
    del config
    dtype, lead = accumulator(premise.dtype), kernel_logits.shape[:3]
    return jax.ShapeDtypeStruct((*lead, premise.shape[3]), dtype), jax.ShapeDtypeStruct(lead, dtype)


RING = _Ring(
    name="trans_sharded",
    reference=forward,
    package=__name__,
    outputs=_outputs,
    describe=lambda *_: ({}, {}),
    batch_axis=(True, True, True),
    differentiable=2,
)


class _Rows:
    """The rows of the kernel on this device, of which a piece of columns meets the rows of each device.

    Attributes:
        lse: the log of each row's denominator, 0 where nothing is allowed.
    """

    def __init__(self, config: Config, logits: Array, mask: Array | None, lse: Array | None = None):
        self.config, self.logits, self.mask = config, logits, mask
        self.devices = jax.lax.axis_size(config.axis_name)
        self.device = jax.lax.axis_index(config.axis_name)
        self.count = logits.shape[2]
        self.dtype = accumulator(logits.dtype)
        self.lse = self._lse() if lse is None else lse

    def _lse(self):
        logits = self._masked(self.logits, allowed(self.config, self.logits, self.mask))
        maximum = jnp.max(logits, axis=-1, initial=jnp.finfo(self.dtype).min)
        total = jnp.sum(jnp.exp(logits - maximum[..., None]), axis=-1)
        return jnp.where(total > 0, maximum + jnp.log(jnp.maximum(total, 1)), 0)

    def _masked(self, logits, where):
        logits = logits.astype(self.dtype)
        return logits if where is None else jnp.where(where, logits, -jnp.inf)

    def _allowed(self, source) -> Any:
        return allowed(self.config, self.logits, self.mask, source * self.count, self.count)

    def cut(self, x: Array, source: Array) -> Array:
        """Returns the columns that meet the rows of device `source`."""
        return jax.lax.dynamic_slice_in_dim(x, source * self.count, self.count, axis=3)

    def softmax(self, source: Array) -> Array:
        """Returns these columns of the softmax."""
        logits = self._masked(self.cut(self.logits, source), self._allowed(source))
        return jnp.exp(logits - self.lse[..., None])

    def read(self, source: Array, piece: Array) -> Array:
        """Returns the rows of device `source`, 0 where a mask hides them from all rows: they may be NaN."""
        return piece if self.mask is None else jnp.where(self._allowed(source).any(2)[..., None], piece, 0)

    def source(self, step: int | Array) -> Array:
        """Returns the device whose rows are here at a step."""
        return (self.device - step) % self.devices

    def unless_later(self, source: Array, before: Any, read: Callable[[], Any]) -> Any:
        """Returns `before` for a piece that lies in the future of all rows, or else `read()`."""
        return jax.lax.cond(source > self.device, lambda: before, read) if self.config.causal else read()

    def around(self, add: Callable[[Array, Array, Any], Array], total: Array, pieces: Any) -> Array:
        """Adds `add(source, total, pieces)` for every device's pieces, which go round the ring."""

        def here(step, total, pieces):
            source = self.source(step)
            return self.unless_later(source, total, lambda: add(source, total, pieces))

        def walk(step, carry):
            return here(step, *carry), _pass_on(self.config.axis_name, carry[1])

        return here(self.devices - 1, *jax.lax.fori_loop(0, self.devices - 1, walk, (total, pieces)))


def allowed(
    config: Config, logits: Array, mask: Array | None, first: int | Array = 0, count: int | None = None
) -> Bool[Array, "#B #H #X #C"] | None:
    """Returns where this device's rows may attend to `count` columns from `first` on; None if everywhere."""
    rows, count = logits.shape[2], logits.shape[3] if count is None else count
    if mask is not None and mask.shape[3] > 1:
        mask = jax.lax.dynamic_slice_in_dim(mask, first, count, axis=3)
    if not config.causal:
        return mask
    row = jnp.arange(rows)[:, None] + jax.lax.axis_index(config.axis_name) * rows
    past = (jnp.arange(count)[None, :] + first <= row)[None, None]
    return past if mask is None else mask & past


def _pass_on(axis_name: str, pieces: Any) -> Any:
    """Returns what the device before this one in the ring had."""
    devices = jax.lax.axis_size(axis_name)
    ring = [(device, (device + 1) % devices) for device in range(devices)]
    return jax.tree.map(lambda x: jax.lax.ppermute(x, axis_name, ring), pieces)
