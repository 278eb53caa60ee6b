"""Tests of claims as data: verdicts, what a fair declaration is, and the file of claims."""

import dataclasses
import json
import types

import claimed  # pyrefly: ignore[missing-import]
import pytest

from experiments.runtime import claims, intervals


def line(ours, *baselines, **fields):
    return {
        "id": "a.b",
        "claim": "a sentence",
        "higher_is_better": True,
        "tests": [],
        "target": None,
        "level": 0.95,
        "ours": {"name": "ours", "per_seed": ours},
        "baselines": [{"name": "other", "per_seed": values, "compared": True} for values in baselines],
        "holds": None,
        **fields,
    }


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        (line([1, 2, 3]), None),
        (line([9.0, 9.1, 8.9], [1.0, 1.1, 0.9], tests=["unpaired"]), True),
        (line([9.0, 9.1, 8.9], [1.0, 1.1, 0.9], tests=["unpaired"], higher_is_better=False), False),
        (line([1.0, 1.1, 0.9], [9.0, 9.1, 8.9], tests=["unpaired"], higher_is_better=False), True),
        (line([9.0, 9.1, 8.9], [1.0, 1.1, 0.9], [8.0, 10.0, 9.0], tests=["unpaired"]), False),
        (line([3.0, 5.0, 9.0], [2.9, 4.8, 8.9], tests=["unpaired"]), False),
        (line([3.0, 5.0, 9.0], [2.9, 4.88, 8.89], tests=["paired"]), True),
        (line([3.0, 5.0, 9.0], [2.9, 4.8, 8.9], tests=["unpaired", "paired"]), False),
        (line([2.9, 4.8, 8.9], [3.0, 5.0, 9.0], tests=["paired"]), False),
        (line([2.9, 4.88, 8.89], [3.0, 5.0, 9.0], tests=["paired"], higher_is_better=False), True),
        (line([3.0, 5.0, 9.0], [2.9, 4.88, 8.89], tests=["paired"], level=0.999), False),
        (line([0.9, 0.8, 1.0], tests=["threshold"], target=0.8), True),
        (line([0.9, 0.79, 1.0], tests=["threshold"], target=0.8), False),
        (line([0.9, 0.79, 1.0], tests=["threshold"], target=0.8, share=2 / 3), True),
        (line([0.9, 0.79, 0.7], tests=["threshold"], target=0.8, share=2 / 3), False),
        (line([1.0] * 14 + [0.0] * 11, tests=["threshold"], target=1, share=0.56), True),  # 14 + rounding
        (line([2.0, 2.0], [2.0, 2.0], tests=["unpaired"]), False),
        (line([1.0, 2.0], [1.0, 2.0], tests=["paired"]), False),
        (line([1.0, 2.0], tests=["mean"], target=1.5), True),
        (line([0.9, 0.79, 1.0], tests=["mean"], target=0.8), True),
        (line([0.9, 0.79, 1.0], tests=["mean"], target=0.95), False),
        (line([0.1, 0.2], tests=["mean", "threshold"], target=0.15, higher_is_better=False), False),
        (line([0.1, 0.2], tests=["mean"], target=0.16, higher_is_better=False), True),
        (line([0.1, 0.2], tests=["threshold"], target=0.2, higher_is_better=False), True),
    ],
)
def test_verdicts(found, holds):
    """A claim holds if all of its tests pass, in the direction of its measure."""
    assert claims.verdict(found) is holds


def test_what_was_given_up_does_not_hold():
    """Whatever the seeds that ran say; without a hypothesis nothing can fail to hold."""
    found = line([0.9, 0.8], tests=["threshold"], target=0.7)
    assert (claims.verdict(found), claims.verdict({**found, "given_up": True})) == (True, False)
    assert claims.verdict({**line([1, 2]), "given_up": True}) is None


def test_unpaired_compares_the_ends_of_intervals():
    """The verdict turns where our lower end meets the baseline's upper end."""
    ours, other = [5.0, 6.0, 7.0], [1.0, 2.0, 3.0]
    gap = intervals.mean_interval(ours)[1] - intervals.mean_interval(other)[2]
    for shift, holds in ((gap - 1e-9, True), (gap + 1e-9, False)):
        moved = [value + shift for value in other]
        assert claims.verdict(line(ours, moved, tests=["unpaired"])) is holds


def test_a_baseline_that_is_only_reported_decides_nothing():
    """Its numbers stand in the line, uncompared."""
    found = line([9.0, 9.1], [1.0, 1.1], [9.0, 9.5], tests=["unpaired"])
    found["baselines"][1]["compared"] = False
    assert claims.verdict(found) is True


def test_one_seed_is_enough():
    """If nothing is searched and no seeds are compared."""
    whole = claimed.comparison()
    models = tuple(dataclasses.replace(model, search=({},)) for model in whole.models)
    alone = {"seeds": (0,), "search_seeds": (), "search_by": "", "claims": whole.claims[1:]}
    dataclasses.replace(whole, models=models, **alone).check()


def test_pairs_are_seeds():
    """Differences are of equal seeds, those that both have."""
    found = line([3.0, 5.0, 9.0], [8.89, 4.88], tests=["paired"])
    found["ours"]["seeds"], found["baselines"][0]["seeds"] = [0, 1, 2], [2, 1]
    assert claims.verdict(found) is True
    found["baselines"][0]["seeds"] = [0, 1]
    assert claims.verdict(found) is False


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (line([1.0, 2.0], tests=["unpaired"]), "baselines: got none"),
        (line([1.0, 2.0], tests=["mean"]), "target: got None"),
        (line([1.0, 2.0], tests=["better"]), "tests: got 'better'"),
    ],
)
def test_verdicts_that_cannot_be_made(found, message):
    """A test without what it needs is an error, not a failed claim."""
    with pytest.raises(ValueError, match=message):
        claims.verdict(found)


def changed(**fields):
    models = claimed.comparison().models
    return claimed.comparison(models=(models[0], dataclasses.replace(models[1], **fields)))


def claims_with(**fields):
    first = claimed.comparison().claims[0]
    return claimed.comparison(claims=(dataclasses.replace(first, **fields),))


BUDGETS = {"equal_steps": 20, "equal_time": 20}


def timed(**fields):
    """Two budgets; `fields` are the second model's."""
    first, second = claimed.comparison().models
    models = (
        dataclasses.replace(first, steps=BUDGETS, step_seconds=1.0),
        dataclasses.replace(second, **{"steps": BUDGETS, "step_seconds": 1.0, **fields}),
    )
    claim = claimed.comparison().claims[0]
    parts = tuple(dataclasses.replace(claim, id=f"slope.optimizer.{name}", budget=name) for name in BUDGETS)
    return claimed.comparison(models=models, claims=parts)


@pytest.mark.parametrize(
    ("comparison", "message"),
    [
        (changed(parameters=2), r"parameters: got 2, expected 1 within 2%"),
        (changed(search=({"lr": 0.1},)), "search: got 1 settings, expected 2"),
        (changed(search=()), "search: got 0 settings, expected one, or"),
        (claimed.comparison(search_by=""), "search: got 2 settings, expected one, or"),
        (changed(steps=21), r"steps\[''\]: got 21, expected 20"),
        (changed(name="SGD"), "models"),
        (changed(search=({"lr": 0.1}, {"rate": 0.1})), "search: got 'rate', expected a field of Config"),
        (changed(search=({"lr": 0.1}, {"log_every": 3})), "multiple of log_every"),
        (changed(config=claimed.config(max_seconds=3.0)), "max_seconds: got 3.0, expected 0"),
        (changed(num_seeds=1), r"\[3, 1\] seeds"),
        (changed(compared=False), "0 compared baselines"),
        (changed(steps={"long": 20}), "expected the budget ''"),
        (claimed.comparison(search_seeds=(2, 3)), "none of the search seeds"),
        (claimed.comparison(search_seeds=()), "search_seeds and search_by"),
        (claimed.comparison(seeds=()), "expected at least one"),
        (claimed.comparison(seeds=(1, 1)), "expected different ones"),
        (claimed.comparison(seeds=(1, 2, -1)), "seed: got -1, expected at least 0"),
        (claimed.comparison(search_seeds=(100, -2)), "seed: got -2, expected at least 0"),
        (claimed.comparison(search_seeds=(100, 100)), "search_seeds: got .*, expected different ones"),
        (claims_with(id="line"), "expected 'slope.optimizer' or 'slope.optimizer.PART'"),
        (claims_with(tests=("best",)), "tests: got {'best'}"),
        (claims_with(tests=("mean",)), "target: got None"),
        (claims_with(share=0.0), "share: got 0.0"),
        (claims_with(share=1.1), "share: got 1.1"),
        (claims_with(ours="Lion"), r"ours and against: got \['Lion'\], expected different names of"),
        (claims_with(against=("Lion",)), r"ours and against: got \['SGD', 'Lion'\], expected different"),
        (claims_with(ours="Adam", against=("Adam",)), r"got \['Adam', 'Adam'\], expected different names"),
        (claims_with(against=("SGD",)), r"got \['SGD', 'SGD'\], expected different names"),
        (timed(step_seconds=None), "step_seconds"),
        (timed(step_seconds=2.0), r"steps\['equal_time'\]: got 40, expected 20"),
        (changed(steps=40, exception="larger"), r"steps\[''\]: got 40, expected 20"),
        (timed(steps={"equal_steps": 40, "equal_time": 20}), r"steps\['equal_steps'\]: got 40, expected 20"),
    ],
)
def test_unfair_or_incomplete_declarations_are_refused(comparison, message):
    """Each names what is wrong."""
    with pytest.raises(ValueError, match=message):
        comparison.check()


@pytest.mark.parametrize(
    "comparison",
    [
        claimed.comparison(),
        changed(parameters=200, exception="the only size it has"),
        changed(search=({"lr": 0.1},), exception="searched elsewhere"),
        timed(step_seconds=0.5, steps={"equal_steps": 20, "equal_time": 40}),
    ],
)
def test_fair_declarations(comparison):
    """An exception is stated, not hidden; equal time is steps times seconds."""
    comparison.check()


def test_updates_of_restarts_count():
    """A model that restarts makes as many updates in all as one that does not."""

    class Restarted(claimed.Config):
        further_steps = 12

    first, second = claimed.comparison().models
    ours = dataclasses.replace(first, config=Restarted(**dataclasses.asdict(first.config)), steps=8)
    assert ours.updates("") == 20
    claimed.comparison(models=(ours, second)).check()
    with pytest.raises(ValueError, match=r"steps\[''\]: got 20, expected 32"):
        claimed.comparison(models=(dataclasses.replace(ours, steps=20), second)).check()


@pytest.mark.parametrize("field", ["parameters", "steps"])
def test_models_within_the_tolerance_are_equal(field):
    """Two in a hundred parameters or steps more or fewer pass, three do not."""
    first, second = claimed.comparison().models
    for number, fair in ((1020, True), (980, True), (1021, False), (979, False)):
        models = (dataclasses.replace(first, **{field: 1000}), dataclasses.replace(second, **{field: number}))
        comparison = claimed.comparison(models=models)
        if fair:
            comparison.check()
        else:
            with pytest.raises(ValueError, match=field):
                comparison.check()


def test_the_level_is_corrected_for_the_number_of_comparisons():
    """Only claims that compare means or pairs count."""
    first, second = claimed.comparison().claims
    parts = [dataclasses.replace(first, id=f"slope.optimizer.{k}") for k in range(5)]
    assert claimed.comparison(claims=(first, second)).corrected_level == pytest.approx(0.95)
    assert claimed.comparison(claims=(*parts, second)).corrected_level == pytest.approx(0.99)
    assert claimed.comparison(claims=(second,)).corrected_level == 0.95


def test_equal_time():
    """Steps of another model, to the nearest multiple; at least one multiple."""
    assert claims.equal_time(1000, 0.02, 0.01) == 2000
    assert claims.equal_time(1000, 0.02, 0.03, multiple_of=50) == 650
    assert claims.equal_time(10, 0.001, 1.0, multiple_of=50) == 50


def test_the_code_of_the_measure_is_declared():
    """Its docstring and layout may change, what it computes may not."""

    def first(run):
        """Measures."""
        return {"distance": run.result.metrics["eval/distance"]}

    def same(run):
        # Another comment.
        return {
            "distance": run.result.metrics["eval/distance"],
        }

    def other(run):
        return {"distance": -run.result.metrics["eval/distance"]}

    for function in (same, other):
        function.__name__, function.__qualname__ = first.__name__, first.__qualname__
    declared = claimed.comparison(measure=first).declaration()
    code = [claims._code(function) for function in (first, other)]
    assert claims._code(same) == code[0] != code[1]
    assert claimed.comparison(measure=same).differences(declared) == []
    assert claimed.comparison(measure=other).differences(declared) == [
        f'measure_code: "{code[0]}" there, "{code[1]}" now'
    ]


def test_parts_that_declarations_did_not_have_then_are_no_edit():
    """Declarations recorded earlier stay valid when the runner learns to fix more."""
    comparison = claimed.comparison()
    declared = comparison.declaration()
    del declared["measure_code"]
    assert comparison.differences(declared) == []


def test_a_declaration_is_plain_json():
    """It can be written, read and compared with itself."""
    comparison = claimed.comparison()
    settings = types.MappingProxyType({"lr": 0.01})
    other = dataclasses.replace(comparison.models[1], search=(settings, settings))
    comparison = dataclasses.replace(comparison, models=(comparison.models[0], other))
    declared = json.loads(json.dumps(comparison.declaration()))
    assert comparison.differences(declared) == []


def test_a_new_field_with_its_default_is_no_edit():
    """Configs grow; what was declared earlier lacks the field."""
    comparison = claimed.comparison()
    declared = json.loads(json.dumps(comparison.declaration()))
    for model in declared["models"]:
        del model["config"]["batch_size"]
    assert comparison.differences(declared) == [
        f"{model}: config.batch_size: 64 there, 8 now" for model in ("SGD", "Adam")
    ]
    for model in declared["models"]:
        model["config"]["batch_size"] = 8
        del model["config"]["optimizer"]
    assert comparison.differences(declared) == ['Adam: config.optimizer: "sgd" there, "adam" now']


def test_fields_that_cannot_change_a_result_are_not_declared():
    """Neither how often a run is saved nor the seconds of a session."""
    comparison = claimed.comparison()
    assert (
        changed(config=claimed.config(optimizer="adam", checkpoint_every=10)).differences(
            comparison.declaration()
        )
        == []
    )


def test_the_file_of_claims(tmp_path):
    """Lines come back as they were written, sorted by id."""
    assert claims.read(tmp_path) == []
    lines = [line([1.0], id=name) for name in ("b", "a")]
    claims.write(tmp_path, lines)
    assert claims.read(tmp_path) == lines[::-1]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([line([1.0]), line([2.0])], "got 'a.b' twice"),
        ([line([1.0], tests=["mean"], target=2.0, holds=True)], "holds: got True, expected False"),
        ([line([1.0], holds=True)], "holds: got True, expected None"),
    ],
)
def test_what_is_not_written(lines, message, tmp_path):
    """Two lines of one claim, and verdicts that the numbers do not give."""
    with pytest.raises(ValueError, match=message):
        claims.write(tmp_path, lines)
    assert not (tmp_path / claims.FILE).exists()


def test_a_damaged_file_of_claims_is_named(tmp_path):
    """File and line."""
    (tmp_path / claims.FILE).write_text(json.dumps(line([1.0])) + '\n{"id": "x"}\n')
    with pytest.raises(ValueError, match=r"claims\.jsonl, line 2: not a claim"):
        claims.read(tmp_path)


def test_hardware():
    """Devices in a few words."""
    assert claims.hardware({"platform": "cpu", "cpus": 2, "count": 1, "kind": "cpu"}) == "2 CPU cores"
    assert claims.hardware({"platform": "cpu", "cpus": 1, "count": 1, "kind": "cpu"}) == "1 CPU core"
    assert claims.hardware({"platform": "gpu", "cpus": 16, "count": 4, "kind": "H200"}) == "4 x H200"
