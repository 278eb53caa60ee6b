"""Whole training steps of all four papers, ours and PyTorch's: `python -m benchmarks.peers.training`."""
