"""Pictures of BoxWorld for people: enlarged (the authors show 10x, 30 frames per second) or as text.

Axis letters: R rows, C columns of a picture, Y, X rows and columns of pixels; leading axes *B are kept.
"""

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, UInt8

from simplicial import checks

SCALE, FRAMES_PER_SECOND = 10, 30
"""Scale and frame rate of the authors' clips."""


def enlarge(pictures: UInt8[ArrayLike, "*B R C 3"], scale: int = SCALE) -> UInt8[Array, "*B Y X 3"]:
    """Enlarges pictures from `observe`, drawing every tile as a square of `scale` pixels; works under `jit`.

    Raises:
        ValueError: `scale` is not a positive integer, or `pictures` has the wrong shape.
    """
    checks.whole_number("scale", scale)
    if jnp.ndim(pictures) < 3 or jnp.shape(pictures)[-1] != 3:
        raise ValueError(f"pictures: got shape {jnp.shape(pictures)}, expected [..., rows, cols, 3]")
    pictures = jnp.asarray(pictures)
    return jnp.repeat(jnp.repeat(pictures, scale, axis=-3), scale, axis=-2)


def to_text(picture: UInt8[ArrayLike, "R C 3"]) -> str:
    """Renders one picture as lines of coloured blanks for a terminal with 24-bit colours.

    Raises:
        ValueError: `picture` has the wrong shape.
    """
    pixels = np.asarray(picture)
    if pixels.ndim != 3 or pixels.shape[-1] != 3:
        raise ValueError(f"picture: got shape {pixels.shape}, expected [rows, cols, 3]")
    rows = ("".join(f"\x1b[48;2;{r};{g};{b}m  " for r, g, b in row) for row in pixels.tolist())
    return "".join(f"{row}\x1b[0m\n" for row in rows)
