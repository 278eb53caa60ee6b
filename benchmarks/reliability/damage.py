"""Ways to damage a file: truncate it, flip bits, lose or double parts, replace it by another file."""

import random
import re
from collections.abc import Callable

_SEAMS = re.compile(rb"\n|PK\x01\x02|PK\x03\x04|PK\x05\x06|[{}\[\],\t]")


def seams(content: bytes) -> list[int]:
    """Returns the offsets of boundaries in a file: of lines, JSON values, zip entries and headers."""
    found = {match.start() for match in _SEAMS.finditer(content)} | {
        match.end() for match in _SEAMS.finditer(content)
    }
    header = 8 + int.from_bytes(content[:8], "little")  # of safetensors
    found |= {1, 4, 8, header, len(content) - 1}
    return sorted(place for place in found if 0 < place < len(content))


def flip(content: bytes, draw: random.Random, bits: int = 1) -> bytes:
    """Flips `bits` random bits."""
    changed = bytearray(content)
    for place in draw.sample(range(8 * len(content)), min(bits, 8 * len(content))):
        changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def in_range(
    change: Callable[[bytes, bytes, bytes, random.Random], bytes],
) -> Callable[[bytes, random.Random], bytes]:
    """Returns a damage to a random range; `change` gets the content before, in and after the range."""

    def changed(content: bytes, draw: random.Random) -> bytes:
        start = draw.randrange(len(content))
        end = min(len(content), start + draw.choice((1, 2, 4, 16, 100, 1000, 4096)))
        return change(content[:start], content[start:end], content[end:], draw)

    return changed


def cut_at_seam(content: bytes, draw: random.Random) -> bytes:
    """Truncates the content at a boundary, or one byte before or after it."""
    return content[: max(0, draw.choice(seams(content) or [0]) + draw.choice((-1, 0, 0, 1)))]


def number_changed(content: bytes, draw: random.Random) -> bytes:
    """Replaces a number in the text by an enormous one, a negative one or a word."""
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
    # These hit headers and directories.
    "a bit of the beginning flipped": lambda content, draw: flip(content[:100], draw) + content[100:],
    "a bit of the end flipped": lambda content, draw: content[:-200] + flip(content[-200:], draw),
    # This imitates a block that was never written.
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
"""The order of the kinds; some occur more often."""


def chosen(number: int) -> str:
    """Returns the kind of damage for a case; of every 24 cases, one each is swapped, planted and gone."""
    turn = (*OFTEN, SWAPPED, PLANTED, GONE)
    return turn[number % len(turn)]


def damaged(content: bytes, kind: str, draw: random.Random) -> bytes:
    """Returns the content with this kind of damage; it always differs from the original."""
    for _ in range(20):
        if (found := KINDS[kind](content, draw)) != content:
            return found
    return content + b"\0"
