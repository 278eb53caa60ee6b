"""Arrays whose numbers do not lie in C order, which safetensors would write as they lie."""

import numpy as np

LAYOUTS = {
    "Fortran": np.asfortranarray,
    "strided": lambda array: np.repeat(array, 2, -1)[..., ::2],
    "reversed": lambda array: np.flip(np.flip(array).copy()),
    "broadcast": lambda array: np.broadcast_to(array[..., :1], array.shape),  # other numbers
}
"""Functions of an array with at least one axis."""
