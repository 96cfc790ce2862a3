"""The step-time model: what a step takes follows from bytes, operations and links, and from nothing else."""
import dataclasses

import pytest

from penstock.compute.formats import Numbers, product_form
from penstock.compute.models.decoder import build
from penstock.compute.models.families.llama import FAMILY
from penstock.compute.models.load.gguf_blocks import coding
from penstock.compute.models.load.gguf_types import FORMATS
from penstock.compute.ops import KINDS
from penstock.compute.price import Price, Storage
from penstock.compute.program import Program
from penstock.compute.quant.int4 import Int4, Int4Options
from penstock.compute.quant.int8 import by_row
from penstock.compute.spread import Spread
from penstock.compute.steptime import KERNELS, Roofline, Split, StepTime
from penstock.core.catalogue.part import Efficiency, Link, Part
from penstock.core.modelspec import ExpertsSpec, GatingSpec, LatentSpec, LayerSpec, ModelSpec, RopeSpec
from penstock.core.work import StepWork

LINK = Link("wire", "wire", bandwidth=1e9, base_latency=1e-5, hop_latency=1e-6, efficiency=1.0, small_efficiency=1.0,
            bulk_base_latency=1e-5, bulk_hop_latency=1e-6, peers=1)
EVERYTHING = Efficiency(1.0, 1.0, 1.0, 1.0, {"fp32": 1.0, "bf16": 1.0, "int8": 1.0})
RATES = {"fp32": 1e13, "bf16": 1e14, "int8": 2e14}
PART = Part("ideal", "ideal", "cpu", 1e12, 1.0, 0.0, 1e12, 100.0, 1.0, 4, 0.0, 0.0, RATES, EVERYTHING, LINK, LINK)


def spec(experts: ExpertsSpec | None = None, window: int | None = None) -> ModelSpec:
    layer = LayerSpec(window=window, rope=RopeSpec(dim=64), experts=experts)
    return ModelSpec(1000, 512, 8, 4, 64, 1024, (layer,) * 4, 4096, dtype="float16")


def timer(part: Part = PART, split: Split | None = None, made: ModelSpec | None = None, bits: int | None = None) -> Roofline:
    program = build(made or spec(), FAMILY.names)
    return Roofline(program, numbers(program, bits), part, split)


def numbers(program: Program, bits: int | None = None, coded_dtype: str = "bf16") -> Numbers:
    matrices = [name for name, weight in program.weights.items() if weight.matrix] if bits else []
    held = {}
    for name, weight in program.weights.items():
        count = 1
        for size in weight.shape:
            count *= size
        held[name] = count * bits // 8 if bits and name in matrices else 2 * count
    return Numbers(Storage(2, 2, held), "bf16", dict.fromkeys(matrices, bits or 0), coded_dtype)


DECODE, PROMPT = StepWork(((1, 300),) * 3, 3), StepWork(((2000, 2000),), 1)


def test_a_decode_step_of_an_ideal_machine_takes_the_bytes_that_price_counts() -> None:
    program = build(spec(), FAMILY.names)
    cost = Price(program, numbers(program).storage).count(DECODE)
    told = timer().told(DECODE)
    read = 2 * 300 * 3 * 4 * 2 * 4 * 64  # keys and values: without those that are written
    assert told.kv == pytest.approx(read / 1e12)
    assert told.weights == pytest.approx(cost.weight_bytes / 1e12, rel=0.01)  # rows of embeddings are activations here
    assert told.compute == 0 and told.seconds == pytest.approx(told.weights + told.kv + told.activations)


def test_a_prompt_takes_its_operations() -> None:
    program = build(spec(), FAMILY.names)
    operations = Price(program, numbers(program).storage).count(PROMPT).operations
    told = timer().told(PROMPT)
    assert told.compute == pytest.approx(operations / 1e14, rel=0.05) and told.compute > 0.5 * told.seconds


@pytest.mark.parametrize(("field", "value"), [("memory_bandwidth", 2e12), ("op_latency", -0.0)])
def test_decoding_is_as_fast_as_the_memory(field: str, value: float) -> None:
    faster = dataclasses.replace(PART, **{field: value}) if value else PART
    assert timer().seconds(DECODE) / timer(faster).seconds(DECODE) == pytest.approx(value / 1e12 if value else 1)


def test_latencies_are_added_for_each_kernel_and_step() -> None:
    part = dataclasses.replace(PART, op_latency=1e-3, step_latency=10.0)
    told = timer(part).told(DECODE)
    assert told.host == 10 and told.kernels == pytest.approx(1e-3 * (4 * 9 + 3))  # nine a layer; embed, the last norm, logits


def test_codes_are_fewer_bytes_and_slower_to_read() -> None:
    plain, coded = timer().told(DECODE).weights, timer(bits=8).told(DECODE).weights
    assert coded == pytest.approx(plain / 2, rel=0.01)
    part = dataclasses.replace(PART, efficiency=dataclasses.replace(EVERYTHING, codes8=0.5))
    assert timer(part, bits=8).told(DECODE).weights == pytest.approx(plain, rel=0.01)
    program = build(spec(), FAMILY.names)
    rounded = Roofline(program, numbers(program, 8, "int8"), part)
    assert rounded.told(DECODE).weights == pytest.approx(plain / 2, rel=0.01)  # multiplied as they are
    assert rounded.told(PROMPT).compute < timer(part, bits=8).told(PROMPT).compute


def test_codes_of_other_bits_are_unpacked_as_those_that_are_known() -> None:
    """GGUF's Q5 and Q6 types have six bits, which no part's figures tell of."""
    part = dataclasses.replace(PART, efficiency=dataclasses.replace(EVERYTHING, codes8=0.5, codes4=0.25))
    told = {bits: timer(part, bits=bits).told(DECODE).weights / timer(bits=bits).told(DECODE).weights for bits in (8, 6, 4, 3)}
    assert told == pytest.approx({8: 2, 6: 2, 4: 4, 3: 4}, rel=0.01)


def test_codes_may_meet_rows_of_fixed_point() -> None:
    """Where integers of 16 bits are faster than what the rows are; products without codes stay what they were."""
    part = dataclasses.replace(
        PART, ops={**PART.ops, "int16": 1.5e14}, efficiency=dataclasses.replace(EVERYTHING, products={**EVERYTHING.products, "int16": 1.0}))
    work = StepWork(((4096, 4096),))
    assert timer(part, bits=8).seconds(work) < 0.9 * timer(bits=8).seconds(work)
    assert timer(part).seconds(work) == timer().seconds(work)
    slow = dataclasses.replace(part, ops={**part.ops, "int16": 9e13})
    assert timer(slow, bits=8).seconds(work) == timer(bits=8).seconds(work)


def test_windows_bound_what_is_read() -> None:
    long = StepWork(((1, 4000),), 1)
    assert timer(made=spec(window=100)).told(long).kv == pytest.approx(timer().told(long).kv / 40)


def test_rows_read_the_experts_they_are_sent_to() -> None:
    made = spec(ExpertsSpec(16, 2, 256, True))
    one, many = (timer(made=made).told(StepWork(((1, 10),) * count, count)).weights for count in (1, 64))
    experts = 4 * 3 * 16 * 512 * 256 * 2 / 1e12
    assert many - one == pytest.approx(experts * (1 - 2 / 16), rel=0.01)


def test_experts_move_a_copy_of_a_row_for_each_of_those_that_it_is_sent_to() -> None:
    """Sorted, two products, activated between them, summed: for each, four hidden states and six inner ones. Hidden states are moved whole
    by every device of a tensor parallel group, inner ones in parts."""
    part = dataclasses.replace(PART, ops={"fp32": 1e30, "bf16": 1e30}, efficiency=dataclasses.replace(EVERYTHING, experts=0.5))
    rows = StepWork(((1000, 1000),))

    def moved(experts: ExpertsSpec, ranks: int) -> float:
        return timer(part, Split(ranks), spec(experts)).told(rows).activations

    for ranks in (1, 4):
        one, two = (moved(ExpertsSpec(16, 2, inner, True), ranks) for inner in (256, 512))
        assert two - one == pytest.approx(4 * 1000 * 2 * 6 * 256 / ranks * 2 / 1e12)
        fewer, more = (moved(ExpertsSpec(16, active, 256, True), ranks) for active in (2, 4))
        chosen = 2 * 2  # the router's weights and indices of two more
        assert more - fewer == pytest.approx(4 * 1000 * (2 * (4 * 512 + 6 * 256 / ranks) + chosen) * 2 / 1e12)


def test_products_with_experts_reach_a_share_of_others() -> None:
    made, rows = spec(ExpertsSpec(16, 2, 256, True)), StepWork(((4000, 4000),))
    slow = dataclasses.replace(PART, ops={"fp32": 1e12, "bf16": 1e12, "int8": 1e12})
    half = dataclasses.replace(slow, efficiency=dataclasses.replace(EVERYTHING, experts=0.5))
    assert timer(half, made=made).seconds(rows) - timer(slow, made=made).seconds(rows) == pytest.approx(4 * 4000 * 2 * 6 * 512 * 256 / 1e12)
    assert timer(half).seconds(rows) == timer(slow).seconds(rows)


def test_hidden_states_beside_divided_matrices_are_moved_whole() -> None:
    """A layer: two norms that read and write with their residuals, the inputs of two products and the outputs of two others."""
    fast, rows = dataclasses.replace(PART, ops=dict.fromkeys(RATES, 1e30)), StepWork(((1000, 1000),))
    one, four = (timer(fast, Split(ranks)).told(rows).activations for ranks in (1, 4))
    whole = (4 * (2 * 4 + 4) + 2 + 4) * 512 * 1000 * 2 / 1e12  # and the table of embeddings, its row, and the last norm
    assert four == pytest.approx((one - whole) / 4 + whole, rel=0.02)


def test_tensor_parallelism_divides_bytes_and_adds_sums() -> None:
    one, two = timer().told(DECODE), timer(split=Split(2)).told(DECODE)
    assert two.weights == pytest.approx(one.weights / 2, rel=0.02) and two.kv == pytest.approx(one.kv / 2)
    sums = 9 * LINK.all_reduce_seconds(3 * 512 * 2, 2) + LINK.gather_seconds(3 * 1000 * 2, 2)
    assert two.network == pytest.approx(sums) and one.network == 0


def test_a_head_of_keys_is_not_divided() -> None:
    assert timer(split=Split(8)).told(DECODE).kv == pytest.approx(timer().told(DECODE).kv / 4)


def latents(layers: int = 4) -> ModelSpec:
    layer = LayerSpec(rope=RopeSpec(dim=32), experts=ExpertsSpec(16, 2, 256, True, 512, GatingSpec("sigmoid", True, 4, 2)))
    return ModelSpec(1000, 512, 8, 1, 96, 1024, (layer,) * layers, 4096, dtype="float16", latent=LatentSpec(256, 128, 32, 64))


def test_latents_are_read_whole_on_every_device() -> None:
    """288 values a token and layer, that no number of ranks divides; what is made of them is divided by heads."""
    fast = dataclasses.replace(PART, memory_bandwidth=1e13, ops={**RATES, "fp32": 1e16})
    one, eight = (timer(fast, split, latents()) for split in (Split(), Split(8)))
    assert one.told(DECODE).kv == pytest.approx(4 * 3 * 300 * 288 * 2 / 1e13) == pytest.approx(eight.told(DECODE).kv)
    long = StepWork(((4000, 4000),))
    program = build(latents(), FAMILY.names)
    operations = Price(program, numbers(program).storage).count(long).operations
    compute = one.told(long).compute
    assert compute == pytest.approx(operations / 1e14, rel=0.06)
    whole = 4 * 4000 * 2 * 512 * (288 + 128) / 1e14  # down to the latents every device multiplies alike
    assert eight.told(long).compute == pytest.approx((compute - whole) / 8 + whole, rel=0.06)


def test_weights_that_make_latents_are_read_on_every_device() -> None:
    one, eight = (timer(made=latents(), split=split).told(DECODE).weights for split in (Split(), Split(8)))
    whole = 4 * 2 * (512 * (288 + 128) + 16 * 513) / 1e12  # with the routers
    assert eight == pytest.approx((one - whole) / 8 + whole, rel=0.01)


def test_shared_experts_are_summed_with_the_others() -> None:
    """Two sums a layer, as of any other model, and one for the embeddings."""
    told = timer(made=latents(), split=Split(2)).told(DECODE)
    assert told.network == pytest.approx(9 * LINK.all_reduce_seconds(3 * 512 * 2, 2) + LINK.gather_seconds(3 * 1000 * 2, 2))


def test_stages_share_layers_and_send_on() -> None:
    whole, staged = timer(), timer(split=Split(1, 2))
    sent = LINK.send_seconds(3 * 512 * 2)
    assert staged.seconds(DECODE) == pytest.approx(whole.seconds(DECODE) + sent)
    assert whole.interval(DECODE) == whole.seconds(DECODE)
    assert staged.seconds(DECODE) / 2 < staged.interval(DECODE) < staged.seconds(DECODE)


def test_each_stage_begins_a_step_and_the_last_gathers_logits() -> None:
    part = dataclasses.replace(PART, step_latency=1.0)
    assert timer(part, Split(1, 4)).told(DECODE).host == 4 and 1 < timer(part, Split(1, 4)).interval(DECODE) < 2
    at_once = dataclasses.replace(LINK, bandwidth=1e30, base_latency=0.0, hop_latency=0.0, bulk_base_latency=0.0, bulk_hop_latency=0.0)
    slow, fast = (timer(each, Split(2, 2)) for each in (PART, dataclasses.replace(PART, link=at_once)))
    sums, gathered = 9 * LINK.all_reduce_seconds(3 * 512 * 2, 2), LINK.gather_seconds(3 * 1000 * 2, 2)
    assert slow.interval(DECODE) - fast.interval(DECODE) == pytest.approx(sums / 2 + gathered + LINK.send_seconds(3 * 512 * 2 / 2))


def test_times_add_up_and_scale() -> None:
    time = StepTime(1, 2, 3, 4, 5, 6, 7)
    assert time.seconds == 28 and time.scaled(2).seconds == 56 and time.plus(time) == time.scaled(2)


def test_every_op_has_its_kernels() -> None:
    assert set(KERNELS) == set(KINDS)


def measured(**shares: dict[int, dict[int, float]]) -> Part:
    return dataclasses.replace(PART, efficiency=dataclasses.replace(EVERYTHING, by_rows=shares))


def test_products_take_as_long_as_kernels_reach_with_so_many_rows() -> None:
    """Of plain matrices half of the type's rate with many rows, a thousandth with few."""
    part = measured(bf16={512: {3: 0.001, 2000: 0.5}})
    plain, halved = timer().told(PROMPT), timer(part).told(PROMPT)
    attention = 4 * 4 * 8 * 64 * PROMPT.windowed(None)[1] / 1e14
    assert halved.compute - attention == pytest.approx(2 * (plain.compute - attention), rel=0.02)
    few = StepWork(((1, 1),) * 3, 3)
    assert timer().told(few).compute == 0 and timer(part).told(few).compute > 0.9 * timer(part).told(few).seconds


def test_codes_of_a_format_that_was_not_measured_reach_what_they_become() -> None:
    """Numbers of 16 bits, where they are unpacked; with rounded rows, as much of their own rate as in fp8."""
    program = build(spec(), FAMILY.names)
    plain, fp8 = {"bf16": {512: {1: 0.5}}}, {"int8:activations=fp8": {512: {1: 0.25}}}

    def compute(shares: dict[str, dict[int, dict[int, float]]], coded_dtype: str) -> float:
        return Roofline(program, numbers(program, 8, coded_dtype), measured(**shares)).told(PROMPT).compute

    assert compute(plain | fp8, "bf16") == pytest.approx(timer(measured(**plain)).told(PROMPT).compute)
    for shares, alike in ((plain | fp8, 0.25), (plain, 0.5), (plain | fp8 | {"int8": {512: {1: 0.125}}}, 0.25)):
        assert compute(shares, "int8") == pytest.approx(compute({"int8:activations=int8": {512: {1: alike}}}, "int8"))


def test_reading_adds_what_does_not_hide_behind_products() -> None:
    """A quarter of the time that weights are read, whichever of both takes longer; all of it where kernels reach no more."""
    def part(share: float) -> Part:
        efficiency = dataclasses.replace(EVERYTHING, by_rows={"bf16": {512: {1: 0.5}}}, exposed={"bf16": {1: share}})
        return dataclasses.replace(PART, efficiency=efficiency)

    alone = timer(measured(bf16={512: {1: 0.5}}))
    few = StepWork(((1, 1),), 1)
    busy = alone.told(PROMPT).compute
    reading = alone.told(few).weights
    assert timer(part(0.25)).told(PROMPT).compute == pytest.approx(busy + 0.25 * reading, rel=0.01)
    both = timer(part(1.0)).told(few)
    assert both.compute == alone.told(few).compute and both.weights > 1.0001 * reading
    assert timer(part(0.25)).told(few).weights == pytest.approx(reading)


def test_a_longer_row_has_a_share_of_its_own() -> None:
    """Those that lead out of the feed-forward layer are twice as long."""
    one = timer(measured(bf16={512: {1: 1.0}, 1024: {1: 0.5}})).told(PROMPT).compute - timer().told(PROMPT).compute
    assert one == pytest.approx(4 * 2 * 2000 * 1024 * 512 / 1e14)


def test_codes_have_a_share_by_their_bits_and_by_what_is_done_to_rows() -> None:
    program, forms = build(spec(), FAMILY.names), {
        "int8": (8, "bf16"), "int4": (4, "bf16"), "int8:activations=int8": (6, "int8"), "int4:activations=int8": (3, "int8")}
    for form, (bits, multiplied) in forms.items():
        found = numbers(program, bits, multiplied)
        plain = Roofline(program, found, PART).told(PROMPT).compute
        took = {other: Roofline(program, found, measured(**{other: {512: {1: 0.5}}})).told(PROMPT).compute for other in forms}
        assert {other for other, seconds in took.items() if seconds > 1.5 * plain} == {form}


def test_formats_of_codes_are_told_by_what_chooses_their_kernels() -> None:
    kinds = {kind.name: product_form(coding(kind), 1024) for kind in FORMATS.values() if kind.bits}
    told = {"Q8_0": "int8 by 32", "Q4_0": "int4 by 32", "Q4_K": "int4 by 32", "IQ4_NL": "int4 by 32", "MXFP4": "int4 by 32",
            "Q5_1": "int6 by 32", "Q5_K": "int6 by 32", "Q6_K": "int6 by 16", "Q3_K": "int4 by 16", "Q2_K": "int4 by 16"}
    assert {name: kinds[name] for name in told} == told
    q4, q6, iq4 = (coding(kind) for name in ("Q4_K", "Q6_K", "IQ4_NL") for kind in FORMATS.values() if kind.name == name)
    assert product_form(q4.joined(q6), 1024) == product_form(iq4.joined(q6), 1024) == "int6 by 16"
    plain, zeros = (Int4(Int4Options(symmetric=each)).coding((64, 1024), False) for each in (True, False))
    assert plain is not None and product_form(plain, 1024) == "int4" and product_form(by_row(1024), 1024) == "int8"
    assert zeros is not None and product_form(zeros, 1024) == "int4 by 32"


def test_codes_that_are_scaled_by_group_have_a_share_of_their_own() -> None:
    """That of their bits where nothing else is known of a part; so it is with what does not hide."""
    program = build(spec(), FAMILY.names)
    found = numbers(program, 8)
    grouped = dataclasses.replace(found, forms=dict.fromkeys(found.coded, "int8 by 32"))
    by_row, both = measured(int8={512: {1: 0.5}}), measured(**{"int8": {512: {1: 0.5}}, "int8 by 32": {512: {1: 0.125}}})
    slow, few = Roofline(program, found, both).told(PROMPT), StepWork(((1, 1),), 1)
    assert slow == Roofline(program, grouped, by_row).told(PROMPT)
    assert Roofline(program, grouped, both).told(PROMPT).compute > 3 * slow.compute
    for form in ("int8", "int8 by 32"):
        exposed = dataclasses.replace(both, efficiency=dataclasses.replace(both.efficiency, exposed={form: {1: 1.0}}))
        assert Roofline(program, grouped, exposed).told(few).weights > 1.001 * Roofline(program, grouped, both).told(few).weights


def test_an_expert_multiplies_the_rows_that_it_is_sent() -> None:
    """A quarter of 2,000, each with two of eight."""
    made, part = spec(ExpertsSpec(8, 2, 256, True)), measured(bf16={512: {400: 0.5, 600: 0.5, 700: 1.0}})
    more = timer(part, made=made).told(PROMPT).compute - timer(made=made).told(PROMPT).compute
    assert more == pytest.approx(4 * 3 * 2 * 2 * 2000 * 512 * 256 / 1e14, rel=0.01)


def test_heads_of_64_attend_at_a_share_of_their_own() -> None:
    """Half the products for as many exponentials. Heads of 128, half as many, multiply as much."""
    slower = dataclasses.replace(PART, efficiency=dataclasses.replace(EVERYTHING, attention64=0.25))
    wide = dataclasses.replace(spec(), num_heads=4, num_kv_heads=2, head_dim=128)
    pairs = 4 * 2000 * 2001 // 2 * 4 * 8 * 64
    assert timer(slower).told(PROMPT).compute - timer().told(PROMPT).compute == pytest.approx(3 * pairs / 1e14, rel=0.01)
    assert timer(slower, made=wide).told(PROMPT) == timer(made=wide).told(PROMPT)


ROUNDING = dataclasses.replace(PART, op_latency=1e-3, ops=RATES | {"fp8": 2e14}, efficiency=dataclasses.replace(
    EVERYTHING, products={**EVERYTHING.products, "fp8": 1.0}))


def test_rows_are_rounded_group_by_group_once_for_all_that_multiply_them() -> None:
    """Of a layer's products queries, keys and values are one, as gates are: four kinds of rows. With a scale for each row nothing is
    rounded apart, nor where the part unpacks the codes."""
    program = build(spec(), FAMILY.names)
    plain = numbers(program, 8, "fp8")
    by_group = dataclasses.replace(plain, grouped=frozenset(plain.coded))
    first = dataclasses.replace(plain, grouped=frozenset(name for name in plain.coded if name.startswith("layers.0.")))

    def more(grouped: Numbers, part: Part = ROUNDING, ranks: int = 1) -> tuple[float, float]:
        with_it, without = (Roofline(program, each, part, Split(ranks)).told(DECODE) for each in (grouped, plain))
        return with_it.kernels - without.kernels, (with_it.activations - without.activations) * 1e12

    assert more(first)[0] == pytest.approx(4e-3) and more(by_group)[0] == pytest.approx(4 * 4e-3 + 1e-3)
    assert more(by_group, dataclasses.replace(ROUNDING, ops=RATES))[0] == 0
    assert more(by_group)[1] == pytest.approx((4 * (512 + 512 + 512 + 1024) + 512) * 3 * 2)  # bytes that are read once more
    assert more(by_group, ranks=4)[1] == pytest.approx((4 * (512 + 512 / 4 + 512 + 1024 / 4) + 512) * 3 * 2)


def test_experts_have_their_rows_rounded_before_either_product() -> None:
    """Whatever their scales are for; not where codes are unpacked."""
    program = build(spec(ExpertsSpec(8, 2, 256, True)), FAMILY.names)
    plain = numbers(program, 8, "fp8")
    experts = [op for op in program.ops if op.kind == "moe_experts"]
    by_group = dataclasses.replace(plain, grouped=frozenset(name for op in experts for name in op.weights))
    told = Roofline(program, plain, ROUNDING).told(DECODE)
    unpacked = Roofline(program, plain, dataclasses.replace(ROUNDING, ops=RATES)).told(DECODE)
    assert told.kernels - unpacked.kernels == pytest.approx(2 * len(experts) * 1e-3)
    assert told.activations - unpacked.activations == pytest.approx(len(experts) * (512 + 2 * 256) * 3 * 2 / 1e12)
    assert Roofline(program, by_group, ROUNDING).told(DECODE) == told


def test_a_part_counts_the_kernels_that_were_timed_on_it() -> None:
    """Of a layer four products, attention and five more; the logits are a product as well."""
    slow = dataclasses.replace(PART, op_latency=1e-3)
    timed = dataclasses.replace(slow, kernels={"product": 2.0, "attention": 5.0})
    assert timer(timed).told(DECODE).kernels - timer(slow).told(DECODE).kernels == pytest.approx(1e-3 * (4 * (4 + 4) + 1))
    made, sorting = spec(ExpertsSpec(8, 2, 256, True)), dataclasses.replace(slow, kernels={"experts": 7.0, "unpacked_experts": 12.0})
    more = {bits: timer(sorting, made=made, bits=bits).told(DECODE).kernels - timer(slow, made=made, bits=bits).told(DECODE).kernels
            for bits in (None, 4)}
    assert more == pytest.approx({None: 4 * 2e-3, 4: 4 * 7e-3})


def test_whole_experts_move_fewer_copies_and_wait_for_the_busiest_device() -> None:
    """A device divides none, and has a quarter of them: hidden states of the rows that it is sent, once."""
    part = dataclasses.replace(PART, ops={"fp32": 1e30, "bf16": 1e30})
    made, rows = spec(ExpertsSpec(16, 2, 256, True)), StepWork(((1000, 1000),))
    cut, whole = (timer(part, Split(4, 1, experts), made).told(rows) for experts in (1, 4))
    most = Spread(16, 2, 4).load(1000)
    saved = 2 * 4 * 512 - 2 / 4 * (2 + 2 * most) * 512 + 6 * 256 / 4 * 2 * (1 - most)  # hidden states, and inner ones of both copies
    assert cut.activations - whole.activations == pytest.approx(4 * 1000 * 2 * saved / 1e12)
    assert whole.network == cut.network and whole.kernels == cut.kernels, "what devices made of their rows is summed either way"


def test_whole_experts_are_read_unevenly() -> None:
    made = spec(ExpertsSpec(16, 2, 256, True))
    for count in (1, 64):
        work = StepWork(((1, 10),) * count, count)
        cut, whole = (timer(PART, Split(4, 1, experts), made).told(work).weights for experts in (1, 4))
        experts = 4 * 3 * 16 * 512 * 256 * 2 / 4 / 1e12
        assert whole - cut == pytest.approx(experts * (Spread(16, 2, 4).read(count) - Spread(16, 2).read(count)))


def test_experts_in_fp8_by_blocks_reach_a_share_of_their_own() -> None:
    program = build(spec(ExpertsSpec(8, 2, 256, True)), FAMILY.names)
    plain, rows = numbers(program, 8, "fp8"), StepWork(((4000, 4000),))
    by_blocks = dataclasses.replace(plain, grouped=frozenset(name for op in program.ops if op.kind == "moe_experts" for name in op.weights))
    slow = dataclasses.replace(PART, ops={**dict.fromkeys(RATES, 1e12), "fp8": 1e12},
                               efficiency=dataclasses.replace(EVERYTHING, products={**EVERYTHING.products, "fp8": 1.0}))
    half = dataclasses.replace(slow, efficiency=dataclasses.replace(slow.efficiency, experts_blocks=0.5))
    unknown, known = (Roofline(program, by_blocks, part).told(rows).compute for part in (slow, half))
    assert known - unknown == pytest.approx(4 * 4000 * 2 * 6 * 512 * 256 / 1e12, rel=0.01)
    assert Roofline(program, plain, half).told(rows).compute == pytest.approx(unknown)
