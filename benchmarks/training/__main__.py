"""Measures training steps of whole models: throughput, utilization of the chip, and memory.

    python -m benchmarks.training --only=kinship
    python -m benchmarks.training --only=boxworld --cases=bfloat16 --out=
    JAX_NUM_CPU_DEVICES=2 python -m benchmarks.training --only=boxworld

The modules of `benchmarks/training/` define the cases of each experiment. Most are meant for an accelerator;
on a CPU a step of the paper's size takes minutes. Utilization is the time that the contractions of a step,
forward and backward, would take at the measured rate of large matrix products of the same dtype, divided by
the time of the step; work added by rematerialization is not counted. Peak memory is the compiler's estimate.
Rows are written as they are measured; cases that fail or exceed the budget have a row that says so.
"""

import jax
from absl import flags

from benchmarks import accelerator_summary, launching, steps, training
from experiments.runtime import memory


def main() -> None:
    """Runs the program with the values of its flags."""
    memory.keep_large_blocks()  # as runs do
    values, cores = flags.FLAGS, jax.config.jax_num_cpu_devices
    setting = f"JAX_NUM_CPU_DEVICES={cores} " if cores > 0 else ""
    for name, room in launching.chosen(training, values.only).items():
        cases = {case: found for case, found in room.cases().items() if values.cases in case}
        sizes = {"matrix": values.matrix, "seconds": values.seconds, "budget": values.budget}
        launching.record(
            steps.rows(cases, room.measure, **sizes),
            accelerator_summary.training,
            values.out.format(room.folder),
            f"{setting}python -m benchmarks.training --only={name}",
        )


if __name__ == "__main__":
    flags.DEFINE_list("only", [], "comma-separated experiments (default: all)")
    flags.DEFINE_string("cases", "", "only cases whose name contains this")
    flags.DEFINE_string(
        "out", "results/{}/training_speed.json", "output file, with {} for the folder; empty to write none"
    )
    flags.DEFINE_integer("matrix", 0, "size of the matrices that give the rate; 0: by platform")
    flags.DEFINE_float("seconds", 0.5, "approximate seconds per timing block", lower_bound=0)
    flags.DEFINE_float(
        "budget", 0.0, "seconds after which no further case is started; 0: no limit", lower_bound=0
    )
    launching.run(main)
