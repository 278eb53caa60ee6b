"""Trains on the Mathematics Dataset: `python -m experiments.mathematics --config=quick --workdir=DIR`."""

from experiments import runtime
from experiments.mathematics import EXPERIMENT

if __name__ == "__main__":
    runtime.launch(EXPERIMENT)
