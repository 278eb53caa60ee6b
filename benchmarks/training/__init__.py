"""Training steps of whole models: a module for each experiment, one program: `__main__.py`."""
