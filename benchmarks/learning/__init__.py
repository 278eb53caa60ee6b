"""The claims about learning in `results/`: a module for each experiment, one program: `__main__.py`."""
