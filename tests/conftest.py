"""What every test has: strict JAX (no silent rank promotion), a fixed platform, figures without a screen."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")

import jax

jax.config.update("jax_numpy_rank_promotion", "raise")
