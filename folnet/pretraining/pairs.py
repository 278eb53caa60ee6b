"""What an example is made of: one segment, or two and the question whether they belong together.

| objective | the two segments | label 0 | label 1 |
|---|---|---|---|
| `sop` | two halves of a window (Lan et al. 2019) | in order | swapped |
| `nsp` | a window cut in two (Devlin et al. 2018) | as it was | the second is from another document |
| `pair` | a window cut in two | never asked: the label is -1 | |
| `single` | a window in one segment | never asked | |

BERT makes its pairs once, and puts what another document's text replaced back for the next example. Here
pairs are drawn when they are used: what was replaced in one epoch is seen in another, and the two kinds of
pairs have the same lengths, so that the amount of padding does not tell them apart.
"""

import numpy as np

from folnet.pretraining.windows import Window, Windows

OBJECTIVES = ("sop", "nsp", "pair", "single")

CUTS = ("middle", "sentence")
"""Where a window is cut in two.

- `middle`: near its middle, in a sentence or not, as FOLNet's released loader does;
- `sentence`: where a sentence begins, drawn evenly, as in BERT and ALBERT; near the middle if none does.
"""

NO_LABEL = -1

_SPREAD = 0.2  # of the geometric distribution, as released
SWAPPED = 0.5
"""Chance of label 1."""


def cut_in_the_middle(tokens: int, rng: np.random.Generator) -> int:
    """The released cut: n // 2 - 1 tokens, and a number from Geometric(0.2) more or less, each with p = 0.5.

    The release lets a half be empty; here both have a token (of 125 tokens that is a difference in one case
    of a million): 1 to n - 1 tokens are before the cut.
    """
    shift = int(rng.geometric(_SPREAD))
    if rng.random() < 0.5:
        shift = -shift
    return min(max(tokens // 2 - 1 + shift, 1), tokens - 1)


def cut(window: Window, where: str, rng: np.random.Generator) -> int:
    """Tokens before the cut; see `CUTS`."""
    if where == "sentence":
        inside = window.starts[window.starts > 0]
        if len(inside):
            return int(inside[rng.integers(len(inside))])
    return cut_in_the_middle(len(window.tokens), rng)


def another_document(index: int, window: Window, number: int, rng: np.random.Generator) -> int:
    """One of the windows of other documents than that of the window at `index`, each as likely."""
    first = index - window.place
    drawn = int(rng.integers(number - window.count))
    return drawn + window.count if drawn >= first else drawn


def segment_of(tokens: np.ndarray, starts: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Tokens from the beginning of a sentence on, as many as are asked for if there are so many.

    So a second segment from elsewhere is as long as the one it stands for, and its length gives nothing away.
    """
    enough = starts[starts + size <= len(tokens)]
    start = int(enough[rng.integers(len(enough))]) if len(enough) else max(0, len(tokens) - size)
    return tokens[start : start + size]


def check_objective(objective: str, where: str, windows: Windows) -> None:
    """Raises ValueError, with what was expected, unless windows have what an objective needs."""
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}, got {objective!r}")
    if where not in CUTS:
        raise ValueError(f"cut must be one of {', '.join(CUTS)}, got {where!r}")
    if objective != "nsp":
        return
    if windows.packing != "document":
        raise ValueError(
            f"objective 'nsp' needs windows with packing='document', got {windows.packing!r}: with whole "
            "sentences lengths would tell what follows, and windows across documents have no other document"
        )
    if len(windows) and windows.take([0])[0].count == len(windows):
        raise ValueError("objective 'nsp' needs windows of at least two documents, got those of one")
