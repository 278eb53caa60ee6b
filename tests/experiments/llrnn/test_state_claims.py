"""What is measured of states of groups."""

from experiments import runtime
from experiments.llrnn.state_claims import CLAIMS, measure_states
from experiments.runtime.claims import Run


def test_states_are_measured_by_symbol_and_by_sequence(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    results = {"train/error_512": {"error": 0.25, "sequences_right": 0.125}}
    result = runtime.FitResult(None, None, 100, {}, results, 9.0, {})
    found = measure_states(Run(result, CLAIMS[0].models[0].config, tmp_path))
    for comparison in CLAIMS:
        assert [found[claim.value] for claim in comparison.claims] == [0.75, 0.125]
