"""Shapes of real models, and small awkward ones: one list for tests, benchmarks and tables of block sizes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """The sizes of one call.

    Attributes:
      name: for tables and test identifiers.
      batch: B.
      heads: H.
      queries: N.
      keys: M; pairs of keys are attended to, M * M of them.
      features: D, of queries and keys.
      value_features: E, or None for D.
      out_features: F, or None for D.
    """

    name: str
    batch: int
    heads: int
    queries: int
    keys: int
    features: int
    value_features: int | None = None
    out_features: int | None = None

    @property
    def e(self) -> int:
        """E: the value features."""
        return self.features if self.value_features is None else self.value_features

    @property
    def f(self) -> int:
        """F: the output features."""
        return self.features if self.out_features is None else self.out_features

    @property
    def triples(self) -> int:
        """How many logits there are."""
        return self.batch * self.heads * self.queries * self.keys * self.keys

    def __str__(self) -> str:
        return self.name


# The agents of Clift et al. (2020): one head of 48 features, 40 entities, 2 virtual ones.
AGENT = Shape("agent", batch=1280, heads=1, queries=40, keys=2, features=48)

# M = sqrt(N), the paper's choice for a cost of N^2.
VIRTUAL = Shape("virtual", batch=8, heads=8, queries=1024, keys=32, features=48)
VIRTUAL_64 = Shape("virtual-64", batch=8, heads=8, queries=1024, keys=32, features=64)

# M = N, every triple of entities.
FULL = Shape("full", batch=8, heads=8, queries=256, keys=256, features=64)

# The least and the greatest that kernels are written for.
CORNERS = (
    Shape("corner, M=8", batch=1, heads=1, queries=1, keys=8, features=1),
    Shape("corner, M=4096", batch=1, heads=1, queries=8, keys=4096, features=128),
)

# The same on two cores, in a second.
VIRTUAL_SMALL = Shape("virtual-small", batch=2, heads=4, queries=1024, keys=32, features=48)
FULL_SMALL = Shape("full-small", batch=2, heads=1, queries=256, keys=256, features=32)
FULL_128 = Shape("full-128", batch=2, heads=4, queries=128, keys=128, features=32)

ACCELERATOR = (AGENT, VIRTUAL, VIRTUAL_64, FULL)
CPU = (AGENT, VIRTUAL_SMALL, FULL_128, FULL_SMALL)

# For tests. Features are divisible by 3, which the signed logit needs; nothing is a multiple of a block.
TINY = Shape("tiny", batch=2, heads=2, queries=5, keys=3, features=6, value_features=4, out_features=7)
ONE = Shape("one", batch=1, heads=1, queries=1, keys=1, features=3, value_features=1, out_features=1)
ODD = Shape("odd", batch=1, heads=3, queries=37, keys=11, features=9, value_features=5, out_features=3)
WIDE = Shape("wide", batch=1, heads=1, queries=130, keys=18, features=48)
PAIR = Shape("pair", batch=6, heads=1, queries=40, keys=2, features=48)
DEEP = Shape("deep", batch=1, heads=1, queries=20, keys=35, features=12, value_features=8, out_features=10)

SMALL = (TINY, ONE, ODD, WIDE, PAIR, DEEP)
