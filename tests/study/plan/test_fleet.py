"""Several models over mixed devices."""
import itertools
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.catalogue.read import Catalogue
from penstock.core.errors import UsageError
from penstock.core.hardware import Hardware
from penstock.serve.engine.machine import Machine
from penstock.study.plan import here
from penstock.study.plan.configuration import Configuration
from penstock.study.plan.fleet import Fleet, Placement, Wish, undominated
from penstock.study.plan.load import Load
from penstock.study.plan.request import Request
from penstock.study.plan.shared import at_most, shared

PARTS = {name: Catalogue().part(name) for name in ("h100-sxm", "l4", "rtx-4090")}
SMALL = Configuration("l4", 1, 1, 1, "none", "auto", True, tpot_s=0.02, meets_slo=True, running=0.3, device_bytes=8e9)
BIG = Configuration("h100-sxm", 4, 4, 1, "none", "auto", True, tpot_s=0.02, meets_slo=True, running=30.0, device_bytes=60e9)


def placed(wishes: list[Wish], counts: dict[str, int] | None) -> tuple[Fleet, list[Placement]]:
    fleet = Fleet(PARTS, counts)
    return fleet, fleet.place(wishes)


def wish(row: Configuration, slo: float = 0.05) -> Wish:
    return Wish("m", [row], {"tpot": slo})


def test_small_models_share_a_device_while_all_keep_their_objective() -> None:
    fleet, [one, two] = placed([wish(SMALL), wish(SMALL)], None)
    assert one.devices == two.devices == (0,) and fleet.usd_per_hour() == PARTS["l4"].price and two.added_usd_per_hour == 0


def test_what_would_miss_its_objective_or_not_fit_gets_a_device_of_its_own() -> None:
    _, [one, two] = placed([wish(SMALL, 0.025), wish(SMALL, 0.025)], None)  # waiting for the other would take 0.02 / 0.7
    assert one.devices != two.devices
    _, [one, two] = placed([wish(replace(SMALL, device_bytes=15e9))] * 2, None)
    assert one.devices != two.devices


def test_what_waits_for_others_has_more_requests_at_once() -> None:
    """A third of the time alone, half of it beside the other: hardly ever are there more than four, or five."""
    row = replace(SMALL, kv_bytes_per_token=1e6, device_bytes=PARTS["l4"].usable_bytes / 2 - 0.5e9)
    for tokens, together in ((400, True), (600, False)):
        _, [one, two] = placed([Wish("m", [row], {}, tokens), Wish("m", [row], {}, tokens)], None)
        assert (one.devices == two.devices) == together


def test_devices_of_a_replica_stand_in_one_node() -> None:
    fleet, placements = placed([wish(BIG), wish(BIG), wish(BIG)], {"h100-sxm": 16})
    for each in placements:
        assert len(each.devices) == 4 and len({fleet.devices[number].node for number in each.devices}) == 1
    assert len({number for each in placements for number in each.devices}) == 12


@pytest.mark.parametrize("counts", [None, {"rtx-4090": 8}])
@pytest.mark.parametrize(("ranks", "stages", "each"), [(4, 2, 4), (2, 4, 2), (8, 1, 1)])
def test_a_replica_larger_than_a_node_has_each_stage_in_one(counts: dict[str, int] | None, ranks: int, stages: int, each: int) -> None:
    """Where its stages stand its figures say: in different nodes. Ranks that a node has not enough devices for, they have in any."""
    row = replace(BIG, hardware="rtx-4090", devices=8, tensor_parallel=ranks, pipeline_parallel=stages)
    fleet, [found] = placed([wish(row)], counts)
    nodes = Counter(fleet.devices[number].node for number in found.devices)
    assert PARTS["rtx-4090"].node == 4 and len(found.devices) == 8 and all(count % each == 0 for count in nodes.values())


def test_what_does_not_fit_a_node_needs_its_stages_in_one_each() -> None:
    row = replace(BIG, hardware="rtx-4090", devices=8, pipeline_parallel=2)
    _, [lost] = placed([wish(row)], {"rtx-4090": 7})
    assert lost.reason == "needs 8 of rtx-4090, 4 of them in one node for each stage: 7 are free"
    _, [lost] = placed([wish(replace(row, devices=16, replicas=2))], {"rtx-4090": 12})
    assert lost.reason == "needs 16 of rtx-4090, 4 of them in one node for each stage of each replica: 12 are free"
    _, [lost] = placed([wish(replace(row, tensor_parallel=8, pipeline_parallel=1))], {"rtx-4090": 7})
    assert lost.reason == "needs 8 of rtx-4090: 7 are free"
    fleet, [half, both] = placed([wish(replace(row, tensor_parallel=2, devices=4)), wish(row)], {"rtx-4090": 12})
    assert len({fleet.devices[number].node for number in half.devices}) == 1 and len(both.devices) == 8, "a node's link is in its figures"


def test_of_layouts_with_as_many_devices_those_that_need_less_of_a_node_are_tried_too() -> None:
    row = replace(BIG, hardware="rtx-4090", devices=8, pipeline_parallel=2)
    narrow = replace(row, tensor_parallel=2, pipeline_parallel=4)
    assert undominated(Wish("m", [row, narrow, replace(row, chunk=512)], {}), PARTS) == [row, narrow]


def test_what_there_is_no_device_for_is_told() -> None:
    _, placements = placed([wish(BIG), wish(BIG), wish(BIG)], {"h100-sxm": 8})
    assert [each.configuration is None for each in placements].count(True) == 1
    lost = next(each for each in placements if each.configuration is None)
    assert "4 of h100-sxm" in lost.reason and not lost.devices and "room" not in lost.reason
    _, [_, alone] = placed([wish(BIG), Wish("m", [replace(SMALL, hardware="h100-sxm")], {})], {"h100-sxm": 4})
    assert alone.reason == "needs 1 of h100-sxm: none is free, and those in use have no room or time for it"
    pair = replace(BIG, hardware="l4", tensor_parallel=8, devices=8)
    _, [*_, torn] = placed([wish(replace(pair, tensor_parallel=5, devices=5)), wish(replace(pair, tensor_parallel=6, devices=6)),
                            wish(replace(pair, tensor_parallel=4, devices=4))], {"l4": 16})
    assert torn.reason == "needs 4 of l4, 4 of them in one node: 5 are free, but not so many in one node"


def test_of_what_there_is_no_place_for_the_way_with_the_fewest_devices_is_told() -> None:
    _, [lost] = placed([Wish("m", [replace(BIG, hardware="l4", devices=16, replicas=4), BIG], {})], {"l4": 2, "h100-sxm": 1})
    assert lost.reason == "needs 4 of h100-sxm, 4 of them in one node: 1 is free"


@pytest.mark.parametrize(("share", "replicas", "told"), [
    (4, 1, "needs 4 of l4, 4 of them in one node: 3 are free"),
    (2, 2, "needs 4 of l4, 2 of them in one node for each replica: 3 are free"),
    (1, 4, "needs 4 of l4: 3 are free, and those in use have no room or time for it")])
def test_only_devices_of_one_replica_have_to_stand_in_one_node(share: int, replicas: int, told: str) -> None:
    row = replace(SMALL, running=30.0, tensor_parallel=share, replicas=replicas, devices=share * replicas)
    _, [lost] = placed([Wish("m", [row], {})], {"l4": 3})
    assert lost.reason == told


def test_the_larger_ones_are_placed_first_and_the_cheaper_way_is_taken() -> None:
    either = Wish("m", [replace(SMALL, hardware="h100-sxm"), SMALL], {})
    fleet, [small, big] = placed([either, wish(BIG)], {"h100-sxm": 4, "l4": 1})
    assert big.configuration == BIG and small.configuration == SMALL
    _, [shared_one, _] = placed([either, wish(SMALL)], {"h100-sxm": 1, "l4": 1})
    assert shared_one.configuration == SMALL


def test_of_few_models_the_cheapest_way_is_found_where_one_after_the_other_is_not_it() -> None:
    row = replace(SMALL, device_bytes=11e9)
    either = Wish("m", [row, replace(row, hardware="h100-sxm")], {"tpot": 0.05})
    beside = wish(replace(SMALL, hardware="h100-sxm", running=0.1))
    fleet, placements = placed([either, beside], None)
    assert fleet.usd_per_hour() == PARTS["h100-sxm"].price == sum(each.added_usd_per_hour for each in placements)
    assert [each.devices for each in placements] == [(0,), (0,)] and len(fleet.devices) == 1


def test_of_few_models_one_leaves_its_place_to_those_that_have_no_other() -> None:
    either = Wish("either", [replace(SMALL, running=0.9), replace(SMALL, running=0.9, hardware="h100-sxm")], {})
    only = Wish("only", [replace(SMALL, running=0.9)], {})
    _, placements = placed([either, only], {"h100-sxm": 1, "l4": 1})
    assert [each.configuration and each.configuration.hardware for each in placements] == ["h100-sxm", "l4"]


def test_what_was_not_feasible_alone_keeps_its_reason() -> None:
    row = replace(SMALL, fits=False, meets_slo=None, reason="needs more")
    assert placed([Wish("m", [row], {})], None)[1][0].reason == "needs more"


def test_a_file_of_models_is_planned_and_placed(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text("""
[devices]
h100-sxm = 8
l4 = 2
[[models]]
model = "llama-3-8b"
rate = 0.05
input = 500
output = 100
slo = "tpot=100ms"
quant = "int8"
[[models]]
model = "qwen2.5-1.5b"
rate = 0.05
slo = "tpot=100ms"
quant = ["none"]
tensor-parallel = 1
[[models]]
model = "llama-3-70b"
rate = 1
hardware = "h100-sxm"
quant = "fp8"
""")
    found = shared(file, Request())
    hardware = [each.configuration.hardware if each.configuration else None for each in found.placements]
    assert hardware == ["l4", "l4", "h100-sxm"] and found.as_json()["devices"].count("l4") == 2
    assert found.placements[0].devices == found.placements[1].devices  # they share
    assert found.usd_per_hour > 0


def test_the_pages_example_is_a_plan(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "plan.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```toml\n(# fleet\.toml\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "fleet.toml").write_text(example)
    found = shared(tmp_path / "fleet.toml", Request())
    assert len(found.placements) == 2 and all(each.configuration for each in found.placements)


ALONE = Request(quant=("none",), kv_dtype=("auto",), tensor_parallel="1", pipeline_parallel="1", chunk="512")


def test_degrees_that_a_model_of_a_fleet_is_not_divided_by_are_told(tmp_path: Path) -> None:
    """Where there are so many devices for it."""
    file, models = tmp_path / "fleet.toml", "".join(f"[[models]]\nmodel = '{name}'\nrate = 0.1\nquant = 'int4:group=128'\nchunk = 512\n"
                                                    for name in ("qwen2.5-1.5b", "qwen2.5-3b", "llama-3.1-8b"))
    for count, degrees in ((None, [[4], [8], [4, 8]]), (8, [[4], [8], [4, 8]]), (4, [[4], [4]]), (3, [])):
        file.write_text(("" if count is None else f"[devices]\nl4 = {count}\n") + models)
        found = shared(file, replace(ALONE, hardware="l4", tensor_parallel=None)).as_json()["undivided"]
        assert [each["tensor_parallel"] for each in found] == degrees
    file.write_text(f"[devices]\nl4 = 8\n{models}hardware = 'l4,h100-sxm'\n")  # there are none of these
    first, second, third = shared(file, replace(ALONE, hardware="l4", tensor_parallel=None)).as_json()["undivided"]
    assert first["model"] == second["model"] == "qwen2.5-1.5b" and third["model"] == "qwen2.5-3b"
    assert third["quant"] == ["int4:group=128"] and third["reason"].startswith("TP4 would leave 2,752 of the 11,008 columns of ")


def test_models_share_a_device_only_if_it_has_room_for_the_requests_of_all(tmp_path: Path) -> None:
    """Hardly ever is one there, but where one is, it needs its keys and values."""
    file = tmp_path / "fleet.toml"
    file.write_text("[devices]\nh100-sxm = 1\n" + 2 * "[[models]]\nmodel = 'llama-3.1-8b'\nrate = 0.001\n")
    one, two = shared(file, replace(ALONE, input=1000, output=100)).placements
    assert one.devices == two.devices == (0,)
    one, two = shared(file, replace(ALONE, input=120_000, output=500)).placements
    assert one.devices == (0,) and "those in use have no room" in two.reason
    assert one.configuration and one.configuration.running < 0.1 and one.configuration.batch == 2
    assert one.configuration.device_bytes == pytest.approx(2.5e9 + 16.06e9 + 2 * 120_500 * 131_072, rel=0.05)


def test_what_a_device_holds_at_most() -> None:
    part, token = PARTS["l4"], 1e6
    fixed = part.usable_bytes - 10_000 * token
    row = replace(SMALL, running=0.5, batch=2, kv_tokens=10_000, device_bytes=fixed + 60 * token)
    for load, tokens in ((Load(100, 20), 240), (Load(100, 20, longest=5000), 5000), (Load(100, 20, longest=10_000), 10_000)):
        assert at_most(row, load, part).device_bytes == pytest.approx(fixed + tokens * token)
    refused = replace(row, fits=False, device_bytes=None)
    assert at_most(refused, Load(), part) == refused


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has room for one model, a little more at each look."""
    more = itertools.count()
    monkeypatch.setattr(here, "look", lambda: Machine(4_500_000_000 + next(more), 2))
    limits = Hardware("a machine", {1 << 30: 3e10}, {"fp32": 2e11, "bf16": 4e11})
    monkeypatch.setattr(here, "measured_limits", lambda device, threads=None: limits)


@pytest.mark.usefixtures("machine")
def test_there_is_one_machine_like_this_unless_the_file_counts_more(tmp_path: Path) -> None:
    file, two = tmp_path / "fleet.toml", 2 * "[[models]]\nmodel = 'llama-3.2-1b'\nrate = 0.01\n"
    file.write_text(two)
    asked = replace(ALONE, hardware="here", price="here=0.5", input=100, output=20)
    found = shared(file, asked)
    assert [each.devices for each in found.placements] == [(0,), ()] and found.usd_per_hour == 0.5 and found.devices == ["here"]
    assert found.placements[1].reason.startswith("needs 1 of here: none is free")
    assert shared(file, replace(asked, max_devices=10_000_000)).devices == ["here"], "these are no more than there are"
    file.write_text(f"[devices]\nhere = 2\n{two}")
    assert shared(file, asked).usd_per_hour == 1


@pytest.mark.usefixtures("machine")
def test_a_model_has_replicas_on_as_many_machines_like_this_as_the_file_counts(tmp_path: Path) -> None:
    file, model = tmp_path / "fleet.toml", "[[models]]\nmodel = 'llama-3.2-1b'\nrate = 4\n"
    asked = replace(ALONE, hardware="here", price="here=0.5", input=100, output=20)

    def devices(count: int, **more: int) -> tuple[tuple[int, ...], str]:
        file.write_text(f"[devices]\nhere = {count}\n{model}")
        found, = shared(file, replace(asked, **more)).placements
        return found.devices, found.reason

    assert devices(4) == ((0, 1, 2), "") == devices(3)
    for few in (devices(2), devices(4, max_devices=2), devices(2, max_devices=4)):
        assert few[0] == () and "on 2 devices" in few[1]
    for count, most, told in ((1, None, "there is 1 of here, and 2 are asked for: give here = 2 in"), (2, 1, "give --max-devices 2")):
        file.write_text(f"[devices]\nhere = {count}\n{model}pipeline-parallel = 2\n")
        with pytest.raises(UsageError, match=told):
            shared(file, replace(asked, max_devices=most))


@pytest.mark.usefixtures("machine")
def test_a_device_of_unknown_price_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text("[[models]]\nmodel = 'llama-3.2-1b'\nrate = 0.01\nhardware = 'here'\nquant = 'none'\n")
    with pytest.raises(UsageError, match="the price of here is not known: give --price here=DOLLARS"):
        shared(tmp_path / "fleet.toml", Request())
    assert shared(tmp_path / "fleet.toml", Request(price="here=0.5")).usd_per_hour == 0.5


@pytest.mark.parametrize(("text", "said"), [
    ("", "models"), ("[[models]]\nmodel = 'llama-3-8b'\nhardware = 'l4'", "rate"), ("speed = 1", "speed"),
    ("[devices]\nh100-sxm = 1\nl4 = 0\n", "of l4 it is 0"), ("[devices]\nl4 = 1_000_000_000\n", "from 1 to 100,000"),
    ("[devices]\nh100-sxm = 1\nl4 = 'two'\n", "fleet.toml: the devices of a part .* of l4 it is 'two'"),
    ("devices = 3", "devices is a table of numbers by part, as h100-sxm = 8, not 3"),
    ("[[models]]\nmodel = 'brook'\nrate = 1\nhardware = 'l4'\n[[models]]\nmodel = 'rill'\nrate = 1\nhardware = 'l4'\nslo = 'ttft=500'",
     "fleet.toml, rill: --slo ttft must be a time with its unit .* not '500'"),
    ("[[models]]\nmodel = 'brook'\nrate = 1\nhardware = 'l4'\nprice = 2\n[[models]]\nmodel = 'rill'\nrate = 1\nhardware = 'l4'\nprice = 50",
     r"fleet.toml: brook and rill are given different figures of l4 \(price\), which is one part: give both the same price, watts"),
    ("[[models]]\nmodel = 'brook'\nrate = 1\nhardware = 'l4'\nwhat-if = 'ops.bf16=1e15,memory=8e10'\n"
     "[[models]]\nmodel = 'rill'\nrate = 1\nhardware = 'all'", r"figures of l4 \(memory, ops\)"),
    ("[[models]]\nmodel = 'brook'\nrate = 1\nhardware = 'abacus'", "fleet.toml, brook: unknown hardware 'abacus'"),
    ("[[models]]\nmodel = 'brook'\nrate = 1\nhardware = 'l4'\nchunk = 0", "fleet.toml, brook: --chunk must be numbers"),
    ("[devices]\nl4 = 1\n[[models]]\nmodel = 'llama-3-8b'\nrate = 1\ncolour = 1", "colour"), ("x", "TOML"),
    ("[devices]\nl4 = 2\nL4 = 1\n[[models]]\nmodel = 'brook'\nrate = 1", "l4 and L4 are the same part: give one number"),
    ("[[models]]\nmodel = 3\nrate = 1", "model of a model must be a string, not 3"),
    ("[[models]]\nmodel = 'brook'\nrate = 'fast'", "rate of a model must be a number, not 'fast'"),
    ("[[models]]\nmodel = 'brook'\nrate = true", "rate of a model must be a number, not True"),
    ("[[models]]\nmodel = 'brook'\nrate = 1\nquant = 5", "quant of a model must be a list of strings, not 5"),
    ("[[models]]\nmodel = 'brook'\nrate = 1\nmax-devices = 'two'", "max-devices of a model must be a whole number, not 'two'"),
    ("[[models]]\nmodel = 'brook'\nrate = 1\nsimulate = true", "a model has no 'simulate'")])
def test_a_file_that_cannot_be_obeyed_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "fleet.toml").write_text(text)
    with pytest.raises(UsageError, match=said):
        shared(tmp_path / "fleet.toml", Request())
