"""What `benchmarks.soak` and `benchmarks.fuzz` are made of: small runs to kill, readers, damage to files."""
