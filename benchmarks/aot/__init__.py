"""Kernels compiled to machine code for chips that are not there, and what their inner loops look like."""
