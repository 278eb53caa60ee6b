"""The benchmark of several devices: what of a step is overhead."""

import jax
import pytest

from benchmarks import scaling

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_overhead_is_what_is_over_the_work_of_one_device():
    def times(nothing, quick) -> dict[str, dict[str, float]]:
        return {
            "nothing": dict.fromkeys(("jit", "shard_map", "pmap"), nothing),
            "quick": dict.fromkeys(("jit", "shard_map", "pmap"), quick),
        }

    rounds = [{1: times(1e-3, 1.0), 4: times(3e-3, 4.1)}, {1: times(1e-3, 1.0), 4: times(3e-3, 3.9)}]
    rows = {(row["case"], row["parallel"], row["devices"]): row for row in scaling.tabulate(rounds)}
    assert len(rows) == 2 * 3 * 2
    assert rows["nothing", "jit", 4]["overhead_seconds"]["median"] == 3e-3
    assert "ABOVE" in scaling.format_row(rows["nothing", "jit", 4])
    assert "within" in scaling.format_row(rows["nothing", "jit", 1])
    over = rows["quick", "pmap", 4]["overhead_seconds"]
    assert (over["least"], over["median"], over["greatest"]) == pytest.approx((-0.1, 0.0, 0.1))
    assert "overhead_seconds" not in rows["quick", "jit", 1]


@pytest.mark.parametrize("parallel", scaling.PARALLEL)
def test_a_step_of_nothing_is_timed(parallel):
    assert jax.device_count() == 1
    assert 0 < scaling.step_seconds("nothing", parallel, seconds=0.003) < 1


@pytest.mark.slow
def test_devices_are_those_of_a_process_of_its_own():
    found = scaling.on_devices(2)
    assert set(found) == {"nothing", "quick"}
    assert all(seconds > 0 for ways in found.values() for seconds in ways.values())
