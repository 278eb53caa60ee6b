"""Trains a byte-level language model: `python -m experiments.reasoning --config=quick --workdir=DIR`."""

from experiments import runtime
from experiments.reasoning import EXPERIMENT

if __name__ == "__main__":
    runtime.launch(EXPERIMENT)
