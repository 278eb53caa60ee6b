"""Reads the programs that a table learned, and names them.

Axis letters: K tokens, P programs (numerals 0 .. P - 1), G operators.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float


@dataclasses.dataclass(frozen=True)
class LearnedNumerals:
    """The numerals of a learned table, for tokens k that stand for "apply g, k times".

    Table and operators are learned together. If the operator learned for g is that of g^u, for a u prime to
    all orders, then token k needs the numeral m with u m = k modulo the orders: u is only known from the
    table as a whole. For an operator of order n, powers are known modulo n only.

    Attributes:
      numerals: m, the most probable numeral of each token.
      probabilities: its coordinate; 1 for a program, less for a mixture of programs.
      unit: u, the one with the most `agreement`; the smallest of equals.
      powers: u m modulo `modulus`, the power that each token applies.
      modulus: the least common multiple of the orders; powers are known modulo this for all operators.
      agreement: the share of pairs (k, g) with u m = k modulo the order of g; 1 if every program is right.
    """

    numerals: tuple[int, ...]
    probabilities: tuple[float, ...]
    unit: int
    powers: tuple[int, ...]
    modulus: int
    agreement: float

    def __str__(self) -> str:
        lines = [
            f"token {k}: numeral {m} (coordinate {p:.3f}), which applies g^{power}"
            for k, (m, p, power) in enumerate(
                zip(self.numerals, self.probabilities, self.powers, strict=True)
            )
        ]
        end = f"powers modulo {self.modulus}; right for {self.agreement:.1%} of the pairs (k, g)"
        return "\n".join([*lines, end])


def read_numerals(logits: Float[np.ndarray, "K P"], orders: Sequence[int]) -> LearnedNumerals:
    """Names the numerals of a table.

    Args:
      logits: T, a row per token k = 0, 1, .. and a column per numeral 0, 1, ..
      orders: the order of each operator g.

    Raises:
      ValueError: the table has another shape, or an order is below 1.
    """
    logits = np.asarray(logits, np.float64)
    if logits.ndim != 2 or not logits.size:
        raise ValueError(f"logits: got shape {logits.shape}, expected [K, P]")
    if not len(orders) or min(orders) < 1:
        raise ValueError(f"orders: got {tuple(orders)}, expected at least one, each at least 1")
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    coordinates = shifted / shifted.sum(axis=1, keepdims=True)
    numerals, tokens = coordinates.argmax(axis=1), np.arange(len(logits))
    of_g = np.asarray(orders)

    def agreement(unit: int) -> float:
        return float(np.mean((unit * numerals - tokens)[:, None] % of_g == 0))

    modulus = math.lcm(*map(int, orders))
    unit = max((u for u in range(1, modulus + 1) if math.gcd(u, modulus) == 1), key=agreement)
    return LearnedNumerals(
        tuple(map(int, numerals)),
        tuple(map(float, coordinates.max(axis=1))),
        unit,
        tuple(int(unit * m) % modulus for m in numerals),
        modulus,
        agreement(unit),
    )
