"""Named shapes: small awkward ones for tests, those of real models for benchmarks."""

import dataclasses
import math

from kernels.trilinear.reference import Config


@dataclasses.dataclass(frozen=True)
class Shape:
    """The sizes of one call."""

    name: str  # for tables and test identifiers
    batch: int  # B
    length: int  # N, of queries and keys alike
    heads: int  # H, of queries
    groups: int  # G, heads of keys and values
    features: int  # D
    window1: int | None = None  # of the first keys; None for the whole past
    window2: int | None = None  # of the second keys
    causal: bool = True  # whether the future is hidden

    @property
    def config(self) -> Config:
        """The static settings that go with it, with the paper's scale."""
        return Config(self.window1, self.window2, self.causal, 1 / math.sqrt(self.features))

    @property
    def query(self) -> tuple[int, int, int, int]:
        """Shape of the query and of the output."""
        return self.batch, self.length, self.heads, self.features

    @property
    def key(self) -> tuple[int, int, int, int]:
        """Shape of both keys and both values."""
        return self.batch, self.length, self.groups, self.features

    @property
    def triples(self) -> int:
        """How many logits there are, those that are masked not counted."""
        if not self.causal:
            return self.batch * self.heads * self.length**3
        window1, window2 = self.config.reach(self.length)
        pairs = sum(min(i + 1, window1) * min(i + 1, window2) for i in range(self.length))
        return self.batch * self.heads * pairs

    @property
    def operations(self) -> int:
        """Floating point operations of the forward products as FBGEMM counts them.

        4 D for each triple of full windows: those that the first queries lack are counted too.
        """
        window1, window2 = self.config.reach(self.length)
        return 4 * self.features * self.batch * self.heads * self.length * window1 * window2

    def __str__(self) -> str:
        return self.name


# Nothing is a multiple of a block; windows of one, wider than the sequence, in both orders; groups of one
# head and of more.
SMALL = (
    Shape("one position", 2, 1, 2, 1, 4, window1=1, window2=1),
    Shape("tiny, all pairs", 2, 5, 4, 2, 6, causal=False),
    Shape("tiny, all the past", 1, 7, 2, 2, 5),
    Shape("windows", 2, 37, 4, 2, 8, window1=3, window2=9),
    Shape("windows the other way", 1, 37, 3, 3, 8, window1=9, window2=3),
    Shape("itself and a window", 1, 20, 2, 1, 4, window1=1, window2=6),
    Shape("a window and all the past", 1, 33, 2, 1, 7, window1=4, window2=None),
    Shape("wider than the sequence", 1, 19, 2, 2, 3, window1=30, window2=100),
    Shape("many heads a group", 1, 18, 12, 1, 16, window1=4, window2=8),
    Shape("several tiles", 1, 150, 2, 1, 8, window1=5, window2=40),
    Shape("several tiles, all pairs", 1, 41, 1, 1, 4, causal=False),
)

# Roy et al. (2025): windows of 512 and 32, and 64 query heads a group. The sizes are those of FBGEMM's
# benchmark of the same kernel, so that rates can be compared.
FBGEMM = tuple(
    Shape(f"N={length} H={heads} w=32,{window2}", 4, length, heads, 1, 128, 32, window2)
    for length, heads, window2 in (
        (1024, 64, 512),
        (4096, 64, 256),
        (4096, 64, 512),
        (4096, 64, 1024),
        (4096, 128, 512),
    )
)
LONG = Shape("N=16384 H=64 w=32,512", 4, 16384, 64, 1, 128, 32, 512)
UNGROUPED = Shape("N=2048 H=G=16 w=32,256", 2, 2048, 16, 16, 64, 32, 256)
CORNER = Shape("corner, all pairs D=128", 1, 16384, 128, 1, 128, causal=False)
ACCELERATOR = (*FBGEMM, LONG, UNGROUPED)

# The same on two cores, in about a second.
CPU = (
    Shape("cpu, grouped", 1, 512, 8, 1, 64, 16, 128),
    Shape("cpu, ungrouped", 1, 512, 4, 4, 64, 32, 128),
    Shape("cpu, all the past", 1, 128, 4, 2, 32),
    Shape("cpu, all pairs", 1, 128, 4, 4, 32, causal=False),
)
