"""Ahead-of-time compilation of the kernels for chips that are not present, and analysis of their loops."""
