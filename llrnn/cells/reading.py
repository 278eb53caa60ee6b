"""Reads what cells learned: the operators and tables among their parameters, and a table's programs by name.

Axis letters: K tokens, P programs (numerals 0 .. P - 1), G operators, I input features, D state features.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from llrnn import logic
from llrnn.cells.coupling import TABLE
from llrnn.cells.declarations import Command, Input
from llrnn.cells.general import LLRNNCell
from llrnn.cells.recurrent import OPERATORS, HigherOrderCell, RecurrentCell
from llrnn.logic.spans import NumeralSpan
from llrnn.logic.types import dimension


def read_operators(
    cell: nn.RNNCellBase, params: Mapping[str, Any]
) -> dict[str, Float[Array, "I D D"] | Float[np.ndarray, "I D D"]]:
    """Returns the operators among a cell's parameters, one for each input feature, by name.

    They are the V_k of second-order and higher-order cells, and, in the cell of a proof, the maps of declared
    inputs of type B -o B without a `basis`. Other cells have none. A function and no method, because inputs
    of a proof can have any name, and parameters share names with methods in `flax.nnx`.
    """
    if isinstance(cell, RecurrentCell):
        return {name: value for name, value in params.items() if name.startswith(OPERATORS)}
    found = {}
    if isinstance(cell, LLRNNCell):
        for declared, domain in zip(cell.inputs, cell.domains(cell.master), strict=True):
            if not isinstance(declared, Input) or declared.basis is not None:
                continue
            if isinstance(domain, logic.Lolli) and domain.domain == domain.codomain:
                size = dimension(domain.domain)
                found[declared.name] = params[declared.name]["kernel"].reshape(-1, size, size)
    return found


def read_tables(cell: nn.RNNCellBase, params: Mapping[str, Any]) -> dict[str, Float[np.ndarray, "K P"]]:
    """Returns the logits of a cell's learned tables of numerals, over their temperature, by name.

    They are that of a higher-order cell, and those of a proof's commands, in the order of their declarations.
    """
    found: dict[str, float] = {}
    if isinstance(cell, HigherOrderCell) and cell.coupling == "table":
        found["powers"] = cell.temperature
    elif isinstance(cell, LLRNNCell):
        commands = (declared for declared in cell.inputs if isinstance(declared, Command))
        tables = (each for each in commands if each.coupling == "table")
        found = {each.name: each.temperature for each in tables if isinstance(each.span, NumeralSpan)}
    return {name: np.asarray(params[name + TABLE]["kernel"]) / scale for name, scale in found.items()}


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
