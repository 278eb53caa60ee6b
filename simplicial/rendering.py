"""Pictures of BoxWorld for people: enlarged (the authors show 10x, 30 frames a second) or as text.

Axes: R rows, C columns of the board, S the scale; leading axes (environments, time) are kept.
"""

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, UInt8

from simplicial import checks

SCALE, FRAMES_PER_SECOND = 10, 30
"""What the authors' clips have."""


def enlarge(pictures: ArrayLike, scale: int = SCALE) -> UInt8[Array, "... S*R S*(C+1) 3"]:
    """Pictures [..., R, C+1, 3], as `observe` gives them, every tile a square of `scale` pixels; for `jit`.

    Raises:
        ValueError: `scale` is not a positive whole number, or `pictures` are none.
    """
    checks.whole_number("scale", scale)
    if jnp.ndim(pictures) < 3 or jnp.shape(pictures)[-1] != 3:
        raise ValueError(f"pictures must have shape [..., rows, cols, 3], not {jnp.shape(pictures)}")
    pictures = jnp.asarray(pictures)
    return jnp.repeat(jnp.repeat(pictures, scale, axis=-3), scale, axis=-2)


def to_text(picture: ArrayLike) -> str:
    """One picture [R, C+1, 3] as lines of coloured blanks for a terminal with 24-bit colours.

    Raises:
        ValueError: `picture` has another shape.
    """
    pixels = np.asarray(picture)
    if pixels.ndim != 3 or pixels.shape[-1] != 3:
        raise ValueError(f"picture must have shape [rows, cols, 3], not {pixels.shape}")
    rows = ("".join(f"\x1b[48;2;{r};{g};{b}m  " for r, g, b in row) for row in pixels.tolist())
    return "".join(f"{row}\x1b[0m\n" for row in rows)
