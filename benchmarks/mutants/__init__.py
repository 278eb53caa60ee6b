"""Mutation testing: changes one thing at a time in the code and runs the tests of its area.

A tool of our own, because none of those for Python has operators for arrays (axes, einsum, masks, random
keys), tests by area, a seeded draw and resumption together: mutmut replaces functions by trampolines, which
break `jax.jit`'s static arguments and flax modules; cosmic-ray edits the tree in place and runs one command
for all tests; mutatest (no release since 2022) and poodle neither resume nor select tests.

`source` is a file with its spans; `arithmetic`, `arrays` and `statements` have the operators; `sites` finds
mutants and draws them; `areas` chooses tests; `trials` runs them; `records` keeps the outcomes.
"""
