"""The lines and figures of claims, from the record of a comparison that is complete or given up."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.runtime import claims
from experiments.runtime.claim_records import REPORTED, Held, Piece, Record, choose, reported_pieces
from experiments.runtime.claims import Claim, Comparison, Line
from experiments.runtime.optional import can_draw


def make_line(
    comparison: Comparison,
    claim: Claim,
    record: Record,
    chosen: Mapping[str, Mapping[str, Any]],
    command: str = "",
    *,
    given_up: bool = False,
) -> dict[str, Any]:
    """Returns the line of a claim, from the record of a comparison whose reported runs are all done.

    With `given_up`, the comparison has the seeds that are done of those that were declared.
    """
    entries, used = [], []
    for model in comparison.models_of(claim):
        steps = model.budgets[claim.budget]
        pieces = [
            Piece(REPORTED, model, chosen[model.name], seed, steps) for seed in comparison.seeds_of(model)
        ]
        lines = [line for piece in pieces if (line := record.find(piece))]
        used += lines
        entries.append(
            {
                "name": model.name,
                "per_seed": [line["measurements"][claim.value] for line in lines],
                "seeds": [line["seed"] for line in lines],
                "seconds": [line["train_seconds"] for line in lines],
                "parameters": model.parameters,
                "steps": model.updates(claim.budget),
                "settings": dict(chosen[model.name]),
            }
        )
        if len(entries) > 1:
            entries[-1] |= {"compared": model.compared, "exception": model.exception}
    ours, *baselines = entries
    last = max(used, key=lambda line: line["date"])
    line = {
        "id": claim.id,
        "claim": claim.claim,
        "measure": claim.measure,
        "higher_is_better": claim.higher_is_better,
        "paper": claim.paper,
        "target": claim.target,
        "tests": list(claim.tests),
        "level": comparison.corrected_level,
        "share": claim.share,
        "ours": ours,
        "baselines": baselines,
        "fixed_beforehand": record.fixed_in(claim.id),
        "search_seeds": list(comparison.search_seeds),
        "hardware": " and ".join(sorted({claims.hardware(line["devices"]) for line in used})),
        "versions": " and ".join(sorted({f"jax {line['versions']['jax']}" for line in used})),
        "date": last["date"],
        "command": command,
        "commit": last["commit"],
    }
    if claim.expected is not None:
        line["expected"] = claim.expected
    if given_up:
        line["given_up"] = True
    return {**line, "holds": claims.verdict(line)}


def draw(comparison: Comparison, record: Record, out: Path) -> list[Path]:
    """Draws the figures of a comparison whose reported runs are done; returns the files."""
    if comparison.figures is None or not can_draw():
        return []
    from experiments.runtime import plots  # Matplotlib takes long to import

    chosen, budget = choose(comparison, record), comparison.claims[0].budget
    runs = {
        model.name: [
            line
            for seed in comparison.seeds_of(model)
            if (line := record.find(Piece(REPORTED, model, chosen[model.name], seed, model.budgets[budget])))
        ]
        for model in comparison.models
    }
    return [plots.save(figure, out / f"{name}.png") for name, figure in comparison.figures(runs).items()]


def publish(out: Path, lines: Sequence[Line]) -> None:
    """Adds lines to the file of claims; a line of an earlier declaration stays as ID.attempt1, and so on."""
    out.mkdir(parents=True, exist_ok=True)
    with Held(out, wait=True):
        found = {line["id"]: line for line in claims.read(out)}
        for line in lines:
            old = found.get(line["id"])
            if old is not None and old["fixed_beforehand"] != line["fixed_beforehand"]:
                number = sum(other.startswith(f"{line['id']}.attempt") for other in found) + 1
                name = f"{line['id']}.attempt{number}"
                found[name] = {**old, "id": name}
            found[line["id"]] = dict(line)
        claims.write(out, list(found.values()))


def give_up(comparison: Comparison, *, out: Path, command: str = "") -> list[dict[str, Any]]:
    """Ends an attempt of which some reported seeds are done; writes and returns the lines of its claims.

    They have those seeds, are marked with `given_up`, and do not hold, so that an attempt that another
    declaration is to replace does not disappear.

    Raises:
        ValueError: no reported seed is done for all models, all are, or the declaration was edited.
    """
    comparison.check()
    record = Record(out, comparison.name)
    chosen = choose(comparison, record)
    last = record.declarations[-1]["declaration"] if record.declarations else None
    if last is not None and (edited := comparison.differences(last)):
        raise ValueError(
            f"{comparison.name}: got an edited declaration, expected the recorded one: " + "; ".join(edited)
        )

    def is_done(seed: int) -> bool:
        pieces = reported_pieces(comparison, chosen)
        return all(record.find(piece) for piece in pieces if piece.seed == seed)

    done = [seed for seed in comparison.seeds if is_done(seed)]
    if not 0 < len(done) < len(comparison.seeds):
        raise ValueError(f"{comparison.name}: seeds: got {done} done, expected some of {comparison.seeds}")
    partial = dataclasses.replace(comparison, seeds=tuple(done))
    lines = [make_line(partial, claim, record, chosen, command, given_up=True) for claim in partial.claims]
    publish(out, lines)
    return lines
