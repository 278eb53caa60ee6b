"""Questions of one small expression: sums and differences of three numbers, with and without brackets.

    What is 17 - (4 + 11)?

The dataset's arithmetic has at least four operands, also at its easiest level. Small models that trained on
it for 3,000 updates answered 1 % and had learned no roles that could be read.
"""

import random

from experiments.mathematics.drawn import Drawn
from tp_transformer import mathematics

LARGEST = 20
FORMS = {"flat": "{} {} {} {} {}", "left": "({} {} {}) {} {}", "right": "{} {} ({} {} {})"}
"""By module: the places of brackets."""


class Expressions(Drawn):
    """A source of expressions of numbers from 0 to `LARGEST`; the modules are the `FORMS`."""

    def modules(self, split: mathematics.Split) -> tuple[str, ...]:
        """Returns the names of the forms, none of which is held out."""
        return () if split == mathematics.EXTRAPOLATE else tuple(FORMS)

    def draw(self, module: str, rng: random.Random) -> mathematics.Question:
        """Draws a question of a form and its answer."""
        a, b, c = (rng.randint(0, LARGEST) for _ in range(3))
        first, second = rng.choice("+-"), rng.choice("+-")
        text = FORMS[module].format(a, first, b, second, c)
        one, two = (-1 if operator == "-" else 1 for operator in (first, second))
        inner = one if module == "right" else 1  # in a - (b + c) the first sign counts for c, too
        value = a + one * b + inner * two * c
        return mathematics.Question(f"What is {text}?", str(value))
