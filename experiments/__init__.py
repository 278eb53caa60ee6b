"""Everything that runs: absl programs, their configs, and the runtime they share."""
