"""Compares the speed of this library with others in one run: `python -m benchmarks.peers`.

`comparing.py` defines, checks and times comparisons; `subjects.py` lists the computations to compare;
`libraries.py` finds the installed libraries. Each library has a module: `torch_programs.py` (with plain
versions of the architectures in the other `torch_*.py` files), `lucidrains.py`, `tokamax_ops.py` and
`cuequivariance_ops.py`. These import the libraries they are named after, so only `libraries.py` imports them.
`plain_python.py` measures BoxWorld; `table.py` writes the page of results.
"""
