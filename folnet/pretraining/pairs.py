"""The segments of an example: one, or two with the question whether they belong together.

| objective | segments | label 0 | label 1 |
|---|---|---|---|
| `sop` | two halves of a window (Lan et al. 2019) | in order | swapped |
| `nsp` | a window split in two (Devlin et al. 2018) | original | the second is from another document |
| `pair` | a window split in two | no task: the label is -1 | |
| `single` | a window as one segment | no task: the label is -1 | |

BERT prepares its pairs once, and keeps text replaced by that of another document for the next example. Here
pairs are drawn when they are used: what is replaced in one epoch appears in another. Both kinds of pairs have
the same lengths, so the amount of padding does not reveal the label.
"""

from typing import Literal, get_args

import numpy as np

from folnet.pretraining.windows import Window, Windows

Objective = Literal["sop", "nsp", "pair", "single"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)

Cut = Literal["middle", "sentence"]
"""Where a window is split in two.

- `middle`: near the middle, possibly within a sentence, as in FOLNet's released loader;
- `sentence`: at a uniformly drawn start of a sentence, as in BERT and ALBERT; near the middle without any.
"""

CUTS: tuple[Cut, ...] = get_args(Cut)

NO_LABEL = -1
"""Label of objectives without a task on the segments."""

_SPREAD = 0.2  # parameter of the geometric distribution, as released
SWAPPED = 0.5
"""Probability of label 1."""


def cut_in_the_middle(tokens: int, rng: np.random.Generator) -> int:
    """Draws the released cut: n // 2 - 1 tokens, plus or minus (p = 0.5 each) a number from Geometric(0.2).

    The released code may leave a half empty; here both have at least one token, so the cut is 1 to n - 1.
    (For 125 tokens this makes a difference in one of a million cases.)
    """
    shift = int(rng.geometric(_SPREAD))
    if rng.random() < 0.5:
        shift = -shift
    return min(max(tokens // 2 - 1 + shift, 1), tokens - 1)


def cut(window: Window, where: Cut, rng: np.random.Generator) -> int:
    """Returns the number of tokens before the cut; see `Cut`."""
    if where == "sentence":
        inside = window.starts[window.starts > 0]
        if len(inside):
            return int(inside[rng.integers(len(inside))])
    return cut_in_the_middle(len(window.tokens), rng)


def another_document(index: int, window: Window, number: int, rng: np.random.Generator) -> int:
    """Draws a window uniformly from the documents other than that of the window at `index`."""
    first = index - window.place
    drawn = int(rng.integers(number - window.count))
    return drawn + window.count if drawn >= first else drawn


def segment_of(tokens: np.ndarray, starts: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Returns `size` tokens (or fewer, if there are not enough) from the start of a sentence on.

    A second segment from another document is thus as long as the original, and its length reveals nothing.
    """
    enough = starts[starts + size <= len(tokens)]
    start = int(enough[rng.integers(len(enough))]) if len(enough) else max(0, len(tokens) - size)
    return tokens[start : start + size]


def check_objective(objective: str, where: str, windows: Windows) -> None:
    """Raises ValueError unless the windows have what an objective needs."""
    if objective not in OBJECTIVES:
        raise ValueError(f"objective: got {objective!r}, expected one of {', '.join(map(repr, OBJECTIVES))}")
    if where not in CUTS:
        raise ValueError(f"cut: got {where!r}, expected one of {', '.join(map(repr, CUTS))}")
    if objective != "nsp":
        return
    if windows.packing != "document":
        raise ValueError(
            f"windows: got packing {windows.packing!r}, expected 'document' for objective 'nsp' (with whole "
            "sentences lengths would reveal the label; windows across documents have no other document)"
        )
    if len(windows) and windows.take([0])[0].count == len(windows):
        raise ValueError("windows: got those of one document, expected at least two for objective 'nsp'")
