"""Trains a linear logic RNN: `python -m experiments.llrnn --config=quick --workdir=DIR`."""

from experiments import runtime
from experiments.llrnn import EXPERIMENT

if __name__ == "__main__":
    runtime.launch(EXPERIMENT)
