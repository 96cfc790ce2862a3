"""The timeline and the block map in a browser: what is drawn, and what is told of what is pointed at."""
import pytest

from tests.serve.api.dashboard.browser import MISSING, Browser, find_browser

pytestmark = pytest.mark.skipif(find_browser() is None, reason=MISSING)


def test_evictions_do_not_hide_whose_the_blocks_are(live: Browser) -> None:
    """However many there are, few cells are struck out, of the latest, wherever these lie."""
    live.press("p")
    told = live.evaluate("""(() => {
      const map = { cells: btoa("\\x01".repeat(600)), fill: null, per_cell: 1, blocks: 600, shared: 0, cached: 600 };
      for (let each = 0; each < 4; each++) takeBlocks({ ...map, evicted: [...Array(150).keys()].map((cell) => 150 * each + cell) }, 16);
      return [...blocks.evicted.keys()];
    })()""")
    live.press("p")
    assert 99 <= len(told) <= 100 and min(told) == 450 and max(told) > 595


def test_every_colour_of_the_map_is_in_its_legend(live: Browser) -> None:
    """Requests beyond the lanes have one colour together, which is told of while it is seen."""
    live.press("p")
    shown = live.evaluate("""[1, 2, 130].map((cell) => {
      const map = { fill: null, per_cell: 1, blocks: 2, shared: 0, cached: 1, evicted: [] };
      takeBlocks({ ...map, cells: btoa("\\x00" + String.fromCharCode(cell)) }, 16);
      return at('blocks-other').offsetWidth > 0;
    })""")
    live.press("p")
    assert shown == [False, True, True]


@pytest.mark.parametrize("panel", ["timeline", "blocks"])
def test_what_a_finger_touched_is_told_until_it_touches_elsewhere(live: Browser, panel: str) -> None:
    """A phone has no pointer that could stay over a lane."""
    live.press("p")
    told = live.evaluate(f"""(() => {{
      const canvas = at("{panel}"), read = at("{panel}-read"), told = [], {{ x, y }} = canvas.getBoundingClientRect();
      const point = (kind, pointerType, clientY) =>
        canvas.dispatchEvent(new PointerEvent(kind, {{ pointerType, clientX: x + 9, clientY }}));
      for (const [kinds, type] of [[["pointerdown", "pointerup", "pointerleave"], "touch"], [["pointermove"], "mouse"],
                                   [["pointerleave"], "mouse"]]) {{
        for (const kind of kinds) point(kind, type, y + 9);
        told.push(/^(Lane 1|Block 0)/.test(read.textContent));
      }}
      point("pointermove", "mouse", y + canvas.clientHeight - 1);
      return [...told, /^(Lane|Block) /.test(read.textContent)];
    }})()""")
    live.press("p")
    assert told == [True, True, False, False], "at last what is below the last lane, or block"


def test_blocks_are_not_shown_as_those_of_a_request_that_had_the_lane_before(live: Browser) -> None:
    live.press("p")
    alphas = live.evaluate("""(async () => {
      for (const [id, state, ended] of [["a", "ended", 5], ["b", "running", null]])
        timeline.requests.set(id, [0, id, state, 1, 1, 1, ended, 8, 0, 4, 1, 0, 1]);
      takeBlocks({ cells: btoa("\\x03"), per_cell: 1, blocks: 1, shared: 0, cached: 0, evicted: [] }, 16);
      const pen = at("blocks").getContext("2d"), fill = pen.fillRect, alphas = [];
      pen.fillRect = (...box) => { alphas.push(pen.globalAlpha); fill.apply(pen, box); };
      for (const request of ["a", "b", null]) {
        choose(request);
        await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      }
      return alphas;
    })()""")
    live.press("p")
    assert alphas == [0.25, 1, 1]


def test_thousands_of_short_requests_are_drawn_without_a_stroke_for_each(live: Browser) -> None:
    live.press("p")
    strokes = live.evaluate("""(() => {
      timeline.requests.clear();
      timeline.now = 100;
      const pen = document.createElement("canvas").getContext("2d");
      let strokes = 0;
      pen.stroke = () => strokes++;
      const row = (id, begun, ended) => timeline.requests.set(id, [id % 64, id, "ended", 90, begun, begun, ended, 8, 0, 4, 0, 0, 90]);
      for (let id = 0; id < 5000; id++) row(id, 90.001, 90.002);
      drawLanes(pen, 800, frame(800, 300));
      row(5000, 95, 96);
      const before = strokes;
      drawLanes(pen, 800, frame(800, 300));
      return [before, strokes];
    })()""")
    live.press("p")
    assert strokes == [0, 1], "the one that waited for long is seen to"


def test_a_cell_of_many_blocks_is_as_full_of_its_request_as_that_holds_of_it(live: Browser) -> None:
    """Fifteen blocks to a cell: what is only cached there is not in the request's colour, nor said to be held."""
    live.press("p")
    told = live.evaluate("""(() => {
      const code = (...shares) => btoa(String.fromCharCode(...shares));
      timeline.requests.clear();
      timeline.requests.set("r", [0, "r", "running", 1, 1, null, null, 8, 0, 0, 0, 0, 1]);
      takeBlocks({ cells: code(3, 1, 0), held: code(17, 0, 0), fill: code(255, 136, 0), per_cell: 15, blocks: 40, shared: 0, cached: 22,
                   evicted: [] }, 16);
      const found = [[0, 1, 2].map((cell) => layers(cell, 15)), [0, 1, 2].map(toldCell)];
      takeBlocks({ cells: code(3), held: code(6), fill: code(255), per_cell: 300, blocks: 300, shared: 0, cached: 294, evicted: [] }, 16);
      return [...found, toldCell(0)];
    })()""")
    live.press("p")
    assert told == [[[[0, 15], [1, 15], [3, 1]], [[0, 15], [1, 8]], [[0, 15]]],
                    ["Blocks 0 to 14: 1 held, the first by r, 14 reusable.", "Blocks 15 to 29: 8 reusable.", "Blocks 30 to 39: free."],
                    "Blocks 0 to 299: about 7 held, the first by r, about 293 reusable."]
