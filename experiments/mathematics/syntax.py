"""The syntactic role of each character of a question that has one arithmetic expression.

Roles are those that the paper's Section 4 finds in clusters of role vectors, such as the ones digit of a
number in the denominator. They are parsed from the text of the question as Python reads it, which is how the
dataset means it, and not taken from the generator. Tests compare both: for `expressions` the parsed tree is
the one that was drawn; for the dataset's arithmetic it is the generator's but for brackets that it leaves out
in a + (b + c), a*(b*c) and a*(b/c), which are then parsed from the left.
"""

import ast
import dataclasses
import re

import numpy as np
from jaxtyping import Int

NONE = -1
"""The label of a character that has no such role."""
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div)
"""Binary operations in the order of their labels."""

_EXPRESSION = re.compile(r"[-(\d][-\d+*/() ]*[\d)]|\d")


@dataclasses.dataclass(frozen=True)
class Syntax:
    """Labels of the characters of a question, each [characters], or `NONE`.

    Attributes:
        kind: of characters of the expression: digit 0, sign 1, operator 2, bracket 3.
        place: of digits, the power of ten.
        depth: of digits and operators, the number of brackets around them.
        operand: of digits, whether their number is in the first (0) or the second (1) operand of the
            innermost binary operation.
        operator: of digits, that operation: + 0, - 1, * 2, / 3.
        inverse: of digits, 1 if their number is in the second operand of an odd number of differences and
            divisions together. In products and quotients these are the factors of the denominator, once all
            brackets are resolved (figure 2), and in sums and differences the terms that are subtracted.
    """

    kind: Int[np.ndarray, "S"]
    place: Int[np.ndarray, "S"]
    depth: Int[np.ndarray, "S"]
    operand: Int[np.ndarray, "S"]
    operator: Int[np.ndarray, "S"]
    inverse: Int[np.ndarray, "S"]


LABELS = tuple(field.name for field in dataclasses.fields(Syntax))


def parse(question: str) -> Syntax | None:
    """Labels the characters of a question; None if it has no expression with an operator."""
    found = max(_EXPRESSION.finditer(question), key=lambda match: len(match[0]), default=None)
    if found is None:
        return None
    text, first = found[0], found.start()
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(tree, ast.BinOp):
        return None
    labels = {name: np.full(len(question), NONE) for name in LABELS}

    depth = 0
    for at, character in enumerate(text, first):
        depth += character == "("
        if character in "()":
            labels["kind"][at] = 3
        elif character in "+-*/":  # binary ones are found in the tree
            labels["kind"][at], labels["depth"][at] = 1, depth
        depth -= character == ")"

    def visit(node: ast.expr, operand: int, operator: int, inverse: int) -> None:
        if isinstance(node, ast.UnaryOp):
            visit(node.operand, operand, operator, inverse)
        elif isinstance(node, ast.BinOp):
            between = range(node.left.end_col_offset or 0, node.right.col_offset)
            (at,) = (first + place for place in between if text[place] in "+-*/")
            labels["kind"][at] = 2
            own = OPERATORS.index(type(node.op))
            visit(node.left, 0, own, inverse)
            visit(node.right, 1, own, inverse ^ isinstance(node.op, ast.Sub | ast.Div))
        else:
            number = slice(first + node.col_offset, first + (node.end_col_offset or 0))
            around = text[: node.col_offset]
            labels["kind"][number] = 0
            labels["place"][number] = np.arange(number.stop - number.start)[::-1]
            labels["depth"][number] = around.count("(") - around.count(")")
            labels["operand"][number], labels["operator"][number] = operand, operator
            labels["inverse"][number] = inverse

    visit(tree, NONE, NONE, 0)
    labels["depth"][labels["kind"] == 1] = NONE
    return Syntax(**labels)
