"""Prints answers decoded with a batch spread over all available devices.

Started by test_decoding.py in a separate process, because the number of devices is fixed when JAX starts.
"""

import json

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from tests.tp_transformer.small import build, draw, tokens
from tp_transformer import TPTransformer, decoding

BATCH, LENGTH = 8, 6


def main():
    """Decodes and prints one line of JSON."""
    jax.config.update("jax_numpy_rank_promotion", "raise")
    model = build(TPTransformer)
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    params = jax.device_put(draw(model), NamedSharding(mesh, PartitionSpec()))
    source = jax.device_put(tokens(BATCH, 5), NamedSharding(mesh, PartitionSpec("data")))
    options = {"max_length": LENGTH, "start": 1, "end": 2}
    greedy = decoding.greedy_decode(model, params, source, **options)
    found = decoding.beam_search(model, params, source, beams=3, **options)
    print(
        json.dumps(
            {
                "devices": jax.device_count(),
                "greedy": np.asarray(greedy).tolist(),
                "beams": np.asarray(found.tokens).tolist(),
                "scores": np.asarray(found.scores).tolist(),
            }
        )
    )


if __name__ == "__main__":
    main()
