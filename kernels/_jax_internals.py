"""Everything this repository takes from `jax._src`. No other file may import from there.

JAX promises nothing about `jax._src`, so `tests/kernels/test_jax_internals.py` checks each function here and
says what to look for in JAX when one breaks.
"""

from contextlib import AbstractContextManager

from jax._src import config


def without_manual_axis_checks() -> AbstractContextManager[None]:
    """Returns a context in which traced operations may mix values that vary over different manual axes.

    Inside `jax.shard_map` JAX checks this for every operation (`check_vma=True`). The program of one device,
    lowered on its own, has to be traced without the check, as `pallas_call` does for its kernels' bodies.
    """
    return config._check_vma(False)
