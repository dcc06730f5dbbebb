"""Each op's memory formula against the peak measured in a process of its own."""

import sys

import pytest

bench_memory = pytest.importorskip("pipelines.bench_memory")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the kernel's count of the peak is read from /proc"),
]


@pytest.mark.parametrize("name", bench_memory.CASES)
def test_peak_memory_formula_is_within_a_fifth_of_the_measured_peak(name):
    # A machine short of memory takes pages back while the op runs, which hides part of the peak: measure again then.
    for _ in range(3):
        found = bench_memory.measure(name)
        if abs(found["ratio"] - 1) <= 0.2:
            break
    assert found["ratio"] == pytest.approx(1, abs=0.2), found
