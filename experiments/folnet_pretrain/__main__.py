"""Pretrains FOLNet: `python -m experiments.folnet_pretrain --config=quick --workdir=DIR`."""

from experiments import runtime
from experiments.folnet_pretrain import EXPERIMENT

if __name__ == "__main__":
    runtime.launch(EXPERIMENT)
