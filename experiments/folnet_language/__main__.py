"""Trains a FOLNet that writes text: `python -m experiments.folnet_language --data=FOLDER --workdir=DIR`."""

from experiments import runtime
from experiments.folnet_language import EXPERIMENT

if __name__ == "__main__":
    runtime.launch(EXPERIMENT)
