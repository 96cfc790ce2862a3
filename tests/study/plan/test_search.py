"""The plan as a whole: what is tried, what wins, and why the others lost."""
import itertools
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ModelError, UsageError
from penstock.study.plan.configuration import ARITHMETIC, TWIN, Configuration
from penstock.study.plan.evaluate import LEAST_MORE, Goal, next_told, rank
from penstock.study.plan.load import Load
from penstock.study.plan.request import Request, plan
from penstock.study.plan.search import beats, explained, in_order, value
from penstock.study.plan.text import head

Ask = Callable[..., Any]
STEADY = {"batch": 1, "input": 512, "output": 128}


def test_the_best_comes_first_and_every_row_has_a_reason(ask: Ask) -> None:
    rows = ask("llama-3-8b", "h100-sxm,l4,l40s", rate=10.0, input=1000, output=200, slo="ttft=1s,tpot=30ms",
               kv_dtype=("auto",), simulate=False)
    assert all(row.reason for row in rows) and [rank(row)[:3] for row in rows] == sorted(rank(row)[:3] for row in rows)
    assert not any(beats(later, row) for at, row in enumerate(rows) if row.meets_slo for later in rows[at:] if later.meets_slo)
    assert {row.hardware for row in rows} == {"h100-sxm", "l4", "l40s"} and rows[0].meets_slo and rows[0].pareto
    assert any(not row.meets_slo for row in rows if row.fits) or any(not row.fits for row in rows)


def test_nothing_beats_the_frontier(ask: Ask) -> None:
    rows = [row for row in ask("llama-3-8b", "h100-sxm,l40s", slo="tpot=50ms") if row.meets_slo]
    front = [row for row in rows if row.pareto]
    assert front and not any(beats(other, row) for row in front for other in rows)
    assert all(any(beats(other, row) for other in front) for row in rows if not row.pareto)
    assert all("beaten by" in row.reason for row in rows if not row.pareto)


def test_the_frontier_says_what_each_gives_for_what() -> None:
    best = Configuration("l4", 1, 1, 1, "none", "auto", True, meets_slo=True, bound="KV capacity", usd_per_hour=1.0, goodput_per_usd=100.0,
                         goodput_per_s=1.0, e2e_s=1.0)
    dear, slow = replace(best, quant="int8", goodput_per_usd=50.0, e2e_s=0.5), replace(best, quant="int4", goodput_per_usd=110.0, e2e_s=2.0)
    assert [row.reason for row in explained([best, dear, slow], Goal(Load(), {}))] == [
        "the cheapest that fits; KV capacity binds",
        "faster than l4 TP1 none/auto (500 ms a request, not 1 s), at 2.00 times its cost",
        "1.1 times the goodput per dollar of l4 TP1 none/auto, and slower (2 s a request, not 1 s)"]


def test_what_costs_nothing_is_no_stranger_to_what_does() -> None:
    free = Configuration("l4", 1, 1, 1, "none", "auto", True, meets_slo=True, bound="KV capacity", usd_per_hour=0.0, goodput_per_s=1.0,
                         usd_per_million_output_tokens=0.0, e2e_s=1.0)
    dear = replace(free, hardware="h100-sxm", usd_per_hour=1.0, goodput_per_usd=100.0, usd_per_million_output_tokens=1.0)
    slow, fast = replace(dear, e2e_s=2.0), replace(dear, e2e_s=0.5)
    told = explained(in_order([slow, fast, free]), Goal(Load(), {}))
    assert [(row.e2e_s, row.pareto, row.reason) for row in told] == [
        (1.0, True, "the cheapest that fits; KV capacity binds"),
        (0.5, True, "faster than l4 TP1 none/auto (500 ms a request, not 1 s), which costs nothing"),
        (2.0, False, "beaten by l4 TP1 none/auto: it costs nothing, 2.00 times as fast")]
    unknown = replace(dear, usd_per_hour=None, goodput_per_usd=None, usd_per_million_output_tokens=None)
    assert "its price is not given" in explained(in_order([unknown, free]), Goal(Load(), {}))[1].reason


def test_what_differs_by_less_than_is_told_is_the_same() -> None:
    first = Configuration("l4", 1, 1, 1, "none", "auto", True, meets_slo=True, bound="KV capacity", usd_per_hour=1.0, goodput_per_usd=100.0,
                          goodput_per_s=1.0, usd_per_million_output_tokens=1.0, e2e_s=1.0)
    same = replace(first, quant="int8", goodput_per_usd=100.1, e2e_s=1.001, usd_per_million_output_tokens=1.001)
    slow = replace(first, quant="int4", goodput_per_usd=100.1, e2e_s=1.5, usd_per_million_output_tokens=1.002)
    fast = replace(first, quant="fp8", goodput_per_usd=99.9, e2e_s=0.5, usd_per_million_output_tokens=1.003)
    found = explained(in_order([first, same, slow]), Goal(Load(), {}))
    assert [(row.quant, row.pareto, row.reason) for row in found] == [
        ("none", True, "the cheapest that fits; KV capacity binds"),
        ("int8", True, "as much goodput per dollar as l4 TP1 none/auto, and as fast"),
        ("int4", False, "beaten by l4 TP1 none/auto: 1.50 times as fast")]
    front = explained(in_order([first, same, slow, fast]), Goal(Load(), {}))
    assert [(row.quant, row.pareto) for row in front] == [("fp8", True), ("none", False), ("int8", False), ("int4", False)]


def test_what_was_played_is_not_beaten_by_arithmetic() -> None:
    played = Configuration("l4", 1, 1, 1, "none", "auto", True, meets_slo=True, bound="KV capacity", usd_per_hour=1.0, goodput_per_s=1.0,
                           goodput_per_usd=100.0, usd_per_million_output_tokens=1.0, e2e_s=2.0, predicted_by=TWIN)
    means = replace(played, pipeline_parallel=2, predicted_by=ARITHMETIC, e2e_s=1.8)
    slower = replace(means, quant="int8", e2e_s=2.5)
    cheaper = replace(means, quant="int4", goodput_per_usd=200.0, usd_per_million_output_tokens=0.5)
    told = explained(in_order([means, slower, played]), Goal(Load(), {}))
    assert [(row.e2e_s, row.pareto) for row in told] == [(2.0, True), (1.8, True), (2.5, False)]
    assert told[1].reason == "faster than l4 TP1 none/auto (1.8 s a request, not 2 s), at its cost"
    first, second, _ = explained(in_order([played, cheaper, means]), Goal(Load(), {}))
    assert first.quant == "int4" and second.pareto and "was not played, so that nothing says which" in second.reason


def test_what_does_not_fit_says_by_how_much(ask: Ask) -> None:
    rows = ask("llama-3-70b", "h100-sxm", max_devices=1, **STEADY)
    assert not any(row.fits for row in rows) and "67.1 GB more" in rows[0].reason and rows[0].tpot_s is None
    assert ask("llama-3-70b", "h100-sxm", max_devices=1, quant=("int4",), **STEADY)[0].fits


def test_what_is_nearest_to_fitting_comes_first_and_says_what_would_hold_it(ask: Ask) -> None:
    """Llama 3.1 405B in 16 bits takes two nodes of eight H100 (Meta, "The Llama 3 Herd of Models", 2024, 6.1); in fp8 it takes one."""
    rows = ask("llama-3.1-405b", "h100-sxm", max_devices=8, **STEADY)
    over = [row.overfull for row in rows]
    assert over == sorted(over) and rows[0].devices == 8 and "27.1 GB more" in rows[0].reason
    assert rows[0].reason.endswith("; 16 devices (TP8 PP2) would hold it") and "would hold" not in rows[1].reason
    one = ask("llama-3.1-405b", "h100-sxm", max_devices=8, quant=("fp8",), **STEADY)[0]
    assert one.fits and one.devices == 8 and one.overfull is None


def test_no_devices_are_named_where_none_would_do(ask: Ask) -> None:
    assert "would hold" not in ask("llama-3-8b", "l4", batch=10**9)[0].reason
    told = "a request takes 300,128 tokens, but the model's context is 8,192"  # of more than memory has room for
    assert {(row.reason, row.overfull) for row in ask("llama-3-8b", "l4", batch=1, input=300_000, max_devices=1)} == {(told, None)}
    rows = ask("llama-3-70b", "l4,h100-sxm", max_devices=4, **STEADY)  # one of them holds it as it is
    assert rows[0].fits and [row.hardware for row in rows if "would hold" in row.reason] == ["l4"]


def test_seventy_billion_over_chips_of_sram_as_published(ask: Ask) -> None:
    """Groq told of 300 tokens/s for each user of Llama 2 70B on 576 chips (2023): a stage for each layer, eight chips in each."""
    near = ask("llama-2-70b", "groq-lpu", batch=1, input=128, output=128, max_devices=1024, quant=("int8",))[0]
    assert not near.fits and near.reason.endswith("; 640 devices (TP8 PP80) would hold it")
    row = ask("llama-2-70b", "groq-lpu", batch=1, input=128, output=128, quant=("int8",), tensor_parallel="8", pipeline_parallel="80")[0]
    assert row.fits and row.devices == 640 and 1 / row.tpot_s == pytest.approx(300, rel=0.25)


def test_a_steady_load_is_taken_as_the_checkpoint_is_and_traffic_searches_formats(ask: Ask) -> None:
    assert {(row.quant, row.kv_dtype) for row in ask("llama-3-8b", "h100-sxm", **STEADY)} == {("none", "auto")}
    assert {row.quant for row in ask("llama-3-8b", "h100-sxm", rate=1.0, simulate=False)} == {"none", "fp8", "int8", "int4"}
    assert {row.quant for row in ask("llama-3-8b", "h100-sxm", quant=("all",), **STEADY)} == {"none", "fp8", "int8", "int4"}
    assert {row.kv_dtype for row in ask("llama-3-8b", "h100-sxm", rate=1.0, kv_dtype=("int8", "int4"), simulate=False)} == {"int8", "int4"}


def test_a_checkpoint_can_be_taken_in_another_type(ask: Ask) -> None:
    wide, narrow = (ask("gemma-2-9b", "h100-sxm", max_devices=1, dtype=dtype, **STEADY)[0] for dtype in ("auto", "bfloat16"))
    assert wide.weight_bytes == 2 * narrow.weight_bytes and wide.kv_bytes_per_token == 2 * narrow.kv_bytes_per_token
    assert wide.ttft_s > 4 * narrow.ttft_s  # in fp32
    auto, chosen = (plan(Request("gemma-2-9b", "h100-sxm", dtype=dtype, **STEADY)) for dtype in ("auto", "float32"))
    assert auto.dtype == chosen.dtype == "float32" and "--dtype bfloat16" in head(auto) and "--dtype" not in head(chosen)
    assert "--dtype" not in head(plan(Request("llama-3-8b", "h100-sxm", **STEADY)))


def test_an_objective_that_no_number_of_replicas_keeps_asks_for_no_thousand_of_them(ask: Ask) -> None:
    asked = {"input": 500, "output": 200, "rate": 4.0, "slo": "ttft=1ms,tpot=1ms", "quant": ("int4",), "simulate": False}
    row = ask("llama-3-70b", "h100-sxm", prefill_split=False, tensor_parallel="1", pipeline_parallel="1", **asked)[0]
    assert not row.meets_slo and row.devices <= 2 and "still so on 1,024 replicas: " in row.reason
    assert "still" not in ask("llama-3-70b", "h100-sxm", max_devices=1, **asked)[0].reason


def test_layouts_are_those_that_heads_layers_and_devices_allow(ask: Ask) -> None:
    rows = ask("qwen2.5-7b", "h100-sxm", max_devices=8, **STEADY)  # 28 heads
    assert {row.tensor_parallel for row in rows} == {1, 2, 4} and max(row.devices for row in rows) == 8
    with pytest.raises(UsageError, match="parallel 7 does not divide .* 28 heads, 4 of keys and values, evenly: give one of 1, 2, 4$"):
        ask("qwen2.5-7b", "h100-sxm", max_devices=8, tensor_parallel="7", **STEADY)
    only = ask("llama-3-70b", "h100-sxm", tensor_parallel="4,8", pipeline_parallel="1", **STEADY)
    assert {(row.tensor_parallel, row.pipeline_parallel) for row in only} == {(4, 1), (8, 1)}
    assert {row.devices for row in ask("llama-3-70b", "h100-sxm", tensor_parallel="8", pipeline_parallel="2", **STEADY)} == {16}


def test_tensor_parallelism_is_faster_and_less_than_ideally(ask: Ask) -> None:
    times = [ask("llama-3-70b", "h100-sxm", tensor_parallel=str(n), pipeline_parallel="1", **STEADY)[0].tpot_s for n in (2, 4, 8)]
    assert times[0] > times[1] > times[2] > times[0] / 4 * 1.02


def test_slow_links_cost_more(ask: Ask) -> None:
    fast, slow = (ask("llama-3-70b", "h100-sxm", tensor_parallel="8", pipeline_parallel="1", what_if=link, **STEADY)[0].ttft_s
                  for link in ("link=nvlink-5", "link=ethernet-25"))
    assert slow > 2 * fast


def test_wider_memory_moves_what_memory_binds_and_nothing_else(ask: Ask) -> None:
    usual, wide = (ask("llama-2-7b", "a100-80gb-sxm", max_devices=1, what_if=what, **STEADY)[0]
                   for what in (None, "memory_bandwidth=8e12"))
    assert usual.bound == "weight bandwidth" and wide.tpot_s < 0.4 * usual.tpot_s and wide.ttft_s > 0.7 * usual.ttft_s


def test_more_traffic_takes_more_replicas_and_the_objective_is_kept(ask: Ask) -> None:
    asked = {"input": 500, "output": 200, "slo": "ttft=2s,tpot=100ms", "quant": ("int8",)}
    few, many = (ask("llama-3-8b", "l4", rate=rate, prefill_split=False, simulate=False, **asked)[0] for rate in (1.0, 20.0))
    assert few.meets_slo and many.meets_slo and few.tpot_s <= 0.1 and many.devices > 4 * few.devices
    assert few.output_tokens_per_s == 200 and few.goodput_per_s == 1 and many.ttft_p99_s >= many.ttft_s
    fewer = ask("llama-3-8b", "l4", rate=20.0, max_devices=2, simulate=False, **asked)
    assert not any(row.meets_slo for row in fewer)


def test_an_objective_that_is_missed_is_named_with_its_value(ask: Ask) -> None:
    row = ask("llama-3-70b", "h100-sxm", tensor_parallel="2", slo="tpot=5ms", **STEADY)[0]
    assert row.fits and not row.meets_slo and row.goodput_per_s == 0 and "tpot is" in row.reason and "5 ms" in row.reason


def test_prompts_apart_are_considered_where_traffic_is(ask: Ask) -> None:
    asked = {"rate": 30.0, "input": 4000, "output": 200, "slo": "ttft=1s,tpot=25ms", "quant": ("fp8",), "simulate": False}
    rows = ask("llama-3-8b", "h100-sxm", **asked)
    apart = [row for row in rows if row.prefill_replicas]
    assert apart and all(0 < row.prefill_replicas < row.replicas for row in apart)
    assert not any(row.prefill_replicas for row in ask("llama-3-8b", "h100-sxm", prefill_split=False, **asked))


def test_prompts_apart_are_handed_over_no_faster_than_the_network(ask: Ask) -> None:
    """A prompt of 1,000 tokens is 524 MB of keys and values, 0.19 s of 25 Gbit/s: both sides have links for all that come."""
    asked = {"rate": 16.0, "input": 1000, "output": 200, "quant": ("int4",), "kv_dtype": ("auto",), "tensor_parallel": "1",
             "pipeline_parallel": "1", "simulate": False}
    slow, fast = (next(row for row in ask("llama-2-7b", "rtx-4090", what_if=what, **asked) if row.prefill_replicas)
                  for what in (None, "network=ethernet-400"))
    moved_s = 1000 * slow.kv_bytes_per_token / (3.125e9 * 0.9)
    for count in (slow.prefill_replicas, slow.replicas - slow.prefill_replicas):
        assert 16 / count * moved_s < 1
    assert slow.bound == "interconnect" != fast.bound and slow.replicas > fast.replicas and slow.ttft_s > fast.ttft_s + moved_s / 2
    assert sum(fast.shares.values()) == pytest.approx(1, abs=0.01) and fast.shares["prefill compute"] > 0.1


def test_an_answer_of_one_token_has_no_time_per_token(ask: Ask) -> None:
    asked = {"input": 2000, "output": 1, "slo": "ttft=1s,tpot=5ms", "max_devices": 1, "quant": ("none",), "kv_dtype": ("auto",)}
    played, means = (ask("llama-3.1-8b", "h100-sxm", rate=0.5, simulate=simulate, **asked)[0] for simulate in (True, False))
    assert played.predicted_by == TWIN and means.predicted_by == ARITHMETIC
    for row in (played, means):
        assert row.meets_slo and row.tpot_s == 0 and row.mbu is None and row.bound == "prefill compute"
        assert row.shares["prefill compute"] > 0.8 and row.e2e_s == row.ttft_s


def test_capacity_binds_where_twice_the_batch_would_give_more(ask: Ask) -> None:
    row = ask("llama-2-13b", "a100-40gb-sxm", max_devices=1, input=1000, output=1000)[0]
    assert row.bound == "KV capacity" and row.batch == row.kv_tokens // 2000
    assert "weight bandwidth" in row.shares and sum(row.shares.values()) == pytest.approx(1, abs=0.01)


def test_as_many_at_once_as_pay_and_why_no_more(ask: Ask) -> None:
    asked = {"max_devices": 1, "input": 200, "output": 200}
    row = ask("llama-3.2-1b", "h100-sxm", **asked)[0]
    each = {1 << power: ask("llama-3.2-1b", "h100-sxm", batch=1 << power, chunk=str(row.chunk), **asked)[0] for power in range(13)}
    tokens = {batch: found.output_tokens_per_s for batch, found in each.items()}
    assert row.batch == min(batch for batch in tokens if tokens[batch] >= 0.97 * max(tokens.values())) < 4096
    more = tokens[2 * row.batch] / tokens[row.batch] - 1
    much = f"{more:.1%}" if more >= LEAST_MORE else "no"
    assert f"{2 * row.batch:,} at once would give {much} more" in row.batch_told and more < 0.04
    bound = ask("llama-3.2-1b", "h100-sxm", slo="tpot=5ms", **asked)[0]
    assert bound.batch < row.batch and f"with {2 * bound.batch:,} at once tpot is" in bound.batch_told


@pytest.mark.usefixtures("few_requests")
def test_at_a_rate_no_more_seats_than_are_ever_taken(ask: Ask) -> None:
    row = ask("llama-3.2-1b", "h100-sxm", rate=4.0, input=200, output=200, prefill_split=False, simulate=False)[0]
    assert row.running == pytest.approx(4 * row.e2e_s / row.replicas, rel=0.01)  # Little's law
    assert row.running < row.batch < row.running + 5 * row.running**0.5 + 3 and row.kv_tokens > 4000 * row.batch
    assert "hardly ever are more there" in row.batch_told
    played = ask("llama-3.2-1b", "h100-sxm", rate=4.0, input=200, output=200, prefill_split=False)[0]
    assert played.predicted_by == "twin" and played.running < played.batch <= row.batch + 3
    assert "the most at once in" in played.batch_told


def test_a_chunk_that_prompts_never_fill_says_so(ask: Ask) -> None:
    wide, narrow = (ask("llama-3-8b", "h100-sxm", chunk=chunk, **{**STEADY, "batch": 2})[0] for chunk in ("8192", "512"))
    assert wide.chunk_told == "2 prompts at once of 512 tokens never fill more than 1,024" and narrow.chunk_told == ""
    alone = ask("llama-3-8b", "h100-sxm", chunk="8192", **{**STEADY, "batch": 1})[0]
    assert alone.chunk_told == "one prompt of 512 tokens never fills more than 512"


def test_prices_are_for_all_or_for_some(ask: Ask) -> None:
    rows = ask("llama-3-8b", "h100-sxm,l4", max_devices=1, price="h100-sxm=2", **STEADY)
    prices = {row.hardware: row.usd_per_hour for row in rows}
    assert prices["h100-sxm"] == 2 and prices["l4"] == 0.805
    assert ask("llama-3-8b", "h100-sxm,l4", max_devices=1, price="H100=2", **STEADY) == rows, "only one of them is called so"
    with pytest.raises(UsageError, match="--price names h100, which --hardware does not"):
        ask("llama-3-8b", "h100-sxm,h100-pcie", price="h100=2", **STEADY)
    with pytest.raises(UsageError, match="--price h200=2,h200-sxm=3 gives a part twice"):
        ask("llama-3-8b", "h200", price="h200=2,h200-sxm=3", **STEADY)
    free = ask("llama-3-8b", "h100-sxm,l4", max_devices=1, price="0", **STEADY)
    assert free[0].usd_per_million_output_tokens == 0 and value(free[0]) > 0


@pytest.mark.parametrize(("options", "said"), [
    ({"hardware": "abacus"}, "h100-sxm"), ({"hardware": None}, "all of these as all, and this machine as here"),
    ({"hardware": " , "}, "--hardware is missing"),
    ({"quant": ("int3",)}, "int3"), ({"kv_dtype": ("int3",)}, "int3"), ({"dtype": "float8"}, "bfloat16"),
    ({"tensor_parallel": "3"}, "64 heads"), ({"tensor_parallel": "x"}, "--tensor-parallel"), ({"pipeline_parallel": "81"}, "80 layers"),
    ({"max_devices": 0}, "--max-devices"), ({"chunk": "0"}, "--chunk"), ({"chunk": "1" * 5000}, "--chunk: numbers"),
    ({"max_devices": 2, "tensor_parallel": "4"}, "there are 2 of h100-sxm, and 4 are asked for"),
    ({"slo": "ttft=fast"}, "ttft"), ({"slo": "itl=5ms"}, "itl"), ({"what_if": "speed=2"}, "speed"), ({"what_if": "speed"}, "key=value"),
    ({"what_if": ""}, "--what-if names no figure"), ({"what_if": ","}, "--what-if names no figure"),
    ({"catalogue": ""}, "--catalogue names no"),
    ({"what_if": "op_latency=-1"}, "from 0 on"), ({"what_if": "memory=0"}, "above 0"),
    ({"what_if": "memory=80"}, "memory=80 is more than 1,000 times below this part's own 8.55e.10: .*, such as 80e9"),
    ({"what_if": "memory_bandwidth=3.35"}, "such as 3.35e12"), ({"what_if": "ops.bf16=989"}, "such as 989e12"),
    ({"what_if": "link.bandwidth=900"}, "such as 900e9"), ({"what_if": "memory_bandwidth=8TB/s"}, "like 8e12, not '8TB/s'"),
    ({"what_if": "op_latency=3us"}, "like 3e-6, not '3us'"), ({"what_if": "power=700W"}, "like 700, not '700W'"),
    ({"what_if": "memory=much"}, "like 8e12, not 'much'"),
    ({"price": "cheap"}, "--price must be a number"), ({"price": "l4=2"}, "l4"), ({"watts": "h100-sxm=-1"}, "--watts must be a number"),
    ({"price": "1", "what_if": "price=2"}, "--what-if price and --price"), ({"what_if": "memory=1e9,memory=2e9"}, "memory is given twice"),
    ({"price": "l4=1,l4=2"}, "l4 is given twice"), ({"catalogue": "nowhere"}, "nowhere"),
    ({"batch": 1, "rate": 2.0}, "--batch"), ({"routing": "nearest", "rate": 1.0}, "auto, round_robin"),
    ({"quant": ("bogus",)}, "known: none, int8, int4; plan also knows fp8"),
    ({"routing": "prefix", "batch": 1}, "nothing is played"), ({"routing": "prefix", "rate": 1.0, "simulate": False}, "nothing is played")])
def test_what_cannot_be_obeyed_is_refused(options: dict[str, Any], said: str) -> None:
    given = {"model": "llama-3-70b", "hardware": "h100-sxm", **options}
    with pytest.raises(UsageError, match=said):
        plan(Request(**given))


def test_a_rate_that_is_too_much_says_which_is_not_and_what_would_do(ask: Ask) -> None:
    one = {"input": 1000, "output": 200, "simulate": False, "quant": ("none",), "kv_dtype": ("auto",), "tensor_parallel": "1",
           "pipeline_parallel": "1"}
    row = ask("llama-3-8b", "l4", rate=20.0, max_devices=1, **one)[0]
    found = re.fullmatch(r"cannot keep up with 20 requests a second on 1 device: some (.+) a second would be kept up with, or (\d+) "
                         "devices would do", row.reason)
    assert found is not None and row.most_per_s == float(found[1])
    rate, devices = float(found[1]), int(found[2])
    assert "cannot keep up" not in ask("llama-3-8b", "l4", rate=rate, max_devices=1, **one)[0].reason
    assert "cannot keep up" in ask("llama-3-8b", "l4", rate=1.25 * rate, max_devices=1, **one)[0].reason
    enough = ask("llama-3-8b", "l4", rate=20.0, max_devices=devices, **one)[0]
    assert "cannot keep up" not in enough.reason and enough.devices <= devices
    slow = ask("llama-3-70b", "h100-sxm", rate=1.0, max_devices=1, **one | {"quant": ("int4",), "input": 7000})[0]
    assert slow.reason.startswith("cannot keep up with 1 request a second on 1 device: ")


def test_a_context_that_the_model_does_not_have_is_refused(ask: Ask) -> None:
    row = ask("llama-3-70b", "h200-sxm", batch=1, input=9000, output=10)[0]
    assert not row.fits and "8,192" in row.reason and "9,010" in row.reason


def test_a_folder_with_only_a_config_is_enough(tmp_path: Path) -> None:
    from penstock.study.plan.known import known_config

    (tmp_path / "config.json").write_text(json.dumps(known_config("llama-2-7b")))
    found = plan(Request(model=str(tmp_path), hardware="h100-sxm", **STEADY))
    assert found.parameters == 6_738_415_616 and json.loads(json.dumps(found.as_json()))["configurations"][0]["fits"]
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError):
        plan(Request(model=str(tmp_path), hardware="h100-sxm", **STEADY))


@pytest.mark.parametrize("part", ["groq-lpu", "xeon-8480", "tpu-v5e", "m3-max", "gaudi3"])
def test_machines_of_other_kinds_are_planned_for_too(ask: Ask, part: str) -> None:
    most = 1024 if part == "groq-lpu" else 8
    rows = ask("llama-2-7b", part, max_devices=most, quant=("int8",), batch=1, input=100, output=50)
    assert rows[0].fits and rows[0].tpot_s > 0
    assert all(one.tpot_s != other.tpot_s for one, other in itertools.pairwise([row for row in rows if row.fits][:3]))


def test_hardware_goes_by_short_names_that_are_no_other_ones() -> None:
    asked = Request(model="llama-2-7b", hardware="H200, rtx4090", batch=1, max_devices=1, price="h200=3")
    rows = plan(asked).configurations
    assert {row.hardware for row in rows} == {"h200-sxm", "rtx-4090"}
    assert {row.usd_per_hour for row in rows if row.hardware == "h200-sxm"} == {3.0}
    with pytest.raises(UsageError, match="h100 is h100-pcie or h100-sxm: name one of them"):
        plan(replace(asked, hardware="h100", price=None))
    with pytest.raises(UsageError, match="unknown hardware 'a10'; did you mean"):  # another part than the a10g
        plan(replace(asked, hardware="a10", price=None))


def test_a_model_and_a_part_that_do_not_exist_are_both_told(tmp_path: Path) -> None:
    asked = Request(model=str(tmp_path / "none"), hardware="h300", batch=1)
    with pytest.raises(ModelError, match=r"none.*; and unknown hardware 'h300'"):
        plan(asked)
    with pytest.raises(UsageError, match="^unknown hardware 'h300'"):
        plan(replace(asked, model="brook"))


def test_more_that_rounds_to_nothing_is_no_more() -> None:
    row = Configuration("l4", 1, 1, 1, "none", "auto", True, meets_slo=True, batch=1, goodput_per_s=1.0, e2e_s=1.0)
    twice = replace(row, batch=2, e2e_s=2.0)
    assert next_told(row, twice) == "2 at once would give no more, and take 2 times as long"
    assert next_told(row, replace(twice, goodput_per_s=1.2)) == "2 at once would give 20.0% more, and take 2 times as long"
