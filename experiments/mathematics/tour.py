"""The tour stop of the Mathematics Dataset."""

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
    "learning": "Held-out questions answered exactly, to the last character, during training.",
    "accuracy_interpolate": "Final accuracy, compared with always giving the module's most frequent answer.",
    "roles": "Each character has the colour and number of its role vector's cluster.",
}


def tour_stop(directory: Path, config: Config) -> runtime.Stop:
    """Runs the experiment in `directory` and returns its page of the tour."""
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
            "The model reads a question character by character and writes the answer the same way. Its "
            "attention binds the values it retrieves to a role vector computed per position (a figure "
            f"shows which positions have similar roles). After {result.train_seconds:.0f} s of training it "
            f"answers {found['average']:.0%} of new questions exactly; in each module the 95% interval is at "
            f"least {100 * least:.0f} points above always giving the module's most frequent answer."
        ),
        rows=[row for turn in zip(*tried, strict=False) for row in turn][:5],
        figures={path: caption for path, caption in paths.items() if path.exists()},
        caveat=(
            "Two of the 56 modules, a model 240 times smaller than the paper's, one seed: too small for a "
            "comparison with a Transformer. The questions in the table were chosen to show right and wrong "
            "answers."
        ),
    )


def answered(trained: Trained, source: mathematics.Source, module: str, count: int) -> list[Row]:
    """Returns table rows with test questions, the right answer, the model's, and a verdict."""
    pairs = list(Sampled(source, count).questions(mathematics.INTERPOLATE, module))
    return [
        {
            "question": question,
            "answer": answer,
            "model's answer": given,
            "": "right" if given == answer else "wrong",
        }
        for (question, answer), given in zip(pairs, trained.answer([q for q, _ in pairs]), strict=True)
    ]


def mix(rows: Sequence[Row]) -> list[Row]:
    """Interleaves right and wrong rows, starting with a right one; the remainder is appended."""
    right, wrong = ([row for row in rows if row[""] == kind] for kind in ("right", "wrong"))
    return [row for pair in itertools.zip_longest(right, wrong) for row in pair if row is not None]
