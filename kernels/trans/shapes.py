"""Named shapes: small ones for tests, those of real models for benchmarks."""

import dataclasses

from kernels.trans.reference import Config


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of one call. `rows` differs from `columns` only where rows are sharded."""

    name: str
    batch: int
    heads: int
    rows: int
    columns: int
    outputs: int
    causal: bool = False
    row_offset: int = 0

    @property
    def config(self) -> Config:
        """The static settings that go with it."""
        return Config(self.causal, self.row_offset)

    @property
    def kernel_logits(self) -> tuple[int, int, int, int]:
        """Shape of the kernel."""
        return self.batch, self.heads, self.rows, self.columns

    @property
    def premise(self) -> tuple[int, int, int, int]:
        """Shape of the premise."""
        return self.batch, self.heads, self.columns, self.outputs

    @property
    def multiply_adds(self) -> int:
        """Of the forward product, masked ones counted."""
        return self.batch * self.heads * self.rows * self.columns * self.outputs


def square(name: str, batch: int, heads: int, tokens: int, *, causal: bool = False) -> Shape:
    """A shape as models have it: every size is the number of tokens."""
    return Shape(name, batch, heads, tokens, tokens, tokens, causal)


# Sizes that divide no block, sizes of one, and rows that are a shard of a longer sequence.
SMALL = (
    square("one token", 2, 3, 1),
    square("odd", 2, 2, 13),
    square("odd, causal", 2, 2, 13, causal=True),
    square("two tiles and a bit, causal", 1, 2, 33, causal=True),
    Shape("rectangular", 1, 2, rows=5, columns=18, outputs=11),
    Shape("second shard of rows, causal", 1, 2, rows=9, columns=18, outputs=10, causal=True, row_offset=9),
    Shape(
        "rows before the first column, causal", 1, 1, rows=8, columns=6, outputs=7, causal=True, row_offset=-3
    ),
)

# The longest kernel, for a single column.
CORNER = Shape("corner, 8192 x 1", 1, 1, rows=8192, columns=8192, outputs=1)

# Chen (2023), Table 8: 64 binary features and 128 tokens in pre-training; Section 4.3: 384 (SQuAD) and 512
# (FOLIO) tokens in fine-tuning. 12 heads are those of the unary branch of the base model.
REAL = (
    square("pre-training", 8, 64, 128),
    square("pre-training, few heads", 32, 12, 128),
    square("SQuAD", 8, 64, 384),
    square("FOLIO", 8, 64, 512),
    square("FOLIO, few heads", 8, 12, 512),
    square("decoder", 8, 64, 128, causal=True),
    square("decoder, long", 8, 12, 512, causal=True),
)
