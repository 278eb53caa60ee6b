"""The seven neural logic operators: Chen (2023), Table 2. Each is a Horn clause whose body is learned.

In a clause u <- K, v, the kernel K and the premise v are themselves atoms. The conclusion u is the sum of v
weighted by K over everything that occurs in the clause's body but not in its head: the conjunction of
equation (8) in logit space. An operator sums either over tokens (cjoin, join, mu, trans: the mixers, whose
kernel is a softmax over those tokens) or over predicates (bool, assoc, prod).

Binary atoms have their predicates before the two tokens, [B, H, X, Y]. In this layout the sums over tokens
are batched matrix products without a transpose, and `affine.over_predicates` keeps the layout. Heads of unary
atoms are laid out as projections write them, [B, X, H, S].

The numbers of tokens X, Y and A may differ, so a decoder can compute a single row. Masks are True where a
kernel may attend; they have the kernel's rank and each size full or 1. A row that may attend to nothing gives
0. `kernel_logits` are kernels before the softmax, which is computed in at least float32. `dropout` is a
function applied to a kernel after its softmax.

Axis letters: B batch; X, Y tokens of the conclusion; A tokens summed over; H heads (B-dim. or R-dim. in
Table 2); S features of a head; C channels of any kind; W inputs and F outputs of an affine map.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from folnet.affine import Activation, Affine, activate, over_features, over_predicates
from kernels import checks, dispatch, masked_softmax
from kernels import trans as fused_trans

Dropout = Callable[[Float[Array, "..."]], Float[Array, "..."]]
CJOIN_ROWS = 16  # rows for which `cjoin` computes separate softmaxes at a time


def softmax_kernel(
    logits: Float[Array, "*B A"],
    mask: Bool[Array, "*#B #A"] | None = None,
    *,
    dropout: Dropout | None = None,
    dtype: jnp.dtype | None = None,
) -> Float[Array, "*B A"]:
    """Returns the softmax over the last axis, computed in at least float32; 0 where the mask is False.

    Rows without an allowed entry give 0. `dropout` is applied to the result, which has the logits' dtype
    unless `dtype` is given.

    Raises:
      ValueError: If the mask is not boolean or does not broadcast.
    """
    wide = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    kernel = masked_softmax(wide, mask).astype(dtype or logits.dtype)
    return kernel if dropout is None else dropout(kernel)


def boolean(
    premise: Float[Array, "..."],
    clause_in: Affine,
    clause_out: Affine,
    *,
    gate: Affine | None = None,
    activation: Activation = "gelu",
    over: Callable[[Float[Array, "..."], Affine], Float[Array, "..."]] = over_features,
) -> Float[Array, "..."]:
    """Row "b" of Table 2, u(x) <- K, v(x): from other predicates of the same token or pair.

        u_h(x) = sum_w K_hw v_w(x)

    applied twice with an activation in between (see `activate`), as in the feed-forward layer of a
    Transformer (Appendix A.3). With a `gate` the hidden values are rectified gates (ReGLU), and `activation`
    is not used. The premise v is unary, [B, X, W], or with `over=over_predicates` binary, [B, W, X, Y].
    """
    hidden = over(premise, clause_in)
    hidden = activate(hidden, activation) if gate is None else jax.nn.relu(over(premise, gate)) * hidden
    return over(hidden, clause_out)


def boolean_pairs(
    premise: Float[Array, "B C X Y"],
    converse: Float[Array, "B C X Y"],
    clause_in: Affine,
    clause_out: Affine,
    clause_skip: Affine,
    *,
    gate: Affine | None = None,
    activation: Activation = "gelu",
) -> Float[Array, "B F X Y"]:
    """Row "b" for binary atoms, u(x, y) <- K, v(x, y), v(y, x): from relations and their converses.

    As released, this is the boolean operator of [v(x, y); v(y, x)], so `clause_in` has 2C inputs, plus an
    affine map `clause_skip` of v(y, x). The converse holds v(y, x) at [x, y]: the premise with its tokens
    exchanged or, for some of the rows only, its columns.

    Raises:
      ValueError: If the shapes of converse and premise differ.
    """
    if premise.shape != converse.shape:
        raise ValueError(f"converse: got shape {converse.shape}, expected {premise.shape} as in premise")
    both = jnp.concatenate((premise, converse), axis=1)
    concluded = boolean(both, clause_in, clause_out, gate=gate, activation=activation, over=over_predicates)
    return concluded + over_predicates(converse, clause_skip)


def join(
    kernel_logits: Float[Array, "B H X A"],
    premise: Float[Array, "B A H S"],
    *,
    mask: Bool[Array, "#B #H #X #A"] | None = None,
    dropout: Dropout | None = None,
) -> Float[Array, "B X H S"]:
    """Row "j", U <- B x U, u(x) <- K(x, a), v(a): a property of x from properties of tokens it relates to.

        u_hs(x) = sum_a K_h(x, a) v_hs(a)                K softmax over a

    With a kernel from `assoc` this is self-attention.

    Raises:
      ValueError: If the shapes do not match.
    """
    return _mix("bhxa,bahs->bxhs", kernel_logits, premise, mask, dropout)


def mu(
    kernel_logits: Float[Array, "B H X A"],
    premise: Float[Array, "B C X A"],
    *,
    mask: Bool[Array, "#B #H #X #A"] | None = None,
    dropout: Dropout | None = None,
) -> Float[Array, "B X H C"]:
    """Row "m", U <- B x B, u(x) <- K(x, a), v(x, a): a property of x from its relations to all others.

        u_hs(x) = sum_a K_h(x, a) v_s(x, a)              K softmax over a

    The operator is linear in the predicates s of the premise, so a projection of the premise can be applied
    to the result instead, which is cheaper for H < S.

    Raises:
      ValueError: If the shapes do not match.
    """
    return _mix("bhxa,bcxa->bxhc", kernel_logits, premise, mask, dropout)


def cjoin(
    kernel_logits: Float[Array, "B S H A"],
    premise: Float[Array, "B S X A"],
    *,
    mask: Bool[Array, "#B 1 #X #A"] | None = None,
    dropout: Dropout | None = None,
) -> Float[Array, "B X S H"]:
    """Row "c" in the paper's form, U <- U x B, u(x) <- K(a), v(x, a): join with its roles exchanged.

        u_hs(x) = sum_a K_hs(a) v_s(x, a)                K softmax over a

    The paper's h is the axis S here, the one shared with the premise, as in the released code.

    The mask is the same for all heads. If it depends on x, each x has its own softmax over the a that it may
    attend to, so that no later token counts in an earlier one's denominator. These kernels, S H X A numbers,
    are computed a few rows at a time, and again for the gradient.

    Raises:
      ValueError: If the shapes do not match.
    """
    _check("bsha,bsxa", kernel_logits=kernel_logits, premise=premise)
    batch, _, rows, columns = premise.shape
    mask = checks.mask(mask, (batch, 1, rows, columns), "[B, 1, X, A]")
    if not rows:
        mask = None  # of nothing
    if mask is None or mask.shape[2] == 1:
        return _mix("bsha,bsxa->bxsh", kernel_logits, premise, mask, dropout)
    return _cjoin_by_rows(kernel_logits, premise, mask, dropout)


def cjoin_released(
    kernel_logits: Float[Array, "B S H A"],
    premise: Float[Array, "B S A Y"],
    *,
    mask: Bool[Array, "#B 1 1 #A"] | None = None,
    dropout: Dropout | None = None,
) -> Float[Array, "B Y S H"]:
    """Row "c" as released, u(y) <- K(a), v(a, y): the relation is read from its other end.

        u_hs(y) = sum_a K_hs(a) v_s(a, y)                K softmax over a

    The mask is True where a counts, the same for all y; causal models need `cjoin`.

    Raises:
      ValueError: If the shapes do not match.
    """
    return _mix("bsha,bsay->bysh", kernel_logits, premise, mask, dropout)


def assoc(kernel: Float[Array, "B X H S"], premise: Float[Array, "B Y H S"]) -> Float[Array, "B H X Y"]:
    """Row "a", B <- U x U, u(x, y) <- K(x), v(y): a relation from a property of either token.

        u_h(x, y) = sum_w K_hw(x) v_hw(y)

    These are the scores of self-attention.

    Raises:
      ValueError: If the shapes do not match.
    """
    _check("bxhs,byhs", kernel=kernel, premise=premise)
    return jnp.einsum("bxhs,byhs->bhxy", kernel, premise)


def prod(kernel: Float[Array, "B X H C"], premise: Float[Array, "B C X Y"]) -> Float[Array, "B H X Y"]:
    """Row "p", B <- U x B, u(x, y) <- K(x), v(x, y): a relation from another and a property of its subject.

        u_h(x, y) = sum_w K_hw(x) v_w(x, y)

    The operator is linear in the premise, so a projection of the premise can be applied to the kernel
    instead.

    Raises:
      ValueError: If the shapes do not match.
    """
    _check("bxhc,bcxy", kernel=kernel, premise=premise)
    return jnp.einsum("bxhc,bcxy->bhxy", kernel, premise)


def trans(
    kernel_logits: Float[Array, "B H X A"],
    premise: Float[Array, "B H A Y"],
    *,
    mask: Bool[Array, "#B #H #X #A"] | None = None,
    dropout: Dropout | None = None,
    implementation: dispatch.Implementation = None,
) -> Float[Array, "B H X Y"]:
    """Row "t", B <- B x B, u(x, y) <- K(x, a), v(a, y): relates x and y through the tokens between them.

        u_h(x, y) = sum_a K_h(x, a) v_h(a, y)            K softmax over a

    Without dropout it calls `kernels.trans`, which takes `implementation` and keeps no kernel for the
    gradient. With dropout the kernel is materialized.

    Raises:
      ValueError: If the shapes do not match.
      NotImplementedError: If the chosen implementation does not support these arguments.
    """
    if dropout is None:
        return fused_trans(kernel_logits, premise, mask=mask, implementation=implementation)
    return _mix("bhxa,bhay->bhxy", kernel_logits, premise, mask, dropout)


def _cjoin_by_rows(kernel_logits, premise, mask, dropout):
    """Computes `cjoin` with a softmax for each row of the mask."""
    batch, size, rows, columns = premise.shape
    step = min(CJOIN_ROWS, rows)
    padding = -rows % step
    # Padding rows attend to nothing and are removed at the end.
    mask = jnp.pad(mask, ((0, 0), (0, 0), (0, padding), (0, 0)))
    premise = jnp.pad(premise, ((0, 0), (0, 0), (0, padding), (0, 0)))
    steps = (rows + padding) // step
    # Dropout is the same for all rows, as it is where they share a kernel.
    kept = None if dropout is None else dropout(jnp.ones(kernel_logits.shape, premise.dtype))[:, :, :, None]

    def some_rows(start):
        seen = jax.lax.dynamic_slice_in_dim(mask, start, step, axis=2)[:, :, None]  # [B, 1, 1, X, A]
        part = jax.lax.dynamic_slice_in_dim(premise, start, step, axis=2)
        logits = jnp.broadcast_to(kernel_logits[:, :, :, None], (*kernel_logits.shape[:3], step, columns))
        kernel = softmax_kernel(logits, seen, dtype=premise.dtype)
        kernel = kernel if kept is None else kernel * kept
        return jnp.einsum("bshxa,bsxa->bxsh", kernel, part)

    parts = jax.lax.map(jax.checkpoint(some_rows), jnp.arange(steps) * step)  # [steps, B, step, S, H]
    parts = jnp.moveaxis(parts, 0, 1).reshape(batch, rows + padding, size, -1)
    return parts[:, :rows]


def _mix(subscripts, kernel_logits, premise, mask, dropout):
    """Multiplies a kernel, after its softmax, with a premise."""
    _check(subscripts, kernel_logits=kernel_logits, premise=premise)
    kernel = softmax_kernel(kernel_logits, mask, dropout=dropout, dtype=premise.dtype)
    return jnp.einsum(subscripts, kernel, premise)


def _check(subscripts: str, **arrays: Float[Array, "..."]) -> None:
    """Raises ValueError unless axes of the same letter have the same size."""
    sizes: dict[str, tuple[int, str]] = {}
    for letters, (name, array) in zip(subscripts.split("->")[0].split(","), arrays.items(), strict=True):
        expected = f"[{', '.join(letters.upper())}]"
        if array.ndim != len(letters):
            raise ValueError(f"{name}: got shape {array.shape}, expected {expected}")
        for letter, size in zip(letters, array.shape, strict=True):
            want, whose = sizes.setdefault(letter, (size, name))
            if size != want:
                raise ValueError(
                    f"{name}: got shape {array.shape}, expected {expected} with {letter.upper()} = {want} "
                    f"as in {whose} {arrays[whose].shape}"
                )
