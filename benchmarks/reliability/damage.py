"""Ways in which a file comes to harm: cut short, bits flipped, parts lost, doubled or of another file."""

import random
import re
from collections.abc import Callable, Sequence

_SEAMS = re.compile(rb"\n|PK\x01\x02|PK\x03\x04|PK\x05\x06|[{}\[\],\t]")


def seams(content: bytes) -> list[int]:
    """Places where something ends in a file: lines, JSON's parts, entries of a zip archive, a header."""
    found = {match.start() for match in _SEAMS.finditer(content)} | {
        match.end() for match in _SEAMS.finditer(content)
    }
    header = 8 + int.from_bytes(content[:8], "little")  # of safetensors
    found |= {1, 4, 8, header, len(content) - 1}
    return sorted(place for place in found if 0 < place < len(content))


def cut(content: bytes, draw: random.Random) -> bytes:
    """Ends anywhere."""
    return content[: draw.randrange(len(content))]


def cut_at_seam(content: bytes, draw: random.Random) -> bytes:
    """Ends where something ends, or a byte before or behind."""
    places = seams(content) or [0]
    return content[: max(0, draw.choice(places) + draw.choice((-1, 0, 0, 1)))]


def flip(content: bytes, draw: random.Random, bits: int = 1) -> bytes:
    """Some bits are wrong."""
    changed = bytearray(content)
    for place in draw.sample(range(8 * len(content)), min(bits, 8 * len(content))):
        changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def flip_many(content: bytes, draw: random.Random) -> bytes:
    """Two to forty bits are wrong."""
    return flip(content, draw, draw.randint(2, 40))


def flip_early(content: bytes, draw: random.Random) -> bytes:
    """A bit of the first hundred bytes, where headers are, is wrong."""
    return flip(content[:100], draw) + content[100:]


def flip_late(content: bytes, draw: random.Random) -> bytes:
    """A bit of the last two hundred bytes, where directories are, is wrong."""
    return content[:-200] + flip(content[-200:], draw)


def _range(content: bytes, draw: random.Random) -> tuple[int, int]:
    start = draw.randrange(len(content))
    return start, min(len(content), start + draw.choice((1, 2, 4, 16, 100, 1000, 4096)))


def zeroed(content: bytes, draw: random.Random) -> bytes:
    """A range is zeros, as a block that was never written."""
    start, end = _range(content, draw)
    return content[:start] + bytes(end - start) + content[end:]


def noise(content: bytes, draw: random.Random) -> bytes:
    """A range is anything."""
    start, end = _range(content, draw)
    return content[:start] + draw.randbytes(end - start) + content[end:]


def lost(content: bytes, draw: random.Random) -> bytes:
    """A range is not there."""
    start, end = _range(content, draw)
    return content[:start] + content[end:]


def doubled(content: bytes, draw: random.Random) -> bytes:
    """A range is there twice."""
    start, end = _range(content, draw)
    return content[:end] + content[start:]


def number_changed(content: bytes, draw: random.Random) -> bytes:
    """A number that is written out is enormous, negative or a word."""
    numbers = list(re.finditer(rb"\d+", content))
    if not numbers:
        return flip(content, draw)
    found = draw.choice(numbers)
    new = draw.choice((b"-1", b"99999999999999999999", b"1000000000", b"1e999", b"null", b"0", b'"x"'))
    return content[: found.start()] + new + content[found.end() :]


def empty(content: bytes, draw: random.Random) -> bytes:
    """Nothing is left."""
    return b""


def only_noise(content: bytes, draw: random.Random) -> bytes:
    """As long as before, and anything."""
    return draw.randbytes(len(content))


def longer(content: bytes, draw: random.Random) -> bytes:
    """Something stands behind the end."""
    return content + draw.choice((b"\0" * 512, b"\n", b"{}", draw.randbytes(64), content))


KINDS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "cut": cut,
    "cut at a seam": cut_at_seam,
    "a bit flipped": flip,
    "bits flipped": flip_many,
    "a bit of the beginning flipped": flip_early,
    "a bit of the end flipped": flip_late,
    "zeros in a range": zeroed,
    "noise in a range": noise,
    "a range lost": lost,
    "a range doubled": doubled,
    "a number changed": number_changed,
    "empty": empty,
    "noise": only_noise,
    "longer": longer,
}
SWAPPED, PLANTED, GONE = "another file", "planted", "gone"
OFTEN = (*KINDS, "cut", "cut at a seam", "a bit flipped", "a bit flipped", "bits flipped", "a number changed")
"""Kinds in the turn in which they are taken; some more often."""


def chosen(number: int) -> str:
    """The kind of a reader's case: of every 24 one is a file swapped, one planted, one gone."""
    turn = (*OFTEN, SWAPPED, PLANTED, GONE)
    return turn[number % len(turn)]


def damaged(content: bytes, kind: str, draw: random.Random) -> bytes:
    """The content with that damage; another content whenever it can be."""
    for _ in range(20):
        if (found := KINDS[kind](content, draw)) != content:
            return found
    return content + b"\0"


def picked[Item](items: Sequence[Item], draw: random.Random) -> Item:
    """One of some."""
    return items[draw.randrange(len(items))]
