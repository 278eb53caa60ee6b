"""All programs: experiments with their configs, the shared runtime, and export."""

import logic_zoo.own_kernels  # noqa: F401 -- raises ImportError if another package has its place
