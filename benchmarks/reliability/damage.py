"""Ways in which a file comes to harm: cut short, bits flipped, parts lost, doubled or of another file."""

import random
import re
from collections.abc import Callable

_SEAMS = re.compile(rb"\n|PK\x01\x02|PK\x03\x04|PK\x05\x06|[{}\[\],\t]")


def seams(content: bytes) -> list[int]:
    """Places where something ends in a file: lines, JSON's parts, entries of a zip archive, a header."""
    found = {match.start() for match in _SEAMS.finditer(content)} | {
        match.end() for match in _SEAMS.finditer(content)
    }
    header = 8 + int.from_bytes(content[:8], "little")  # of safetensors
    found |= {1, 4, 8, header, len(content) - 1}
    return sorted(place for place in found if 0 < place < len(content))


def flip(content: bytes, draw: random.Random, bits: int = 1) -> bytes:
    """Some bits are wrong."""
    changed = bytearray(content)
    for place in draw.sample(range(8 * len(content)), min(bits, 8 * len(content))):
        changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def in_range(
    change: Callable[[bytes, bytes, bytes, random.Random], bytes],
) -> Callable[[bytes, random.Random], bytes]:
    """Changes a range, given the content before it, in it and behind it."""

    def changed(content: bytes, draw: random.Random) -> bytes:
        start = draw.randrange(len(content))
        end = min(len(content), start + draw.choice((1, 2, 4, 16, 100, 1000, 4096)))
        return change(content[:start], content[start:end], content[end:], draw)

    return changed


def cut_at_seam(content: bytes, draw: random.Random) -> bytes:
    """Ends where something ends, or a byte before or behind."""
    return content[: max(0, draw.choice(seams(content) or [0]) + draw.choice((-1, 0, 0, 1)))]


def number_changed(content: bytes, draw: random.Random) -> bytes:
    """A number that is written out is enormous, negative or a word."""
    numbers = list(re.finditer(rb"\d+", content))
    if not numbers:
        return flip(content, draw)
    found = draw.choice(numbers)
    new = draw.choice((b"-1", b"99999999999999999999", b"1000000000", b"1e999", b"null", b"0", b'"x"'))
    return content[: found.start()] + new + content[found.end() :]


KINDS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "cut": lambda content, draw: content[: draw.randrange(len(content))],
    "cut at a seam": cut_at_seam,
    "a bit flipped": flip,
    "bits flipped": lambda content, draw: flip(content, draw, draw.randint(2, 40)),
    # Where headers are, and directories.
    "a bit of the beginning flipped": lambda content, draw: flip(content[:100], draw) + content[100:],
    "a bit of the end flipped": lambda content, draw: content[:-200] + flip(content[-200:], draw),
    # As a block that was never written.
    "zeros in a range": in_range(lambda before, inside, behind, _: before + bytes(len(inside)) + behind),
    "noise in a range": in_range(
        lambda before, inside, behind, draw: before + draw.randbytes(len(inside)) + behind
    ),
    "a range lost": in_range(lambda before, inside, behind, _: before + behind),
    "a range doubled": in_range(lambda before, inside, behind, _: before + inside + inside + behind),
    "a number changed": number_changed,
    "empty": lambda content, draw: b"",
    "noise": lambda content, draw: draw.randbytes(len(content)),
    "longer": lambda content, draw: (
        content + draw.choice((b"\0" * 512, b"\n", b"{}", draw.randbytes(64), content))
    ),
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
