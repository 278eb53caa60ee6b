"""Parts of `benchmarks.soak` and `benchmarks.fuzz`: small runs to kill, readers, and damage to files."""
