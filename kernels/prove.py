"""Proves the hand-written kernels on this machine's chip, so that calls take them by default.

    python -m kernels.prove                                          # the calls of the papers' models
    python -m kernels.prove "trans(bfloat16[8,12,512,512], bfloat16[8,12,512,512], causal=True)"

A call is an operation with dtypes, shapes and settings. `kernels.prove(function, *args)` does the same for
all calls that a program makes, and says what is checked and where the outcome is kept.
"""

import argparse
import sys
from pathlib import Path

from kernels import chips, proofs, proving


def main(argv: list[str] | None = None) -> int:
    """Prints a line for each call; the exit status is 1 if a kernel failed."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("calls", nargs="*", help="calls to prove; those of the papers' models by default")
    flags.add_argument("--seconds", type=float, default=proving.SECONDS, help="how long a proof may last")
    flags.add_argument("--again", action="store_true", help="prove also what has been proven")
    flags.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = flags.parse_args(argv)
    if given.worker is not None:
        proving.work(given.worker)
        return 0
    chip = chips.at_hand()
    if chip.backend is None:
        print(f"{chip.kind}: there are no hand-written kernels for it; calls take xla")
        return 0
    found: list[proofs.Proof] = []
    for call in given.calls or proving.MODELS:
        try:
            own = proving.prove(call, seconds=given.seconds, again=given.again)
        except ValueError as error:
            flags.error(str(error))
        found += own
        for proof in own:
            print(proving.describe(proof), flush=True)
        if not own:
            print(f"{call}: the chip's kernel does not support it; it takes xla", flush=True)
    print(f"kept in {proofs.path(chip.kind)}")
    return int(any(proof.state != "passed" for proof in found))


if __name__ == "__main__":
    sys.exit(main())
