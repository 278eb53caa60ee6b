"""trans with the rows of both relations spread over devices.

Device d of n holds the d-th T/n rows of the kernel (whole rows, so that their softmax is its own affair) and
the same rows of the premise. The premise's pieces go round the ring of devices, one step at a time, and each
device adds what the columns of its kernel that meet the piece give. No device ever holds the whole premise,
which would undo the sharding: it is as large as the whole kernel.

In the backward pass a piece carries its gradient along, which is complete when it is home again.

Under plain `jit` with rows sharded by a `NamedSharding` (mesh axes of type Auto) `trans` works as it is; the
compiler then gathers the premise. With Explicit axes JAX wants the ring: the product of two arrays sharded by
rows has no sharding of its own.

Letters: X rows of this device, A = n X columns, C = X columns of one piece, Y columns of the premise.
"""

import functools

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
    flat = [None if x is None else checks.flatten_batch(x, batch, 3) for x in (kernel_logits, premise, mask)]
    return _ring(axis_name, causal, *dispatch.same_manual_axes(flat)).reshape(*batch, heads, rows, outputs)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _ring(axis_name, causal, kernel_logits, premise, mask):
    return _forward(axis_name, causal, kernel_logits, premise, mask)[0]


def _forward(axis_name, causal, kernel_logits, premise, mask):
    devices, device = jax.lax.axis_size(axis_name), jax.lax.axis_index(axis_name)
    dtype = accumulator(premise.dtype)
    softmax = _Softmax(kernel_logits, mask, device if causal else None)

    def add(step, total, piece):
        source = (device - step) % devices

        def read():
            return total + xla.product(softmax.piece(source), piece, 3, 2, dtype)

        return jax.lax.cond(source > device, lambda: total, read) if causal else read()

    def walk(step, carry):
        total, piece = carry
        return add(step, total, piece), _pass_on(axis_name, piece)

    start = zeros(kernel_logits, (*kernel_logits.shape[:3], premise.shape[3]), dtype), premise
    out = add(devices - 1, *jax.lax.fori_loop(0, devices - 1, walk, start)).astype(premise.dtype)
    return out, (kernel_logits, premise, mask, out, softmax.lse)


def _backward(axis_name, causal, saved, dout):
    kernel_logits, premise, mask, out, lse = saved
    devices, device = jax.lax.axis_size(axis_name), jax.lax.axis_index(axis_name)
    dtype = lse.dtype
    softmax = _Softmax(kernel_logits, mask, device if causal else None, lse)
    delta = jnp.sum(dout.astype(dtype) * out.astype(dtype), axis=-1, keepdims=True)

    def walk(step, carry):
        dkernel, piece, dpiece = carry
        source = (device - step) % devices

        def read():
            part = softmax.piece(source)
            dpart = part * (xla.product(dout, piece, 3, 3, dtype) - delta)
            place = (0, 0, 0, source * piece.shape[2])
            return (
                jax.lax.dynamic_update_slice(dkernel, dpart.astype(dkernel.dtype), place),
                dpiece + xla.product(part, dout, 2, 2, dtype),
            )

        new = jax.lax.cond(source > device, lambda: (dkernel, dpiece), read) if causal else read()
        return new[0], _pass_on(axis_name, piece), _pass_on(axis_name, new[1])

    dkernel = zeros(kernel_logits, kernel_logits.shape, kernel_logits.dtype)
    start = dkernel, premise, zeros(premise, premise.shape, dtype)
    dkernel, _, dpremise = jax.lax.fori_loop(0, devices, walk, start)
    return dkernel, dpremise.astype(premise.dtype), None


_ring.defvjp(_forward, _backward)


class _Softmax:
    """The softmax of whole rows, a piece of columns at a time, from the log-sum-exp.

    Attributes:
        lse: of every row, 0 where nothing is allowed.
    """

    def __init__(self, logits, mask, device, lse=None):
        self.dtype = accumulator(logits.dtype)
        self.mask, self.device = mask, device
        self.logits = logits
        self.rows = logits.shape[2]
        self.lse = self._lse() if lse is None else lse

    def _allowed(self, logits, mask, first):
        """Logits of columns from `first` on, -inf where a mask or the future says no."""
        logits = logits.astype(self.dtype)
        if mask is not None:
            logits = jnp.where(mask, logits, -jnp.inf)
        if self.device is not None:
            columns = jnp.arange(logits.shape[3])[None, :] + first
            past = columns <= jnp.arange(self.rows)[:, None] + self.device * self.rows
            logits = jnp.where(past[None, None], logits, -jnp.inf)
        return logits

    def _lse(self):
        logits = self._allowed(self.logits, self.mask, 0)
        maximum = jnp.max(logits, axis=-1, initial=jnp.finfo(self.dtype).min)
        total = jnp.sum(jnp.exp(logits - maximum[..., None]), axis=-1)
        return jnp.where(total > 0, maximum + jnp.log(jnp.maximum(total, 1)), 0)

    def piece(self, source):
        """The columns that meet the rows of device `source`."""
        first = source * self.rows
        logits = jax.lax.dynamic_slice_in_dim(self.logits, first, self.rows, axis=3)
        mask = self.mask
        if mask is not None and mask.shape[3] > 1:
            mask = jax.lax.dynamic_slice_in_dim(mask, first, self.rows, axis=3)
        return jnp.exp(self._allowed(logits, mask, first) - self.lse[..., None])


def _pass_on(axis_name, x):
    """To the next device of the ring, from the one before."""
    devices = jax.lax.axis_size(axis_name)
    return jax.lax.ppermute(x, axis_name, [(device, (device + 1) % devices) for device in range(devices)])
