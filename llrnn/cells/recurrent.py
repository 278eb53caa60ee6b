"""Recurrent cells defined without a proof: Elman, second-order, multiplicative and higher-order.

Section 2 of Hu & Murfet, "Linear logic and recurrent neural networks" (2017).
Axis letters: B batch (any number of leading axes), I input features, D hidden features, K factors of the
multiplicative cell, P = L + 1 powers 0..L.

Every cell is a `flax.linen.RNNCellBase` whose carry is the hidden state h [*B, D], so `flax.linen.RNN` runs
it as one fused scan. Linear logic adds to the plain RNN a linear operator Z on h; the field `update` selects
how:

    "draft"   h' = sigma(Z h + H h + U x + B)                        (2.11)
    "later"   h' = sigma(Z_in h + H h + U x + B) + Z_out h           (the later draft; separate weights)
    "linear"  h' = Z h, divided by its length when `normalize` is set (no other weights)

A given command whose coordinates are all 0 is the zero program, with Z h = 0. A normalized cell, which cannot
divide 0 by its length, then keeps its state; a linear cell that is not normalized is at 0 from then on.
"""

from collections.abc import Callable
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.linen.dtypes import promote_dtype
from flax.typing import Initializer
from jaxtyping import Array, Float, PRNGKeyArray

from llrnn.cells import coupling as couplings
from llrnn.cells.base import Cell, above, at_least, checked, one_of
from llrnn.cells.coupling import Coupling

Update = Literal["draft", "later", "linear"]

OPERATORS = "operators"
"""Beginning of the names of the weights V_k."""

type _Term = Callable[[str], Float[Array, "*B D"]]

# One [D, D] operator per input feature, rows first. Inputs are mostly one-hot and select a single operator,
# so each operator is scaled to preserve the length of h on its own, for any number of input features.
operator_init = nn.initializers.variance_scaling(
    1.0, "fan_in", "normal", in_axis=-1, out_axis=-2, batch_axis=(0,)
)


def second_order_operator(
    operators: Float[Array, "I D D"], inputs: Float[Array, "*B I"]
) -> Float[Array, "*B D D"]:
    """Computes V(x) = sum_k x_k V_k of (2.4), linear in the input; entry [i, j] maps h_j to h'_i."""
    # A product of matrices: on a CPU the transpose of a product of three-axis arrays costs twice as much.
    count, *size = operators.shape
    return (inputs @ operators.reshape(count, -1)).reshape(*inputs.shape[:-1], *size)


def equal_lengths(operators: Float[Array, "I D D"]) -> Float[Array, "I D D"]:
    """Scales each operator to the Frobenius norm of an orthogonal one, sqrt(D); the gradient at 0 is finite.

    The weights of a superposition of powers then mean what they say. Without it a large operator lets its
    high powers win at small weights, and a learned p = (.9, 0, .., .1) acts as the power that it ranks last.
    """
    squares = jnp.sum(operators * operators, axis=(-2, -1), keepdims=True)
    return operators * jax.lax.rsqrt(squares / operators.shape[-1] + 1e-12)


def apply_operator(operator: Float[Array, "*B D D"], vector: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
    """Computes `operator @ vector` for every element of the batch."""
    return jnp.einsum("...ij,...j->...i", operator, vector)


def second_order_term(
    operators: Float[Array, "I D D"], inputs: Float[Array, "*B I"], vector: Float[Array, "*B D"]
) -> Float[Array, "*B D"]:
    """Computes V(x)(h) of (2.3), one application of the operator.

    Either order of summation costs B I D^2 multiplications. With few input features the I vectors V_k h take
    less memory than the D x D operator V(x), and the sum is limited by memory bandwidth: this order is four
    times faster on two CPU cores at I = 10, D = 128.
    """
    if inputs.shape[-1] < vector.shape[-1]:
        return jnp.einsum("...k,...ki->...i", inputs, jnp.einsum("kij,...j->...ki", operators, vector))
    return apply_operator(second_order_operator(operators, inputs), vector)


def power_superposition(
    coefficients: Float[Array, "*B P"], operator: Callable[[Array], Array], vector: Float[Array, "*B D"]
) -> Float[Array, "*B D"]:
    """Computes the superposition sum_i p_i alpha^i (v) of (2.13) by Horner's rule.

    acc <- alpha(acc) + p_i v, from the highest power down. This forms no power of alpha: it takes P - 1
    applications to a vector, O(P D^2), where powers cost O(P D^3).

    Args:
      coefficients: p_0 .. p_(P-1).
      operator: alpha, a linear function of the vectors of the whole batch.
      vector: v.
    """
    count = coefficients.shape[-1]
    highest = coefficients[..., -1:] * vector
    if count == 1:
        return highest
    rest = jnp.moveaxis(coefficients[..., :-1], -1, 0)

    def step(acc: Array, p: Array) -> tuple[Array, None]:
        return operator(acc) + p[..., None] * vector, None

    # Not unrolled, however short: the scan sums the gradient with respect to alpha in place, which takes a
    # third of the time on a CPU.
    return jax.lax.scan(step, highest, rest, reverse=True)[0]


@jax.custom_jvp
def matrix_power_superposition(
    coefficients: Float[Array, "*B P"], operator: Float[Array, "*B D D"], vector: Float[Array, "*B D"]
) -> Float[Array, "*B D"]:
    """Computes `power_superposition` of `apply_operator`, with a derivative that reads the operator once.

    Differentiated step by step, Horner's rule adds P - 1 outer products to a D x D gradient one at a time,
    which is limited by memory bandwidth. Here the derivative is a recursion whose forcing terms are one
    product of the operator's tangent with all intermediate vectors; its transpose is one product of matrices.
    It can be differentiated any number of times, forward and backward.
    """
    return _horner(coefficients, operator, vector)[0]


def _horner(coefficients, operator, vector):
    """Returns the superposition and the arguments of the operator, [P - 1, *B, D], highest power last."""

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
    """Computes the superposition sum_i p_i V(x)^i (v) of (2.13) with the operator of (2.4).

    The gradient recomputes the operators of a batch, D x D each. Storing them for every step of a sequence
    would take more memory than everything else, and on a CPU more time than recomputing them.
    """
    return matrix_power_superposition(coefficients, second_order_operator(operators, inputs), vector)


def multiplicative_operator(
    expand: Float[Array, "D K"],
    factors: Float[Array, "*B K"],
    contract: Float[Array, "K D"],
    vector: Float[Array, "*B D"],
) -> Float[Array, "*B D"]:
    """Computes I diag(V x) J h of (2.7), where `factors` is V x."""
    inner = factors * jnp.einsum("kj,...j->...k", contract, vector)
    return jnp.einsum("ik,...k->...i", expand, inner)


def unit(vector: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
    """Computes v / ||v||; adding 1e-12 under the root keeps value and gradient finite at v = 0."""
    return vector * jax.lax.rsqrt(jnp.sum(vector * vector, axis=-1, keepdims=True) + 1e-12)


def unit_or(vector: Float[Array, "*B D"], otherwise: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
    """Computes v / ||v||, or `otherwise` where v is exactly 0."""
    return jnp.where(jnp.any(vector != 0, axis=-1, keepdims=True), unit(vector), otherwise)


class RecurrentCell(Cell):
    """Base class of the named cells: the carry, the affine part H h + U x + B and the three updates.

    Attributes:
      features: D, the dimension of the hidden state.
      update: "draft", "later" or "linear"; the module's docstring has the equations.
      normalize: with update="linear", divide the new state by its length; a new state of length 0 does not
        replace the old one.
      activation: sigma; relu in the paper, tanh in the authors' experiments.
      operator_init: initialiser of the operators in Z.
    """

    features: int
    update: Update = "draft"
    normalize: bool = False
    activation: Callable[[Array], Array] = nn.relu
    operator_init: Initializer = operator_init

    checks = checked(features=at_least(1), update=one_of(get_args(Update)))

    @nn.nowrap
    def initialize_carry(self, rng: PRNGKeyArray, input_shape: tuple[int, ...]) -> Float[Array, "*B D"]:
        """Returns the initial state for inputs of shape [*B, I].

        The state is 0, or the first unit vector with update="linear", where 0 would stay 0.
        """
        shape = (*input_shape[:-1], self.features)
        if self.update != "linear":
            return jnp.zeros(shape, self.param_dtype)
        return jnp.broadcast_to(jax.nn.one_hot(0, self.features, dtype=self.param_dtype), shape)

    @nn.nowrap
    def validate(self) -> None:
        """Raises ValueError, naming the field, if the value of a field is not allowed."""
        super().validate()
        if self.normalize and self.update != "linear":
            raise ValueError(f"update: got {self.update!r}, expected 'linear' with normalize=True")

    @nn.compact
    def __call__(
        self, carry: Float[Array, "*B D"], inputs: Float[Array, "*B I"]
    ) -> tuple[Float[Array, "*B D"], Float[Array, "*B D"]]:
        """Runs one step: maps the carry h and the inputs x to (h', h')."""
        self.validate()
        self.check_state("carry", carry, inputs, self.features)
        new = self.evolve(carry, inputs).astype(carry.dtype)  # a scan requires a carry of constant dtype
        return new, new

    def evolve(self, hidden: Float[Array, "*B D"], inputs: Float[Array, "*B _"]) -> Float[Array, "*B D"]:
        """Computes the new state h' by the equation that `update` selects."""
        term, x = self.operator(hidden, inputs)
        match self.update:
            case "draft":
                return self.activation(term("") + self.affine(self.features, hidden, x))
            case "later":
                return self.activation(term("_in") + self.affine(self.features, hidden, x)) + term("_out")
        return unit_or(term(""), hidden) if self.normalize else term("")

    def operator(self, hidden: Float[Array, "*B D"], inputs: Float[Array, "*B _"]) -> tuple[_Term, Array]:
        """Returns a function from the suffix of the weights' names to Z h, and x [*B, I], the input of U."""
        raise NotImplementedError


class ElmanCell(RecurrentCell):
    """The plain RNN, h' = sigma(H h + U x + B) (2.1): no operator, so `update` must stay "draft"."""

    @nn.nowrap
    def validate(self) -> None:
        """Raises ValueError, naming the field, if the value of a field is not allowed."""
        super().validate()
        if self.update != "draft":
            raise ValueError(f"update: got {self.update!r}, expected 'draft': ElmanCell has no operator Z")

    def evolve(self, hidden: Float[Array, "*B D"], inputs: Float[Array, "*B I"]) -> Float[Array, "*B D"]:
        """Computes h' of (2.1)."""
        return self.activation(self.affine(self.features, hidden, inputs))


class SecondOrderCell(RecurrentCell):
    """Z = V(x), linear in the input (2.3)-(2.5): the LLRNN whose proof is dereliction (Example 2.8)."""

    def operator(self, hidden: Float[Array, "*B D"], inputs: Float[Array, "*B I"]) -> tuple[_Term, Array]:
        """Returns V(x)(h), as a function of the weights' suffix, and x."""
        shape = (inputs.shape[-1], self.features, self.features)

        def term(suffix: str) -> Array:
            operators = self.param(OPERATORS + suffix, self.operator_init, shape, self.param_dtype)
            x, h, operators = promote_dtype(inputs, hidden, operators, dtype=self.dtype)
            return second_order_term(operators, x, h)

        return term, inputs


class MultiplicativeCell(RecurrentCell):
    """Z = I diag(V x) J (2.6)-(2.7): second-order through K factors, with K (2 D + I) weights, not I D^2.

    Attributes:
      factors: K, the dimension of the auxiliary space; None uses `features`.
    """

    factors: int | None = None

    checks = checked(factors=at_least(1, or_none=True))

    def operator(self, hidden: Float[Array, "*B D"], inputs: Float[Array, "*B I"]) -> tuple[_Term, Array]:
        """Returns I diag(V x) J h, as a function of the weights' suffix, and x."""
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
      max_power: L, the highest power.
      coupling: the source of p; `llrnn.cells.coupling` has the equations. "predicted" is (2.10). "given"
        reads p from the first L + 1 features of the input, so that a task's token k is the program [[k]], and
        x is the rest; a given p is not learned, and any comparison should say so. "table" reads as many
        one-hot tokens there and learns a program for each.
      temperature: divides the logits of p.
      straight_through: use the most probable power, with the gradient of the mixture.
      scaled: scale each operator by `equal_lengths`.
    """

    max_power: int = 2
    coupling: Coupling = "predicted"
    temperature: float = 1.0
    straight_through: bool = False
    scaled: bool = False

    checks = checked(max_power=at_least(0), coupling=one_of(get_args(Coupling)), temperature=above(0))

    def operator(self, hidden: Float[Array, "*B D"], inputs: Float[Array, "*B _"]) -> tuple[_Term, Array]:
        """Returns sum_i p_i V(x)^i (h), as a function of the weights' suffix, and x.

        The inputs are x, or tokens or p followed by x, as `coupling` says.
        """
        count = self.max_power + 1
        tokens = inputs[..., :0]
        if self.coupling in couplings.TAKES_FEATURES:
            if inputs.shape[-1] <= count:
                raise ValueError(
                    f"inputs: got shape {inputs.shape}, expected more than {count} features with "
                    f"coupling={self.coupling!r}, which reads p from that many"
                )
            tokens, inputs = inputs[..., :count], inputs[..., count:]
        powers = tokens
        if self.coupling != "given":
            logits = self.command_logits("powers", count, self.coupling, hidden, inputs, tokens)
            powers = couplings.coordinates(logits, self.temperature, self.straight_through)
            self.sow("intermediates", "powers" + couplings.COORDINATES, powers)
        shape = (inputs.shape[-1], self.features, self.features)

        def term(suffix: str) -> Array:
            operators = self.param(OPERATORS + suffix, self.operator_init, shape, self.param_dtype)
            x, h, p, operators = promote_dtype(inputs, hidden, powers, operators, dtype=self.dtype)
            operators = equal_lengths(operators) if self.scaled else operators
            return second_order_powers(p, operators, x, h)

        return term, inputs
