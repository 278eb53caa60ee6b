r"""Writes texts with a trained model.

    python -m experiments.folnet_language.write --weights=runs/books --prompt="The while statement"
    python -m experiments.folnet_language.write --weights=models/books --prompts=prompts.txt \
        --temperature=0.8 --top_p=0.9 --seed=1 --texts=3
    python -m experiments.folnet_language.write --weights=runs/pairs --prompt="2 + 3" --beams=4 --stop=";"

`--weights` is a run's directory, a released folder, or a folder of a `FOLNetForCausalLM` or a
`FOLNetForConditionalGeneration` with its vocabulary. A language model continues a prompt, an encoder-decoder
answers it. Each text is one line of JSON, with `prompt`, `text`, `ended` (whether it ended with [SEP]) and,
with beams, `score`. From Python: `writing.open_writer`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import jax
from absl import flags

from experiments import runtime
from experiments.folnet_language.writing import open_writer
from kernels.decoding import Sampling


def options_of(given: Any) -> tuple[dict[str, Any], int]:
    """Returns the options of `Writer` that flags ask for, and how often each text is to be written.

    Raises:
        ValueError: a flag has no effect with the others.
    """
    if not given.temperature:
        if given.top_k or given.top_p < 1:
            raise ValueError("--temperature: got 0, expected more with --top_k or --top_p, which sample")
        if given.texts > given.beams:
            raise ValueError(
                f"--texts: got {given.texts}, expected at most --beams={given.beams}, or a --temperature"
            )
        return {"num_beams": given.beams, "num_return_sequences": given.texts}, 1
    if given.beams > 1:
        raise ValueError(f"--beams: got {given.beams}, expected 1 with a --temperature, which samples")
    sampling = Sampling(given.temperature, given.top_k or None, given.top_p)
    return {"sampling": sampling, "key": jax.random.key(given.seed)}, given.texts


def main() -> None:
    """Prints one line of JSON for each text."""
    given = flags.FLAGS
    texts = list(given.prompt)
    if given.prompts:
        path = Path(given.prompts).expanduser()
        try:
            with path.open(encoding="utf-8") as lines:
                texts += [line.removesuffix("\n") for line in lines]
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"--prompts: got {path} ({error}), expected a text file in UTF-8") from error
    if not texts:
        raise ValueError("--prompt: got none, expected a text, or --prompts with a file of one text a line")
    options, copies = options_of(given)
    rows = [text for text in texts for _ in range(copies)]
    written = open_writer(given.weights)(rows, given.new_tokens, stop=given.stop, **options)
    for text, found in zip(rows, written, strict=True):
        for one in found:
            line = {"prompt": text, "text": one.text, "ended": bool(one.ended)}
            line |= {} if one.score is None else {"score": one.score}
            sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    flags.DEFINE_string("weights", None, "a run's directory, or a folder of a model", required=True)
    flags.DEFINE_multi_string("prompt", [], "a text to continue or to answer; may be repeated")
    flags.DEFINE_string("prompts", "", "a file of such texts, one a line")
    flags.DEFINE_integer("new_tokens", 40, "maximum number of tokens to write", lower_bound=1)
    flags.DEFINE_integer("beams", 1, "hypotheses of a beam search; 1 for none", lower_bound=1)
    flags.DEFINE_integer(
        "texts", 1, "number of texts for each prompt, if sampled or of a beam", lower_bound=1
    )
    flags.DEFINE_float("temperature", 0.0, "of sampling; 0 for the most probable words", lower_bound=0)
    flags.DEFINE_integer("top_k", 0, "samples from so many words; 0 for all", lower_bound=0)
    flags.DEFINE_float("top_p", 1.0, "samples from the words of this probability", 0, 1)
    flags.DEFINE_multi_string("stop", [], "a text that ends what is written; may be repeated")
    flags.DEFINE_integer("seed", 0, "of sampling")
    runtime.run_program(main, reports=(ValueError, runtime.CheckpointError))
