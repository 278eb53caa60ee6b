"""One file an experiment: its config dataclass and its presets."""
