"""Benchmarks of training steps of whole models, one module per experiment; run by `__main__.py`."""
