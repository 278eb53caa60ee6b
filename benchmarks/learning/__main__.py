"""The claims about learning: trains them with their seeds and baselines, and writes their tables.

    python -m benchmarks.learning --only=llrnn,boxworld
    python -m benchmarks.learning --only=kinship --variants=jmc.atp,j.at,relation_aware
    python -m benchmarks.learning --only=mathematics --presets=modules --data=data/chosen --seconds=500
    python -m benchmarks.learning --draw_only

Writes for each experiment to its folder in `--out`: `learning.jsonl` (a line for each preset, seed and model:
what was measured, the curve during training, times, versions, commit), figures, and `learning.md`, the table.
A run has a directory in `--workdir`, from which it is continued; its lines replace those of the same run,
others are kept. `--draw_only` trains nothing and draws again from the record.
"""

from pathlib import Path

from absl import app, flags

from benchmarks import launching, learning, records


def main() -> None:
    """The program."""
    values = flags.FLAGS
    rooms = launching.chosen(learning, values.only)

    def prepare(config) -> None:
        if values.data:
            config.data.directory = values.data

    if len(rooms) > 1 and (values.presets or values.variants or values.data):
        raise app.UsageError("--presets, --variants and --data are of one experiment: name it by --only")
    for name, room in rooms.items():
        out = Path(values.out) / room.folder
        if values.seconds and not room.cut:
            raise app.UsageError(f"--seconds: the runs of {name} are not cut short")
        for preset in [] if values.draw_only else values.presets or room.presets:
            seeds = values.seeds or room.presets.get(preset, 3)
            where = Path(values.workdir) / name, out
            variants = values.variants or room.variants
            try:
                records.claim(room, preset, variants, seeds, *where, seconds=values.seconds, prepare=prepare)
            except ValueError as error:
                raise app.UsageError(str(error)) from error
        if lines := records.read(out):
            print(room.draw(lines, out))
        elif values.draw_only and values.only:
            raise app.UsageError(f"--out={values.out}: {room.folder} has no {records.RECORD} to draw from")


if __name__ == "__main__":
    flags.DEFINE_list("only", [], "experiments; all by default")
    flags.DEFINE_list("presets", [], "of the experiment; those that are claimed by default")
    flags.DEFINE_list("variants", [], "models or agents; others are compared with the first")
    flags.DEFINE_integer("seeds", 0, "of each; 0: as many as are claimed", lower_bound=0)
    flags.DEFINE_string("data", None, "a folder of data, in the place of the preset's")
    flags.DEFINE_float("seconds", 0.0, "end this session in time, with everything saved; 0: when all is done")
    flags.DEFINE_string("workdir", "runs/claims", "directory of the runs")
    flags.DEFINE_string("out", "results", "the folder of results")
    flags.DEFINE_bool("draw_only", False, "train nothing")
    launching.run(main)
