"""Array functions with hand-written kernels; knows no model. Each operation has a folder of its own."""
