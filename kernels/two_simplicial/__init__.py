"""2-simplicial attention: its definition, a blockwise path that runs anywhere, kernels for GPUs and TPUs."""
