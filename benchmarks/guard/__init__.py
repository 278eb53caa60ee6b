"""Compares the speed of this tree with that of an earlier commit; see `benchmarks.guard.__main__`."""
