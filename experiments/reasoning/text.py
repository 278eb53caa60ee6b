"""Bytes of the language reference that comes with Python, and windows of them.

Paragraphs that several topics repeat are in one of them only (`folnet.pretraining.python`). The third of each
ten topics is held out, a tenth of the text, so that no held-out text is also learned.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from folnet.pretraining.python import language_reference

BYTES = 256


@functools.cache
def parts() -> tuple[np.ndarray, np.ndarray]:
    """Returns the bytes to learn and the held-out ones, uint8 [n].

    Raises:
        ValueError: this Python does not include the text.
    """
    texts = [f"{document.text}\n".encode() for document in language_reference()]
    learned = b"".join(text for n, text in enumerate(texts) if n % 10 != 2)
    return np.frombuffer(learned, np.uint8), np.frombuffer(b"".join(texts[2::10]), np.uint8)


def draw(key: PRNGKeyArray, text: np.ndarray, count: int, length: int) -> Int[Array, "B N+1"]:
    """Draws windows of `length` + 1 bytes, each place of the text with equal probability."""
    starts = jax.random.randint(key, (count, 1), 0, len(text) - length)
    return jnp.asarray(text)[starts + jnp.arange(length + 1)[None]].astype(jnp.int32)


def windows(text: np.ndarray, length: int) -> np.ndarray:
    """Cuts a text into windows [n, length + 1], each of which begins with the last byte of the one before.

    Every byte but the first, and what is left at the end, is predicted once.
    """
    count = (len(text) - 1) // length
    places = length * np.arange(count)[:, None] + np.arange(length + 1)
    return text[places].astype(np.int32)
