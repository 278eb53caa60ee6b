"""Trains on kinship problems: `python -m experiments.kinship --config=quick --workdir=DIR`."""

from experiments import runtime
from experiments.kinship import EXPERIMENT

if __name__ == "__main__":
    runtime.launch(EXPERIMENT)
