"""Questions of one small expression: sums and differences of three numbers, with and without brackets.

    What is 17 - (4 + 11)?

The dataset's arithmetic has at least four operands, also at its easiest level. Small models that trained on
it for 3,000 updates answered 1 % and had learned no roles that could be read.

Numbers are 0 to 99, so that a digit's symbol hardly gives its place. The best rule that sees the symbol alone
is "0 is in the ones place, any other digit in the tens place", since each of 1 to 9 occurs as often in either
place and no number begins with 0. Its accuracy averaged over both places is (1/10 + 1) / 2 = .55.
"""

import random

from experiments.mathematics.drawn import Drawn
from tp_transformer import mathematics

LARGEST = 99
MODULES = ("flat", "left", "right")
"""Without brackets, and with brackets around the first or the last two numbers."""

type Tree = int | tuple[Tree, str, Tree]
"""A number, or the operands of + or - with the operator between them."""


def draw_tree(module: str, rng: random.Random) -> Tree:
    """Draws the expression of a question."""
    a, b, c = (rng.randint(0, LARGEST) for _ in range(3))
    first, second = rng.choice("+-"), rng.choice("+-")
    return (a, first, (b, second, c)) if module == "right" else ((a, first, b), second, c)


def value(tree: Tree) -> int:
    """Returns the value of an expression."""
    if isinstance(tree, int):
        return tree
    left, operator, right = tree
    return value(left) + (value(right) if operator == "+" else -value(right))


def text(tree: Tree, bracketed: bool) -> str:
    """Writes an expression, with its operands in brackets or not; those on the right need brackets."""
    if isinstance(tree, int):
        return str(tree)
    parts = [part if isinstance(part, str) else text(part, bracketed) for part in tree]
    shown = (
        f"({part})" if bracketed and isinstance(of, tuple) else part
        for part, of in zip(parts, tree, strict=True)
    )
    return " ".join(shown)


class Expressions(Drawn):
    """A source of expressions of numbers from 0 to `LARGEST`, of the forms in `MODULES`."""

    def modules(self, split: mathematics.Split) -> tuple[str, ...]:
        """Returns the names of the forms, none of which is held out."""
        return () if split == mathematics.EXTRAPOLATE else MODULES

    def draw(self, module: str, rng: random.Random) -> mathematics.Question:
        """Draws a question of a form and its answer."""
        tree = draw_tree(module, rng)
        return mathematics.Question(f"What is {text(tree, module != 'flat')}?", str(value(tree)))
