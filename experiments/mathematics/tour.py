"""What the tour shows of the Mathematics Dataset."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from experiments import runtime
from experiments.mathematics import figures
from experiments.mathematics.config import Config
from experiments.mathematics.load import Trained
from experiments.mathematics.measures import Sampled
from experiments.mathematics.train import main, open_questions
from tp_transformer import mathematics

Row = dict[str, str]

PICTURES = {
    "learning": "Held-out questions answered exactly, every character and the end, during training.",
    "accuracy_interpolate": "At the end, against always giving the commonest answer of the module.",
    "roles": "Every character has the colour and number of the cluster that its role vector belongs to.",
}


def tour_stop(directory: Path, config: Config) -> runtime.Stop:
    """Runs the experiment in a directory and describes the result."""
    (result,) = main(config, workdir=directory).values()
    found = result.results[mathematics.INTERPOLATE]
    always = figures.scores(result.results["commonest_answer"], mathematics.INTERPOLATE).accuracies
    least = min(entry["interval"][0] - always[module] for module, entry in found["modules"].items())
    trained, source = Trained(config.model.make(), result.params), open_questions(config, directory)
    tried = []
    for module in config.data.test_modules(source)[mathematics.INTERPOLATE]:
        share = found["modules"][module]
        shown = f"{figures.title_of(module)}: {share['right'] / share['total']:.0%} right"
        tried.append(mix([row | {"module": shown} for row in answered(trained, source, module, 40)]))
    paths = {directory / f"{name}.png": caption for name, caption in PICTURES.items()}
    return runtime.Stop(
        title="TP-Transformer: mathematics, character by character",
        meaning=(
            "The model reads a question as characters and writes the answer as characters. Its attention "
            "binds what it retrieves to a role vector that it computes for each position (one picture shows "
            f"which positions get similar roles). After {result.train_seconds:.0f} s of training it answers "
            f"{found['average']:.0%} of new questions exactly; the 95 % interval of each module is at least "
            f"{100 * least:.0f} points above always giving the module's commonest answer."
        ),
        rows=[row for turn in zip(*tried, strict=False) for row in turn][:5],
        figures={path: caption for path, caption in paths.items() if path.exists()},
        caveat=(
            "Two of the 56 modules, a model 240 times smaller than the paper's, one seed; a run of this size "
            "supports no comparison with a Transformer. The table's questions were chosen to show right and "
            "wrong answers."
        ),
    )


def answered(trained: Trained, source: mathematics.Source, module: str, count: int) -> list[Row]:
    """Test questions of a module with the right answer, the model's, and whether it is right."""
    pairs = list(Sampled(source, count).questions(mathematics.INTERPOLATE, module))
    return [
        {
            "question": question,
            "answer": answer,
            "the model's": given,
            "": "right" if given == answer else "wrong",
        }
        for (question, answer), given in zip(pairs, trained.answer([q for q, _ in pairs]), strict=True)
    ]


def mix(rows: Sequence[Row]) -> list[Row]:
    """The same rows, a right one before each wrong one for as long as there are both."""
    right, wrong = ([row for row in rows if row[""] == kind] for kind in ("right", "wrong"))
    return [row for pair in itertools.zip_longest(right, wrong) for row in pair if row is not None]
