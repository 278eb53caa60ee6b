"""The seven neural logic operators: Chen (2023), Table 2. Each is a Horn clause whose body is learned.

A clause u <- K, v has its kernel K and premise v among the atoms themselves. Its conclusion is the sum of
v, weighted by K, over what the clause's body has and its head has not: the conjunction of equation (8) in
logit space. An operator sums over tokens (cjoin, join, mu, trans: the mixers; their kernel is a softmax over
those tokens) or over predicates (bool, assoc, prod).

Binary atoms have their predicates before the two tokens, [B, H, X, Y]: so the sums over tokens are batched
matrix products as they stand, and `affine.over_predicates` projects from this layout to this layout.
Nothing is transposed on the way. Heads of unary atoms are as projections write them, [B, X, H, S].

Numbers of tokens may differ, so a decoder can ask for one row. Masks are True where a kernel may look, with
the kernel's rank and each size full or 1; a row that may look nowhere gives 0. Kernels before the softmax are
`kernel_logits`; softmax is float32 at least. `dropout`, a function, is applied to a kernel after its softmax.

Axis letters: B batch; X, Y tokens of the conclusion; A tokens summed over; H heads (B-dim. or R-dim. of
Table 2), S features of a head; C channels of any kind; W inputs and F outputs of an affine map.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from folnet.affine import Affine, activate, over_features, over_predicates
from kernels import checks, masked_softmax
from kernels import trans as fused_trans

Dropout = Callable[[Float[Array, "..."]], Float[Array, "..."]]
CJOIN_ROWS = 16  # rows that `cjoin` gives a softmax of their own at a time


def softmax_kernel(
    logits: Float[Array, "*B A"],
    mask: Bool[Array, "*#B #A"] | None = None,
    *,
    dropout: Dropout | None = None,
    dtype: jnp.dtype | None = None,
) -> Float[Array, "*B A"]:
    """Softmax over the last axis in float32 at least; 0 where the mask is False.

    A row with nothing allowed gives 0. `dropout` is applied to the result, of the logits' type or of `dtype`.

    Raises:
      ValueError: a mask that is not boolean or does not broadcast.
    """
    mask = checks.mask(mask, logits.shape, "the kernel's shape")
    wide = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    kernel = masked_softmax(wide, mask).astype(dtype or logits.dtype)
    return kernel if dropout is None else dropout(kernel)


def boolean(
    premise: Float[Array, "..."],
    clause_in: Affine,
    clause_out: Affine,
    *,
    gate: Affine | None = None,
    activation: str = "gelu",
    over: Callable[[Float[Array, "..."], Affine], Float[Array, "..."]] = over_features,
) -> Float[Array, "..."]:
    """Row "b" of Table 2, u(x) <- K, v(x): other predicates of the same token or pair.

        u_h(x) = sum_w K_hw v_w(x)

    chained twice with an activation between (see `activate`), the feed-forward layer of a Transformer
    (Appendix A.3). A `gate` makes the hidden values rectified gates' (ReGLU), without another activation. The
    premise v is unary, [B, X, W], or with `over=over_predicates` binary, [B, W, X, Y].
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
    activation: str = "gelu",
) -> Float[Array, "B F X Y"]:
    """Row "b" for binary atoms, u(x, y) <- K, v(x, y), v(y, x): relations and their converses.

    As released: the boolean operator of [v(x, y); v(y, x)], so `clause_in` has 2C inputs, plus an affine map
    of v(y, x), `clause_skip`. The converse at [x, y] is v(y, x): the premise with its tokens exchanged, or,
    for some rows only, columns.

    Raises:
      ValueError: a converse of another shape than the premise.
    """
    if premise.shape != converse.shape:
        raise ValueError(f"converse has shape {converse.shape}, expected the premise's {premise.shape}")
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
    """Row "j", U <- B x U, u(x) <- K(x, a), v(a): a property of x from one of those it relates to.

        u_hs(x) = sum_a K_h(x, a) v_hs(a)                K softmax over a

    With a kernel from `assoc` this is self-attention.

    Raises:
      ValueError: shapes that do not fit, by name.
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

    It is linear in the predicates s of the premise: those of a projection are the projection of those of what
    is projected, which for H < S is the cheaper order.

    Raises:
      ValueError: shapes that do not fit, by name.
    """
    return _mix("bhxa,bcxa->bxhc", kernel_logits, premise, mask, dropout)


def cjoin(
    kernel_logits: Float[Array, "B S H A"],
    premise: Float[Array, "B S X A"],
    *,
    mask: Bool[Array, "#B 1 #X #A"] | None = None,
    dropout: Dropout | None = None,
) -> Float[Array, "B X S H"]:
    """Row "c" as the paper has it, U <- U x B, u(x) <- K(a), v(x, a): join with its roles exchanged.

        u_hs(x) = sum_a K_hs(a) v_s(x, a)                K softmax over a

    What the paper calls h is the axis S here, the one shared with the premise, as in the released code.

    The mask is the same for all heads. One with rows of its own gives each x a softmax of its own over the a
    that it may see: no later token then counts in an earlier one's denominator. These kernels, S H X A
    numbers, are made some rows at a time, and again for the gradient.

    Raises:
      ValueError: shapes that do not fit, by name.
    """
    _check("bsha,bsxa", kernel_logits=kernel_logits, premise=premise)
    batch, _, rows, columns = premise.shape
    mask = checks.mask(mask, (batch, 1, rows, columns), "[B, 1, X, A]")
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

    The mask is True where a counts, for all y alike: what causal models need is in `cjoin`.

    Raises:
      ValueError: shapes that do not fit, by name.
    """
    return _mix("bsha,bsay->bysh", kernel_logits, premise, mask, dropout)


def assoc(kernel: Float[Array, "B X H S"], premise: Float[Array, "B Y H S"]) -> Float[Array, "B H X Y"]:
    """Row "a", B <- U x U, u(x, y) <- K(x), v(y): a relation from a property of either token.

        u_h(x, y) = sum_w K_hw(x) v_hw(y)

    These are the scores of self-attention.

    Raises:
      ValueError: shapes that do not fit, by name.
    """
    _check("bxhs,byhs", kernel=kernel, premise=premise)
    return jnp.einsum("bxhs,byhs->bhxy", kernel, premise)


def prod(kernel: Float[Array, "B X H C"], premise: Float[Array, "B C X Y"]) -> Float[Array, "B H X Y"]:
    """Row "p", B <- U x B, u(x, y) <- K(x), v(x, y): a relation from another and a property of its subject.

        u_h(x, y) = sum_w K_hw(x) v_w(x, y)

    It is linear in the premise: a projection of the premise can be one of the kernel instead.

    Raises:
      ValueError: shapes that do not fit, by name.
    """
    _check("bxhc,bcxy", kernel=kernel, premise=premise)
    return jnp.einsum("bxhc,bcxy->bhxy", kernel, premise)


def trans(
    kernel_logits: Float[Array, "B H X A"],
    premise: Float[Array, "B H A Y"],
    *,
    mask: Bool[Array, "#B #H #X #A"] | None = None,
    dropout: Dropout | None = None,
    implementation: str | None = None,
) -> Float[Array, "B H X Y"]:
    """Row "t", B <- B x B, u(x, y) <- K(x, a), v(a, y): what stands between x and y makes them related.

        u_h(x, y) = sum_a K_h(x, a) v_h(a, y)            K softmax over a

    Without dropout it is `kernels.trans`, whose `implementation` may be chosen and which keeps no kernel for
    the gradient; with dropout the kernel is computed in plain sight.

    Raises:
      ValueError: shapes that do not fit, by name.
      NotImplementedError: an implementation asked for that does not support these arguments.
    """
    if dropout is None:
        return fused_trans(kernel_logits, premise, mask=mask, implementation=implementation)
    return _mix("bhxa,bhay->bhxy", kernel_logits, premise, mask, dropout)


def _cjoin_by_rows(kernel_logits, premise, mask, dropout):
    """`cjoin` with a softmax for each row of the mask."""
    batch, size, rows, columns = premise.shape
    step = min(CJOIN_ROWS, rows)
    padding = -rows % step
    mask = jnp.broadcast_to(mask, (mask.shape[0], 1, rows, columns))
    # Rows that pad see nothing, and are cut off again.
    mask = jnp.pad(mask, ((0, 0), (0, 0), (0, padding), (0, 0)))
    premise = jnp.pad(premise, ((0, 0), (0, 0), (0, padding), (0, 0)))
    steps = (rows + padding) // step
    # What is dropped is dropped for all rows, as where the kernel is the same for them.
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
    """The product of a kernel, after its softmax, and a premise."""
    _check(subscripts, kernel_logits=kernel_logits, premise=premise)
    kernel = softmax_kernel(kernel_logits, mask, dropout=dropout, dtype=premise.dtype)
    return jnp.einsum(subscripts, kernel, premise)


def _check(subscripts: str, **arrays: Float[Array, "..."]) -> None:
    """Raises ValueError unless axes of the same letter have the same size."""
    sizes: dict[str, tuple[int, str]] = {}
    for letters, (name, array) in zip(subscripts.split("->")[0].split(","), arrays.items(), strict=True):
        expected = f"[{', '.join(letters.upper())}]"
        if array.ndim != len(letters):
            raise ValueError(f"{name} has shape {array.shape}, expected {expected}")
        for letter, size in zip(letters, array.shape, strict=True):
            want, whose = sizes.setdefault(letter, (size, name))
            if size != want:
                raise ValueError(
                    f"{name} has shape {array.shape}, expected {expected} with {letter.upper()} = {want} "
                    f"as in {whose} {arrays[whose].shape}"
                )
