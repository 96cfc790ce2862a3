import json
import re
from array import array
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from penstock.core.hardware import Hardware
from penstock.study.measure.bench import doubts
from penstock.study.measure.cost import cost
from penstock.study.measure.counters import Queue, ServerFigures
from penstock.study.measure.energy import Energy
from penstock.study.measure.goodput import Found, in_doubt
from penstock.study.measure.metrics import Warmup, figures
from penstock.study.measure.report.html import page
from penstock.study.measure.report.plots import charts, nines
from penstock.study.measure.report.svg import HEIGHT, RIGHT, WIDTH, Axis, Chart, Dots, Line, Rule, decades, draw, short, steps
from penstock.study.measure.report.text import answer, lines, ms
from penstock.study.measure.result import Cut, Overhead, Probe, Report, Result
from penstock.study.measure.samples import Sample
from penstock.study.measure.series import series
from penstock.study.measure.slo import parse_slo
from penstock.study.measure.statistics import distribution

MACHINE = Hardware("test", {1 << 30: 2e10}, {"fp32": 2e11, "bf16": 8e11})
NASTY = "<script>alert('x')</script>"


def samples(count: int = 60) -> list[Sample]:
    made = []
    for number in range(count):
        sample = Sample(number, number * 0.2, sent_s=number * 0.2, num_prompt=16 + 8 * number, num_output=5)
        for token in range(5):
            sample.arrived(sample.due_s + 0.05 + 0.001 * number + token * 0.02)
        sample.end_s = sample.last_s
        made.append(sample)
    if count > 7:
        made[7].error = NASTY
    return made


def result(made: list[Sample] | None = None) -> Result:
    given = samples() if made is None else made
    found = figures(given, Warmup(share=0.1), parse_slo("ttft=90ms,tpot=50ms"))
    server = ServerFigures(Queue(50, 0.01, ((50, 0.008), (99, None))), 0.4, 0.7, 4e10, 3.0, 0.3)
    return Result(found, series(given), server, cost(2.0, found.rates, 0.3), Energy("tdp", 900.0, 80.0, 0.5, 0.1, 9.0),
                  Overhead(distribution([0.0001]), distribution([0.0002]), 0.05), ("a note",), tuple(given))


def report(made: Result | None = None) -> Report:
    found = result() if made is None else made
    probes = tuple(Probe(rate, found) for rate in (1.0, 2.0, 1.5))
    load = {"arrivals": "poisson:rate=5", "dataset": "synthetic", "warmup": "10%"}
    return Report(found, {"model": f"brook {NASTY}"}, load, MACHINE, "bf16", probes, 1.5)


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs


def test_a_page_stands_alone() -> None:
    text = page(report())
    tags = Tags(text)
    assert not {"script", "link", "img", "iframe", "object", "image", "use"} & set(tags.names)
    assert not {"src", "href", "onload", "onclick", "style"} & {name for name, _ in tags.attributes}
    assert not re.search(r"https?:|url\(|@import", text)
    assert "prefers-color-scheme: dark" in text and tags.names.count("svg") == 7


def test_a_page_has_nothing_that_a_phone_would_cut() -> None:
    """Nor a tablet held upright: the table of latencies takes 840 pixels."""
    text = page(report())
    assert "<pre" not in text and "overflow-x" not in text and "(max-width: 640px)" in text
    assert "@media (max-width: 900px) { .spread, .spread tbody { display: block; }" in text
    assert "width=device-width, initial-scale=1" in text
    assert '<td data-of="p99">' in text, "where a row of the table is a card, each figure says what it is"
    assert "<tr><th>queue (server)</th><td>mean" in text and "<tr><th>goodput</th><td>" in text


def test_a_page_shows_what_was_measured() -> None:
    text = page(report())
    for said in ("TTFT", "time to publish", "p99", "goodput", "MFU of prefill 40.0%", "MBU of decode 70.0%", "not measured", "a note",
                 "poisson:rate=5", "this run", "ttft SLO", "tokens/s", "&lt;script&gt;"):
        assert said in text, said


def test_every_plot_is_xml_and_within_its_frame() -> None:
    for chart in charts(report()):
        tree = ElementTree.fromstring(draw(chart))
        for circle in tree.iter("circle"):
            assert 0 <= float(circle.attrib["cx"]) <= WIDTH and 0 <= float(circle.attrib["cy"]) <= HEIGHT
        for path in tree.iter("path"):
            assert "nan" not in path.attrib["d"] and "inf" not in path.attrib["d"]


def test_names_at_the_edge_of_a_plot_are_not_cut() -> None:
    """Letters of a wide font take 8.8 of the plot's units each, as measured in DejaVu Sans Bold."""
    made = samples()
    for sample in made:
        sample.visible_s = sample.last_s
    shown = figures(made, Warmup(share=0.1), parse_slo("publish=1s,ttft=90ms"))
    chart = next(charts(report(replace(result(made), figures=shown))))
    names = {text.text or "": float(text.attrib["x"]) for text in ElementTree.fromstring(draw(chart)).iter("text")
             if text.attrib.get("class", "").startswith("label")}
    assert {"publish SLO", "end to end", "to publish"} <= set(names)
    assert all(x + 8.8 * len(name) <= WIDTH for name, x in names.items())


def test_names_that_meet_at_the_lower_edge_stay_within_the_plot() -> None:
    rules = [Rule(1.0, f"{name} SLO") for name in ("ttft", "tpot", "itl", "e2e", "publish")]
    chart = Chart("c", Axis("x", 0, 3), Axis("ms", 1, 1000, log=True), [*rules, Line([(0, 1), (3, 1.1)], "TPOT"), Line([(0, 9)], "TTFT")])
    ys = sorted(float(text.attrib["y"]) for text in ElementTree.fromstring(draw(chart)).iter("text")
                if text.attrib.get("class", "").startswith("label"))
    assert len(ys) == 7 and ys[0] > 0 and ys[-1] < HEIGHT - 4 and all(low + 13 <= high for low, high in pairwise(ys))


def test_gaps_of_nothing_count_in_a_plot_that_has_no_place_for_them() -> None:
    """Pieces that came in pairs: half of the gaps are none, and so is the median, as the table has it."""
    paired = samples()
    for sample in paired:
        sample.chunk_s[1:] = array("d", [sample.chunk_s[0], *[sample.chunk_s[0] + 0.02] * 2, sample.chunk_s[-1]])
    made = result(paired)
    line = next(mark for mark in next(charts(report(made))).marks if isinstance(mark, Line) and mark.label == "ITL")
    assert made.figures.latencies.itl.at(50) == pytest.approx(0.01) and line.points[0][0] >= nines(49)
    assert dict(line.points)[nines(90)] == pytest.approx(1000 * (made.figures.latencies.itl.at(90) or 0))
    for sample in paired:
        sample.chunk_s[1:] = array("d", [sample.chunk_s[0]] * 3)
    assert "ITL" not in {mark.label for mark in next(charts(report(result(paired)))).marks}


def test_answers_without_reasoning_are_published_with_their_first_token() -> None:
    assert "to publish" not in {mark.label for mark in next(charts(report())).marks}


def test_a_page_of_next_to_nothing() -> None:
    one = samples(1)
    text = page(Report(result(one), {"url": "http://h/v1"}, {}))
    assert "http://h/v1" in text and Tags(text).names.count("svg") >= 3
    failed = samples(1)
    failed[0].fail("gone", 1.0)
    assert "1 failed" in page(Report(result(failed), {"model": "m"}, {}))


def test_refusals_have_a_line_of_their_own() -> None:
    made = samples(20)
    for sample in made[10:15]:
        sample.status = 429
        sample.fail(f"status 429: try again in {sample.number} s", sample.due_s)
    found = result(made)
    told = "\n".join(lines(report(found)))
    assert "12 answered, 5 refused, 1 failed" in told and "  refused: 5 (27.8%), the first: status 429: try again in 10 s" in told
    assert "6 of 18 measured requests were refused or failed" in " ".join(doubts(found.figures, found.overhead))


def test_only_what_was_asked_is_among_the_settings() -> None:
    made = page(Report(result(samples()), {"model": "m"}, {"duration": 4.0, "requests": None, "stream": True}))
    assert "--duration" in made and "--stream" in made and "--requests" not in made and "None" not in made


def test_large_rates_are_written_out() -> None:
    fast = samples()
    for sample in fast:  # all of them in a few milliseconds
        sample.due_s /= 1000
    told = next(line for line in lines(report(result(fast))) if line.startswith("requests "))
    assert "e+" not in told


def test_columns_of_long_times_stay_apart() -> None:
    slow = samples()
    for sample in slow:
        sample.due_s -= 120 + sample.number
    head, first = [line for line in lines(report(result(slow))) if line.startswith(("ms  ", "TTFT"))]
    cells = re.findall(r"[0-9,.]+ \[[0-9,.?]+, [0-9,.?]+\]", first)
    assert len(cells) == 4 and first.split("]  ") != [first] and first.count("]  ") == 4 and len(max(cells, key=len)) > 25
    assert [head.index(name) + len(name) for name in ("p50", "p90")] == [first.index(cell) + len(cell) for cell in cells[:2]]


def test_what_is_not_known_has_no_line() -> None:
    made = samples(7)
    for sample in made:
        del sample.chunk_s[1:]
        sample.last_s = sample.first_s
    told = "\n".join(lines(report(result(made))))
    assert "an event held 5.00 tokens\n" in told and "TTFT" in told and not re.search("TPOT  |ITL|per user", told)
    assert "TPOT  " in "\n".join(lines(report()))


def test_the_terminal_is_told_the_same() -> None:
    said = "\n".join(lines(report()))
    for word in ("54 measured", "goodput", "queue (server)", "MBU of decode 70.0%", "a million output tokens", "not measured",
                 "note: a note", "<- most that came at a rate that keeps the SLO", "reads late by"):
        assert word in said, word


def test_why_there_is_no_mfu_is_told_where_the_server_counts_steps() -> None:
    ours, foreign = ("\n".join(lines(report(replace(result(), server=ServerFigures(operations_per_s=rate))))) for rate in (4e10, None))
    assert "MFU and MBU are not known: `penstock limits` was not run" in ours and "MFU" not in foreign


def test_a_search_is_answered_in_a_sentence_first() -> None:
    whole = replace(report(), attain=0.9)
    told = list(lines(whole))
    assert whole.found is not None
    asked = f"{whole.found.came:.3g} requests/s ({whole.found.rate:.3g} asked for)"
    assert told[1].startswith(f"goodput: {asked} is the most at which 90% of the requests keep ")
    assert f"({whole.found.kept:.1%} did; " in told[1]
    assert "; at " in told[1], "a higher one kept less than nine tenths"
    assert "no higher rate kept less" in list(lines(replace(whole, attain=0.5)))[1]
    assert "no higher rate was measured" in list(lines(replace(whole, search=(whole.found,))))[1]
    assert " 99.5% of the requests keep " in list(lines(replace(whole, attain=0.995)))[1]
    none = list(lines(replace(whole, goodput_rate=None)))
    assert none[1].startswith("goodput: none (0 requests/s); at no rate that was tried do 90% of the requests keep ")
    search = replace(whole, goodput_rate=None).as_json()["search"]
    assert search["rate"] is None and search["goodput_requests_per_s"] == 0.0
    assert whole.as_json()["search"]["goodput_requests_per_s"] > 0
    assert not list(answer(replace(whole, search=())))
    few = replace(report(result(samples(12))), attain=0.9)
    doubt = in_doubt(Found(few.found, few.search), 0.9)
    assert doubt is not None
    said = list(lines(replace(few, result=replace(few.result, notes=(doubt, "a note")))))
    assert said[2].startswith("  the rate is in doubt") and [line for line in said if line.startswith("note:")] == ["note: a note"]


def test_a_page_of_a_search_begins_with_its_answer() -> None:
    whole = replace(report(result(samples(12))), attain=0.9)
    sentence, doubt = (line.strip() for line in answer(whole))
    text = page(replace(whole, result=replace(whole.result, notes=(doubt, "a note"))))
    assert text.index(sentence) < text.index("requests, ") and text.count(doubt) == 1 and "a note" in text
    assert "is the most at which" not in page(replace(whole, search=()))


def test_a_search_that_was_cut_short_found_the_highest_of_what_it_tried() -> None:
    whole = report()
    cut = report(replace(whole.result, cut=Cut("Ctrl-C", 5.0, 2)))
    for told, arrow in (("\n".join(lines(cut)), "<-"), (unescape(page(cut)), "←")):
        assert "at a rate that" not in told and f"{arrow} most that came of the rates tried so far that keep the SLO" in told
    for told, arrow in (("\n".join(lines(whole)), "<-"), (unescape(page(whole)), "←")):
        assert f"{arrow} most that came at a rate that keeps the SLO" in told and "so far" not in told
    assert "1.5 requests/s asked for, " in "\n".join(lines(whole)) and "<th>1.5</th><td>5</td>" in page(whole)
    assert [each.as_json()["search"]["ended_early"] for each in (cut, whole)] == [True, False]


def test_a_warm_up_is_told_as_it_was_asked_for() -> None:
    asked = report()
    first = next(line for line in lines(asked) if "measured" in line)
    assert first.startswith("at 5 requests/s, 1.5 asked for: 60 requests, 54 measured after a warm-up of 10% of the requests (1.2 s), over")
    assert first in unescape(page(asked))
    assert any(line.startswith("60 requests, 54 measured") for line in lines(replace(asked, goodput_rate=None)))
    for given in ("5s", "0%"):
        assert "after 1.2 s of warm-up" in "\n".join(lines(replace(asked, load={"warmup": given})))


def test_a_result_is_json() -> None:
    told = json.loads(json.dumps(report().as_json(), allow_nan=False))
    came = [told["came_per_s"], told["search"]["came_per_s"], told["search"]["probes"][0]["came_per_s"]]
    assert came == pytest.approx([5, 5, 5]), "every 0.2 s"
    assert told["format"] == 1 and told["search"]["rate"] == 1.5 and len(told["search"]["probes"]) == 3
    assert told["server"]["mfu"] == 0.4 and told["cost"]["usd_per_hour"] == 2.0 and told["energy"]["source"] == "tdp"
    assert told["client"]["overhead_p99_s"] == pytest.approx(0.0003)


@pytest.mark.parametrize(("source", "how"), [
    ("tdp", "(from the rated power, not measured)"), ("nvml", "(NVML, of the GPUs alone)"),
    ("rapl", "(RAPL)"), ("rapl+nvml", "(RAPL+NVML)")])
def test_a_reader_learns_whose_energy_it_is(source: str, how: str) -> None:
    told = report()
    assert told.result.energy is not None
    result = replace(told.result, energy=replace(told.result.energy, source=source))
    assert any(line.startswith("energy") and line.endswith(how) for line in lines(replace(told, result=result)))


def test_axes() -> None:
    assert steps(0, 10) == [0, 2, 4, 6, 8, 10] and steps(0, 0.3) == pytest.approx([0, 0.1, 0.2, 0.3])
    assert decades(0.9, 1100) == [1, 10, 100, 1000] and decades(8, 60) == [10, 20, 50]
    assert decades(213, 307) == [220, 240, 260, 280, 300] and decades(1.1, 2.6) == [1.5, 2, 2.5], "one mark alone is no scale"
    assert [short(value) for value in (0, 0.1234, 999.9, 12345, 2.5e9)] == ["0", "0.123", "1k", "12.3k", "2.5G"]
    log = Axis("x", 1, 100, log=True)
    assert (log.share(10), log.share(0.1), log.share(1e9)) == (pytest.approx(0.5), 0, 1)
    assert nines(90) == pytest.approx(1) and nines(99.9) == pytest.approx(3)


def test_marks_are_drawn_where_they_belong() -> None:
    chart = Chart("a < b", Axis("x", 0, 10), Axis("y", 0, 10), [Line([(0, 0), (10, 10)], "l"), Dots([(5, 5)], "d"), Rule(10, "r")])
    tree = ElementTree.fromstring(draw(chart))
    circle, line = next(tree.iter("circle")), next(path for path in tree.iter("path") if "line" in path.attrib["class"])
    start, end = line.attrib["d"].removeprefix("M").split("L")
    xs, ys = zip(*(map(float, point.split()) for point in (start, end)), strict=True)
    assert float(circle.attrib["cx"]) == pytest.approx(sum(xs) / 2) and float(circle.attrib["cy"]) == pytest.approx(sum(ys) / 2)
    assert tree.attrib["aria-label"] == "a < b" and ys[1] < ys[0]


@pytest.mark.parametrize(("x", "anchor"), [(5.0, "start"), (9.9, "end")])
def test_a_single_dot_has_its_name_beside_it(x: float, anchor: str) -> None:
    """Among the names at the edge, one says nothing of which line's or dot's it is."""
    chart = Chart("c", Axis("x", 0, 10), Axis("y", 0, 10), [Line([(0, 5), (10, 5)], "a line"), Dots([(x, 5)], "this run", radius=6)])
    tree = ElementTree.fromstring(draw(chart))
    circle, name = next(tree.iter("circle")), next(text for text in tree.iter("text") if text.text == "this run")
    assert name.attrib["text-anchor"] == anchor and abs(float(name.attrib["y"]) - float(circle.attrib["cy"])) < 6
    assert 6 < abs(float(name.attrib["x"]) - float(circle.attrib["cx"])) < 14
    assert next(float(text.attrib["x"]) for text in tree.iter("text") if text.text == "a line") > WIDTH - RIGHT


def test_milliseconds_have_three_digits() -> None:
    assert [ms(value) for value in (0.0012345, 0.012345, 12.345, None)] == ["1.23", "12.3", "12,345", "?"]


def test_options_are_repeated_as_they_are_given() -> None:
    text = page(Report(result(), {"url": "http://h/v1"}, {"send_slo": False, "request_timeout": 600.0}))
    assert "<th>--send-slo</th><td>no</td>" in text and "<th>--request-timeout</th><td>600.0</td>" in text


def test_a_late_client_is_told_where_nothing_is_known_of_first_tokens() -> None:
    made = samples(7)
    for sample in made:
        sample.unstreamed, sample.first_s = True, None
    found = figures(made, Warmup(), parse_slo("e2e=1s"))
    late = Overhead(distribution([0.5]), distribution([0.1]), 0.05)
    assert any("600.00 ms late (p99)" in note and note.endswith("of the median time to the last token") for note in doubts(found, late))
    assert any(note.endswith("of the median TTFT") for note in doubts(figures(samples(7), Warmup(), None), late))


def test_the_runs_own_roof_lies_above_the_others_and_equal_ones_are_one() -> None:
    machine = Hardware("test", {1 << 30: 2e10}, {"fp32": 2e11, "bf16": 4.68e11, "int16": 4.69e11, "int8": 9e11})
    (chart,) = (each for each in charts(replace(report(), hardware=machine)) if each.title.startswith("Roofline"))
    assert [(mark.label, mark.dashed) for mark in chart.marks if isinstance(mark, Line)] == [
        ("fp32", True), ("int8", True), ("bf16, int16", False)]
