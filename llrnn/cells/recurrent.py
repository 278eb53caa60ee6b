"""The recurrent cells that need no proof to be stated: Elman, second-order, multiplicative and higher-order.

Section 2 of Hu & Murfet, "Linear logic and recurrent neural networks" (2017).
Axis letters: B batch (any number of leading axes), I input features, D hidden features, K factors of the
multiplicative cell, P = L + 1 powers 0..L.

Every cell is a `flax.linen.RNNCellBase` whose carry is the hidden state h [*B, D], so `flax.linen.RNN` runs
it as one fused scan. The term that logic adds to the plain RNN is a linear operator Z on h; `update` says
where it goes:

    "draft"   h' = sigma(Z h + H h + U x + B)                        (2.11)
    "later"   h' = sigma(Z_in h + H h + U x + B) + Z_out h           (the later draft; separate weights)
    "linear"  h' = Z h, divided by its length when `normalize` is set (no other weights)
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.linen.dtypes import promote_dtype
from flax.typing import Initializer
from jaxtyping import Array, Float, PRNGKeyArray

from llrnn.cells.base import Cell, at_least, checked, one_of

UPDATES = ("draft", "later", "linear")
COUPLINGS = ("predicted", "given")

type _Term = Callable[[str], Float[Array, "*B D"]]

# One [D, D] operator an input feature, rows first. Inputs are mostly one-hot, so that an operator is met
# alone: each is scaled to keep the length of h by itself, whatever the number of input features.
operator_init = nn.initializers.variance_scaling(
    1.0, "fan_in", "normal", in_axis=-1, out_axis=-2, batch_axis=(0,)
)


def second_order_operator(
    operators: Float[Array, "I D D"], inputs: Float[Array, "*B I"]
) -> Float[Array, "*B D D"]:
    """The operator V(x) = sum_k x_k V_k of (2.4), linear in the input; entry [i, j] takes h_j to h'_i."""
    # Of two axes: the transpose of a product over three costs a CPU twice as much.
    count, *size = operators.shape
    return (inputs @ operators.reshape(count, -1)).reshape(*inputs.shape[:-1], *size)


def apply_operator(operator: Float[Array, "*B D D"], vector: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
    """`operator @ vector`, for every element of the batch."""
    return jnp.einsum("...ij,...j->...i", operator, vector)


def second_order_term(
    operators: Float[Array, "I D D"], inputs: Float[Array, "*B I"], vector: Float[Array, "*B D"]
) -> Float[Array, "*B D"]:
    """V(x)(h) of (2.3), for one application of the operator.

    Either order of summing costs B I D^2 products. With few input features the I vectors V_k h are smaller
    than the D x D operator V(x), and memory is what the sum waits for: four times faster on two CPU cores at
    I = 10, D = 128.
    """
    if inputs.shape[-1] < vector.shape[-1]:
        return jnp.einsum("...k,...ki->...i", inputs, jnp.einsum("kij,...j->...ki", operators, vector))
    return apply_operator(second_order_operator(operators, inputs), vector)


def power_superposition(
    coefficients: Float[Array, "*B P"], operator: Callable[[Array], Array], vector: Float[Array, "*B D"]
) -> Float[Array, "*B D"]:
    """The superposition sum_i p_i alpha^i (v) of (2.13), by Horner's rule.

    acc <- alpha(acc) + p_i v, from the highest power down: no power of alpha is ever formed, P - 1
    applications to a vector, O(P D^2) where powers cost O(P D^3).

    The coefficients are p_0 .. p_(P-1), the operator acts on the vectors v of the whole batch.
    """
    count = coefficients.shape[-1]
    highest = coefficients[..., -1:] * vector
    if count == 1:
        return highest
    rest = jnp.moveaxis(coefficients[..., :-1], -1, 0)

    def step(acc: Array, p: Array) -> tuple[Array, None]:
        return operator(acc) + p[..., None] * vector, None

    # Not unrolled, however short: the gradient by alpha is then summed in place (a third of the time on a
    # CPU).
    return jax.lax.scan(step, highest, rest, reverse=True)[0]


@jax.custom_jvp
def matrix_power_superposition(
    coefficients: Float[Array, "*B P"], operator: Float[Array, "*B D D"], vector: Float[Array, "*B D"]
) -> Float[Array, "*B D"]:
    """`power_superposition` of `apply_operator`, with a derivative that goes over the operator once.

    Differentiated step by step, Horner's rule adds P - 1 outer products to a D x D gradient, one after the
    other, and memory is what it waits for. Here the derivative is written as a recursion whose forcing terms
    are one product of the operator's tangent with all intermediate vectors; transposed, that is one product
    of matrices. It is differentiable any number of times, forward and backward.
    """
    return _horner(coefficients, operator, vector)[0]


def _horner(coefficients, operator, vector):
    """The superposition, and what the operator was applied to: [P - 1, *B, D], highest power last."""

    def step(acc: Array, p: Array) -> tuple[Array, Array]:
        return apply_operator(operator, acc) + p[..., None] * vector, acc

    rest = jnp.moveaxis(coefficients[..., :-1], -1, 0)
    return jax.lax.scan(step, coefficients[..., -1:] * vector, rest, reverse=True)


@matrix_power_superposition.defjvp
def _(primals, tangents):
    coefficients, operator, vector = primals
    dcoefficients, doperator, dvector = tangents
    result, vectors = _horner(*primals)
    terms = jnp.einsum("...p,...i->p...i", dcoefficients, vector)
    terms += jnp.einsum("...p,...i->p...i", coefficients, dvector)
    lower = terms[:-1] + jnp.einsum("...ij,p...j->p...i", doperator, vectors)

    def step(tangent: Array, term: Array) -> tuple[Array, None]:
        return apply_operator(operator, tangent) + term, None

    return result, jax.lax.scan(step, terms[-1], lower, reverse=True)[0]


@jax.checkpoint
def second_order_powers(
    coefficients: Float[Array, "*B P"],
    operators: Float[Array, "I D D"],
    inputs: Float[Array, "*B I"],
    vector: Float[Array, "*B D"],
) -> Float[Array, "*B D"]:
    """The superposition sum_i p_i V(x)^i (v) of (2.13) with the operator of (2.4).

    The operators of a batch, D x D each, are formed again for the gradient: to keep them for every step of a
    sequence takes more memory than all else, and on a CPU more time than to form them.
    """
    return matrix_power_superposition(coefficients, second_order_operator(operators, inputs), vector)


def multiplicative_operator(
    expand: Float[Array, "D K"],
    factors: Float[Array, "*B K"],
    contract: Float[Array, "K D"],
    vector: Float[Array, "*B D"],
) -> Float[Array, "*B D"]:
    """I diag(V x) J h of (2.7), the factors V x given."""
    inner = factors * jnp.einsum("kj,...j->...k", contract, vector)
    return jnp.einsum("ik,...k->...i", expand, inner)


def unit(vector: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
    """The vector v / ||v||; 1e-12 keeps the value and the gradient of a vanished state finite."""
    return vector * jax.lax.rsqrt(jnp.sum(vector * vector, axis=-1, keepdims=True) + 1e-12)


class RecurrentCell(Cell):
    """What the named cells share: the carry, the affine part H h + U x + B and the three updates.

    Attributes:
      features: D, the dimension of the hidden state.
      update: "draft", "later" or "linear", see the head of this module.
      normalize: with update="linear", divide the new state by its length.
      activation: sigma; the paper's is relu, the authors' experiments use tanh.
      operator_init: of Z's operators.
    """

    features: int
    update: str = "draft"
    normalize: bool = False
    activation: Callable[[Array], Array] = nn.relu
    operator_init: Initializer = operator_init

    checks = checked(features=at_least(1), update=one_of(UPDATES))

    @nn.nowrap
    def initialize_carry(self, rng: PRNGKeyArray, input_shape: tuple[int, ...]) -> Float[Array, "*B D"]:
        """The state before an input of shape [*B, I]: 0, or the first unit vector where 0 would stay 0."""
        shape = (*input_shape[:-1], self.features)
        if self.update != "linear":
            return jnp.zeros(shape, self.param_dtype)
        return jnp.broadcast_to(jax.nn.one_hot(0, self.features, dtype=self.param_dtype), shape)

    @nn.nowrap
    def validate(self) -> None:
        """Raises ValueError, naming the field, when the fields do not make a cell."""
        super().validate()
        if self.normalize and self.update != "linear":
            raise ValueError(f"normalize is for update='linear' alone, got update={self.update!r}")

    @nn.compact
    def __call__(
        self, carry: Float[Array, "*B D"], inputs: Float[Array, "*B I"]
    ) -> tuple[Float[Array, "*B D"], Float[Array, "*B D"]]:
        """One step: (carry h, inputs x) to (h', h')."""
        self.validate()
        self.check_state("carry", carry, inputs, self.features)
        new = self.evolve(carry, inputs).astype(carry.dtype)  # under a scan the carry may not change its type
        return new, new

    def evolve(self, hidden: Float[Array, "*B D"], inputs: Float[Array, "*B _"]) -> Float[Array, "*B D"]:
        """The new state by the chosen update."""
        term, x = self.operator(hidden, inputs)
        match self.update:
            case "draft":
                return self.activation(term("") + self.affine(self.features, hidden, x))
            case "later":
                return self.activation(term("_in") + self.affine(self.features, hidden, x)) + term("_out")
        return unit(term("")) if self.normalize else term("")

    def operator(self, hidden: Float[Array, "*B D"], inputs: Float[Array, "*B _"]) -> tuple[_Term, Array]:
        """Z h as a function of the suffix of its weights' names, and x [*B, I], what U is applied to."""
        raise NotImplementedError


class ElmanCell(RecurrentCell):
    """The plain RNN, h' = sigma(H h + U x + B) (2.1): no operator, so `update` must stay "draft"."""

    @nn.nowrap
    def validate(self) -> None:
        """Raises ValueError, naming the field, when the fields do not make a cell."""
        super().validate()
        if self.update != "draft":
            raise ValueError(
                f"ElmanCell has no operator to move: update must be 'draft', got {self.update!r}"
            )

    def evolve(self, hidden: Float[Array, "*B D"], inputs: Float[Array, "*B I"]) -> Float[Array, "*B D"]:
        """The new state."""
        return self.activation(self.affine(self.features, hidden, inputs))


class SecondOrderCell(RecurrentCell):
    """Z = V(x), an operator linear in the input (2.3)-(2.5); the LLRNN whose proof is dereliction (Example
    2.8).
    """

    def operator(self, hidden: Float[Array, "*B D"], inputs: Float[Array, "*B I"]) -> tuple[_Term, Array]:
        """V(x)(h) and x."""
        shape = (inputs.shape[-1], self.features, self.features)

        def term(suffix: str) -> Array:
            operators = self.param("operators" + suffix, self.operator_init, shape, self.param_dtype)
            x, h, operators = promote_dtype(inputs, hidden, operators, dtype=self.dtype)
            return second_order_term(operators, x, h)

        return term, inputs


class MultiplicativeCell(RecurrentCell):
    """Z = I diag(V x) J (2.6)-(2.7): second-order through K factors, K (2 D + I) weights in place of I D^2.

    Attributes:
      factors: K, the dimension of the auxiliary space; None takes `features`.
    """

    factors: int | None = None

    checks = checked(factors=at_least(1, or_none=True))

    def operator(self, hidden: Float[Array, "*B D"], inputs: Float[Array, "*B I"]) -> tuple[_Term, Array]:
        """I diag(V x) J h and x."""
        factors = self.features if self.factors is None else self.factors
        # Unit variance for one-hot x, as for the operators of the second-order cell.
        drawn = nn.initializers.normal(1.0)
        by_columns = nn.initializers.lecun_normal(in_axis=-1, out_axis=-2)

        def term(suffix: str) -> Array:
            expand = self.param("expand" + suffix, by_columns, (self.features, factors), self.param_dtype)
            diagonal = self.param("diagonal" + suffix, drawn, (inputs.shape[-1], factors), self.param_dtype)
            contract = self.param("contract" + suffix, by_columns, (factors, self.features), self.param_dtype)
            x, h, expand, diagonal, contract = promote_dtype(
                inputs, hidden, expand, diagonal, contract, dtype=self.dtype
            )
            return multiplicative_operator(expand, jnp.einsum("...i,ik->...k", x, diagonal), contract, h)

        return term, inputs


class HigherOrderCell(RecurrentCell):
    """Z = sum_i p_i (W^c x)^i over the powers 0..L, a superposition of the numerals (Example 2.9, (2.13)).

    Attributes:
      max_power: L.
      coupling: "predicted": p = softmax(W^p h + B^p) as in (2.10). "given": the first L + 1 features of the
        input are p itself, a task's token k being the program [[k]]; x is the rest. What is given is not
        learned: say so in any comparison.
    """

    max_power: int = 2
    coupling: str = "predicted"

    checks = checked(max_power=at_least(0), coupling=one_of(COUPLINGS))

    def operator(self, hidden: Float[Array, "*B D"], inputs: Float[Array, "*B _"]) -> tuple[_Term, Array]:
        """sum_i p_i V(x)^i (h) and x; the inputs are x, or [p, x] with coupling="given"."""
        count = self.max_power + 1
        if self.coupling == "predicted":
            powers = nn.softmax(self.dense("powers", count)(hidden))  # (2.10)
        elif inputs.shape[-1] <= count:
            raise ValueError(
                f"inputs must have more than the {count} features that coupling='given' takes as p, "
                f"got {inputs.shape}"
            )
        else:
            powers, inputs = inputs[..., :count], inputs[..., count:]
        shape = (inputs.shape[-1], self.features, self.features)

        def term(suffix: str) -> Array:
            operators = self.param("operators" + suffix, self.operator_init, shape, self.param_dtype)
            x, h, p, operators = promote_dtype(inputs, hidden, powers, operators, dtype=self.dtype)
            return second_order_powers(p, operators, x, h)

        return term, inputs
