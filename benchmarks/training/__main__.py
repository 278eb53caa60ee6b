"""Training steps of whole models: what they go through in a second, how much of the chip they use, memory.

    python -m benchmarks.training --only=kinship
    python -m benchmarks.training --only=boxworld --cases=bfloat16 --out=

The modules of `benchmarks/training/` say what is measured of each experiment; most are for an accelerator,
where a step of the paper's size takes less than minutes. Utilisation is what the contractions of a step,
forward and backward, would take at the measured rate of large matrix products of the same type, over what the
step takes; what rematerialisation adds is not counted. The peak of memory is the compiler's. Rows are written
as they are found; a case that fails or that the budget leaves out is a row that says so.
"""

from absl import flags

from benchmarks import accelerator_summary, launching, steps, training


def main() -> None:
    """The program."""
    values = flags.FLAGS
    for name, room in launching.chosen(training, values.only).items():
        cases = {case: found for case, found in room.cases().items() if values.cases in case}
        sizes = {"matrix": values.matrix, "seconds": values.seconds, "budget": values.budget}
        launching.record(
            steps.rows(cases, room.measure, **sizes),
            accelerator_summary.training,
            values.out.format(room.folder),
            f"python -m benchmarks.training --only={name}",
        )


if __name__ == "__main__":
    flags.DEFINE_list("only", [], "experiments; all by default")
    flags.DEFINE_string("cases", "", "only cases whose name has this in it")
    flags.DEFINE_string("out", "results/{}/training_speed.json", "the record, {} its folder; empty: nowhere")
    flags.DEFINE_integer("matrix", 0, "size of the matrices whose product is the rate; 0: by platform")
    flags.DEFINE_float("seconds", 0.5, "of a block of timing", lower_bound=0)
    flags.DEFINE_float("budget", 0.0, "seconds after which no case is begun; 0: all are", lower_bound=0)
    launching.run(main)
