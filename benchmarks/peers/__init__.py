"""Other libraries doing the same work, side by side with ours in one run: `python -m benchmarks.peers`.

`comparing.py` says what a comparison is, and checks, times and relates; `subjects.py` is what of ours is
compared; `libraries.py` finds which peers are here. Each library's side is a module: `torch_programs.py`
(with the `torch_*.py` beside it, the same architectures written plainly), `lucidrains.py`, `tokamax_ops.py`
and `cuequivariance_ops.py`. They import what they are named after, so only `libraries.py` imports them.
`plain_python.py` is BoxWorld; `table.py` draws the record.
"""
