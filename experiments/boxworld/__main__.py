"""Trains agents on BoxWorld: `python -m experiments.boxworld --config=quick --workdir=DIR`."""

from experiments import runtime
from experiments.boxworld import EXPERIMENT

if __name__ == "__main__":
    runtime.launch(EXPERIMENT)
