"""Blocks on demand waste less than 4 % of the slots that they allocate, at the default block size and realistic lengths."""
from kv_waste import make_load, run


def test_on_demand_wastes_little_where_reservation_wastes_most():
    load = make_load(40, 2048, 7)
    blocks, whole = run(load, 16, 16384), run(load, 2048, 16384)
    assert 0 < blocks.waste() < 0.04
    assert whole.waste() > 0.5 and blocks.waste_as_asked() > 0.3
    assert blocks.steps < whole.steps
