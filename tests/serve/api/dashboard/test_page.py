"""The page in a browser: what it shows, the keyboard, both themes, any window, and that it asks nobody else for anything."""
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from penstock.serve.api.dashboard.html import PAGE, page
from tests.serve.api.dashboard.browser import MISSING, Browser, find_browser
from tests.serve.api.dashboard.conftest import ASK, KEY, Served, serve

WINDOWS = {"phone": (390, 844, 2), "laptop": (1366, 768, 1), "4K": (3840, 2160, 1)}
needs_browser = pytest.mark.skipif(find_browser() is None, reason=MISSING)
PLACED = "document.documentElement.scrollWidth <= innerWidth"


class Tags(HTMLParser):
    """Ids, and what refers to ids; every address in the page."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.refers: list[str] = []
        self.addresses: list[str] = []
        self.named: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        assert "style" not in found and not any(name.startswith("on") for name in found), "the policy forbids it"
        self.ids += [found["id"]] if "id" in found else []
        for name in ("aria-labelledby", "aria-describedby", "for"):
            self.refers += found.get(name, "").split()
        self.addresses += [found[name] for name in ("href", "src", "action") if name in found]
        if tag in ("canvas", "section", "dialog"):
            self.named.append((tag, "aria-label" in found or "aria-labelledby" in found))


def test_the_page_is_whole() -> None:
    text = page().body.decode()
    tags = Tags()
    tags.feed(text)
    assert len(tags.ids) == len(set(tags.ids)) and set(tags.refers) <= set(tags.ids)
    assert all(address.startswith(("data:", "#")) for address in tags.addresses), tags.addresses
    assert all(named for _, named in tags.named) and "<link rel=\"stylesheet\"" not in text and "<script src" not in text
    used = set(re.findall(r'\bat\("([\w-]+)"\)', text)) | set(re.findall(r'sparkline\("([\w-]+)"', text))
    assert len(used) > 30 and used <= set(tags.ids)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|DOMParser", text), "words are text"
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text) and len(page().body) < 120_000


def test_the_policy_lets_nothing_else_in() -> None:
    policy = page().headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy and policy.count("'sha256-") == page().body.count(b"<style>") + page().body.count(b"<script>") > 2


def test_every_file_of_the_page_is_in_it() -> None:
    folder = Path(__file__).parents[4] / PAGE.replace(".", "/") / "page"
    body = page().body.decode()
    for file in folder.iterdir():
        assert file.name == "index.html" or file.read_text() in body, f"{file.name} is not in the page"


@needs_browser
def test_an_idle_engine_is_shown_calmly(live: Browser) -> None:
    live.until("document.getElementById('sentence').textContent.startsWith('Idle')")
    text = live.evaluate("document.body.innerText")
    assert "tiny" in text and "a test's machine" in text and "no request in the last minute" in text and "64 blocks of 16 tokens" in text
    assert "NaN" not in text and "undefined" not in text and "Infinity" not in text
    assert not live.complaints, live.complaints
    assert {request.partition("?")[0] for request in live.requests if request.startswith("http")} == {
        live.evaluate("location.href"), live.evaluate("new URL('dashboard/events', location).href")}


@needs_browser
def test_a_request_is_seen_everywhere(live: Browser, served: Served) -> None:
    with served.running():
        live.until("timeline.columns.some((column) => column[3].some((cell) => cell[1] > 0))")
        live.until("timeline.columns.some((column) => column[3].some((cell) => cell[2] > 0))")
        live.until("blocks.cells.some((value) => value >= 3)")
    with served.client() as client:
        for _ in range(2):
            client.post("/v1/chat/completions", json=ASK).raise_for_status()
    live.until("latencies.ttft.told.n >= 3")
    live.until("Object.values(roofline.trail).some((trail) => trail.length > 0)")
    assert live.evaluate("document.getElementById('ttft').innerText").count("ms") >= 3
    drawn = """(() => {
      const canvas = document.getElementById('timeline');
      const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
      return new Set(new Uint32Array(pixels.buffer)).size;
    })()"""
    assert live.evaluate(drawn) > 10 and not live.complaints


@needs_browser
def test_those_who_were_refused_are_told_of_beside_those_who_were_served(live: Browser) -> None:
    live.press("p")
    told = live.evaluate("""[[8, { refused: 7, deferred: 0 }], [0, { refused: 1200, deferred: 1 }], [8, { refused: 0, deferred: 0 }]]
      .map(([n, late]) => {
        latencies.ttft.show({ n, p50: 0.1, p90: 0.1, p99: 0.1, slo: 0.2, asked: n, met: n / 2, span_s: 60 }, late);
        return document.querySelector("#ttft .told").textContent;
      })""")
    live.press("p")
    assert [text.replace("\u202f", "").replace("\xa0", " ") for text in told] == [
        "50.0% of 8 kept theirs · 7 refused", "1,200 refused · 1 deferred", "50.0% of 8 kept theirs"]


@needs_browser
def test_the_chat_answers_and_keeps_its_thread(live: Browser, served: Served) -> None:
    live.press("/")
    assert live.evaluate("document.activeElement.id") == "say"
    live.type("tell me about the fox")
    live.evaluate("document.getElementById('max-tokens').value = 12; document.getElementById('temperature').value = 0; 1")
    live.press("Enter")
    live.until("document.querySelector('#log .meta')?.textContent.includes('first token after')")
    assert "12 out" in live.evaluate("document.querySelector('#log .meta').textContent")
    assert live.evaluate("document.querySelector('#log .user').textContent") == "tell me about the fox"
    assert live.evaluate("chat.messages.map((message) => message.role).join()") == "user,assistant" and not live.complaints
    live.evaluate("document.getElementById('clear').click(); 1")
    assert live.evaluate("chat.messages.length") == 0


@needs_browser
def test_what_was_not_answered_or_was_cleared_is_forgotten(live: Browser, served: Served) -> None:
    live.press("/")
    live.evaluate("document.getElementById('max-tokens').value = 100000; 1")
    live.type("too much")
    live.press("Enter")
    live.until("document.querySelector('#log .error')?.textContent.includes('max_tokens')")
    live.until("document.getElementById('say').value === 'too much'")  # to be mended, not typed again
    assert live.evaluate("chat.messages.length") == 0 and live.evaluate("document.getElementById('log').ariaBusy") == "false"
    live.evaluate("document.getElementById('say').value = ''; 1")
    live.evaluate("document.getElementById('max-tokens').value = 150; 1")
    with served.running():
        live.type("tell me about the fox")
        live.press("Enter")
        live.until("document.querySelector('#log .user') && chat.stop !== null")
        live.evaluate("document.getElementById('clear').click(); 1")
        live.until("chat.stop === null")
    assert live.evaluate("chat.messages.length") == 0 and not live.evaluate("document.querySelectorAll('#log article').length")


@needs_browser
def test_fields_of_the_chat_that_say_nothing_are_refused_and_not_guessed(live: Browser, served: Served) -> None:
    for field, wrong in (("max-tokens", "''"), ("max-tokens", 0), ("temperature", "''"), ("temperature", 3)):
        live.evaluate(f"at('max-tokens').value = 150; at('temperature').value = 0.75; at('{field}').value = {wrong}; at('say').focus(); 1")
        live.press("Enter")
        assert live.evaluate("at('ask').checkValidity() || chat.stop !== null || document.querySelector('#log article') !== null") is False
    live.evaluate("at('temperature').value = 0.75; 1")
    for field in ("max-tokens", "temperature"):  # where Enter would press the button
        live.evaluate(f"at('{field}').focus(); 1")
        live.press("Enter")
        assert live.evaluate("chat.stop === null && document.activeElement.id === 'say'")
    with served.running():
        live.press("Enter")
        live.until("chat.stop !== null && timeline.columns.length > 0")
        live.evaluate("at('max-tokens').value = ''; at('send').click(); 1")
        live.until("chat.stop === null && at('send').textContent === 'Send'")  # whatever the fields say meanwhile


@needs_browser
def test_a_missing_key_is_asked_for(browser: Browser, served: Served) -> None:
    browser.open(served.url + "/")
    browser.evaluate("sessionStorage.clear(); localStorage.clear(); 1")
    browser.open(served.url + "/")
    browser.until("document.getElementById('ask-key').open")
    assert browser.evaluate("document.getElementById('status').textContent") == "API key needed"
    browser.type("wrong")
    browser.press("Enter")
    browser.until("document.getElementById('key-why').textContent.includes('not accepted') && document.getElementById('ask-key').open")
    browser.evaluate("document.getElementById('key-text').select(); 1")
    browser.type(KEY)
    browser.press("Enter")
    browser.until("document.getElementById('status').dataset.state === 'live'")


@needs_browser
def test_the_keyboard_is_enough(live: Browser, served: Served) -> None:
    with served.running():
        live.until("[...timeline.requests.values()].some((row) => row[2] === 'running')")
        live.evaluate("document.getElementById('timeline').focus(); 1")
        live.press("ArrowDown")
        live.until("document.getElementById('timeline-read').textContent.includes('prompt of')")
        live.press("Escape")
        live.evaluate("document.getElementById('blocks').focus(); 1")
        for _ in range(3):
            live.press("ArrowRight")
        live.until("/^Block 2:/.test(document.getElementById('blocks-read').textContent)")
    live.evaluate("document.activeElement.blur(); 1")
    live.press("3")
    assert live.evaluate("timeline.shownS") == 60
    live.press("p")
    number = live.evaluate("timeline.now")
    assert live.evaluate("document.getElementById('pause').ariaPressed") == "true"
    assert live.evaluate("new Promise((done) => setTimeout(() => done(timeline.now), 700))") == number
    live.press("p")
    live.until(f"timeline.now > {number}")
    reached = set()
    for _ in range(40):
        live.press("Tab")
        reached.add(live.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"pause", "theme", "key", "timeline", "blocks", "say", "send", "clear", "log"} <= reached


@needs_browser
def test_single_keys_can_be_switched_off(live: Browser) -> None:
    """WCAG 2.1.4: who speaks to the computer types letters without meaning to."""
    live.evaluate("document.getElementById('shortcuts').click(); document.activeElement.blur(); 1")
    theme = live.evaluate("document.getElementById('theme').textContent")
    live.press("t")
    assert live.evaluate("document.getElementById('theme').textContent") == theme
    live.evaluate("document.getElementById('shortcuts').click(); 1")
    live.press("t")
    assert live.evaluate("document.getElementById('theme').textContent") != theme


@needs_browser
def test_what_changes_by_itself_is_not_said_aloud(live: Browser, served: Served) -> None:
    assert live.evaluate("[...document.querySelectorAll('[aria-live], [role=status], [role=log], [role=alert], output')]"
                         ".map((each) => each.id).sort().join()") == "log,spoken,status-said"
    with served.running():
        live.until("[...timeline.requests.values()].some((row) => row[2] === 'running')")
        live.evaluate("document.getElementById('timeline').focus(); 1")
        live.press("ArrowDown")
        said = live.until("document.getElementById('spoken').textContent.includes('prompt of')"
                          " && document.getElementById('spoken').textContent")
        live.until(f"document.getElementById('timeline-read').textContent !== {json.dumps(said)}")
        assert live.evaluate("document.getElementById('spoken').textContent") == said


@needs_browser
def test_figures_of_a_server_that_has_gone_say_so_until_it_comes_back(live: Browser) -> None:
    live.until("lastAt !== null")
    gone = live.evaluate("""(lose('the server does not answer'),
      [at('sentence').textContent, at('panels').dataset.stale, at('status').textContent])""")
    assert gone[0].startswith("The server does not answer. The figures below are those of ") and gone[1] == "true"
    assert gone[2] == "the server does not answer; trying again"
    live.until("at('panels').dataset.stale === undefined && at('status').textContent === 'live'")
    live.until("at('sentence').textContent.startsWith('Idle')")


@needs_browser
def test_a_pause_outlasts_a_server_that_goes_and_comes_back(live: Browser) -> None:
    live.press("p")
    live.evaluate("lose('the server does not answer'); 1")
    live.until("document.getElementById('status').textContent === 'paused'")  # it is there again
    live.evaluate("""take({ type: "hello", about: { model: "another", version: "test" }, block_size: 16, roof: null, history: [] }); 1""")
    assert "another" not in live.evaluate("document.getElementById('model').textContent")
    live.evaluate("roofline.trail.decode.push([1, 1e9]); blocks.evicted.set(0, performance.now()); 1")
    live.press("p")
    assert live.evaluate("document.getElementById('model').textContent") == "another"
    assert live.evaluate("[roofline.trail.decode.length, blocks.evicted.size]") == [0, 0], "what another server did"
    live.until("document.getElementById('status').textContent === 'live'")


@needs_browser
def test_both_themes_follow_the_system_and_the_button(live: Browser) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    live.prefer("light")
    light = live.evaluate(ground)
    live.prefer("dark")
    dark = live.evaluate(ground)
    assert light != dark and live.evaluate("isDark()")
    live.press("t")
    assert live.evaluate(ground) == light and live.evaluate("document.getElementById('theme').textContent") == "Theme: light"
    live.press("t")
    live.prefer("light")
    assert live.evaluate(ground) == dark
    live.press("t")
    assert live.evaluate(ground) == light


@needs_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_can_be_read(live: Browser, theme: str) -> None:
    """Contrast (WCAG AA): at least 4.5 to 1 for every colour that text has, hints in fields included, 3 to 1 for shapes."""
    live.prefer(theme)
    ratios = live.evaluate("""(() => {
      const light = (text) => {
        const pen = document.createElement('canvas').getContext('2d');
        pen.fillStyle = text;
        pen.fillRect(0, 0, 1, 1);
        const linear = [...pen.getImageData(0, 0, 1, 1).data].map((v) => v / 255)
          .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
      };
      const between = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
      const ratio = (a, b) => between(ink(a), ink(b));
      inks = null;
      const names = ['text', 'dim', 'faint', 'accent', 'warn', 'good'];
      const shapes = ['prefill', 'decode', 'accepted', 'rejected', 'queue', 'reusable', 'edge'];
      const fields = [...document.querySelectorAll('input[type=number], textarea')]
        .map((field) => [getComputedStyle(field, '::placeholder'), getComputedStyle(field)]);
      return { words: names.flatMap((name) => ['surface', 'ground'].map((on) => [name, on, ratio(name, on)])),
               hints: fields.map(([hint, field]) => [hint.color, field.backgroundColor, between(hint.color, field.backgroundColor)]),
               shapes: shapes.map((name) => [name, ratio(name, 'surface')]) };
    })()""")
    live.prefer("light")
    assert all(ratio >= 4.5 for _, _, ratio in ratios["words"] + ratios["hints"]), ratios
    assert len(ratios["hints"]) == 5 and all(ratio >= 3 for _, ratio in ratios["shapes"]), ratios


@needs_browser
@pytest.mark.parametrize("window", WINDOWS)
def test_nothing_is_cut_off_in_any_window(live: Browser, window: str) -> None:
    live.resize(*WINDOWS[window])
    tall = "document.documentElement.scrollHeight"
    wait = "await new Promise((done) => setTimeout(done, 400))"
    live.until(f"(async () => {{ const before = {tall}; {wait}; return before === {tall}; }})()")
    live.until("['timeline', 'roofline', 'blocks', 'output-line'].every((id) => {"
               " const canvas = document.getElementById(id), scale = canvas.width / canvas.clientWidth;"
               f" return canvas.clientWidth > 80 && canvas.clientHeight > 20 && Math.abs(scale - {WINDOWS[window][2]}) < 0.05; }})")
    assert live.evaluate(PLACED), "something is wider than the window"
    fills = live.evaluate("(() => { const told = at('ring-text').textContent; at('ring-text').textContent = '100%';"
                          " const share = at('ring-text').offsetWidth / (at('ring').closest('svg').clientWidth * 28 / 40);"
                          " at('ring-text').textContent = told; return share; })()")
    assert 0.5 < fills < 0.92, "the figure in the ring touches it"
    pen = "const pen = at('roofline').getContext('2d'); pen.font = font(0.74);"
    width, words = live.evaluate(f"(() => {{ {pen} return [pen.measureText(caption(pen, 190)).width, caption(pen, 900)]; }})()")
    assert 0 < width <= 190 and words.endswith("keys and values")
    live.resize(1280, 900)


@needs_browser
@pytest.mark.parametrize("points", [((11, 4e10), (95, 3e10)), ((11, 4e10), (14, 4.5e10)), ((30, 4e10), (30, 6e10)),
                                    ((1, 1e10), (1.3, 1.1e10)), ((900, 9e10), (700, 8e10)), ((5, 5e9), (200, 9.5e10)),
                                    ((4, 6e10), (60, 8e10))])
def test_each_point_of_the_roofline_has_its_name_beside_it(live: Browser, points: tuple[tuple[float, float], ...]) -> None:
    """A name between two points is nobody's."""
    (x0, y0), (x1, y1) = points
    told = f"""{{ decode: {{ intensity: {x0}, ops_per_s: {y0} }}, prefill: {{ intensity: {x1}, ops_per_s: {y1} }} }}"""
    found = live.evaluate(f"""(() => {{
      const canvas = at('roofline'), points = {told};
      roofline.points = points;
      roofline.trail = {{ prefill: [], decode: [] }};
      const on = plane(canvas.clientWidth, canvas.clientHeight);
      const spots = [spot(on, points.decode), spot(on, points.prefill)];
      const rising = slope(on, roofline.roof), clear = (box) => !rising.some((each) => meet(box, {{ ...each, w: 0, h: 0 }}));
      return placeNames(canvas.getContext('2d'), on, points).map((each) => ({{ ...each, spots, clear: clear(each.box) }}));
    }})()""")
    assert [each["name"] for each in found] == ["decode", "prefill"]
    for number, each in enumerate(found):
        assert each["clear"] or x0 < 2  # there both stand at the slope itself
        (x, y), (own, other) = middle(each["box"]), (each["spots"][number], each["spots"][1 - number])
        assert 1.2 * math.dist((x, y), (own["x"], own["y"])) < math.dist((x, y), (other["x"], other["y"]))
    (x0, y0), (x1, y1) = middle(found[0]["box"]), middle(found[1]["box"])
    assert abs(x0 - x1) >= (found[0]["box"]["w"] + found[1]["box"]["w"]) / 2 or abs(y0 - y1) >= found[0]["box"]["h"]


def middle(box: dict[str, float]) -> tuple[float, float]:
    return box["x"] + box["w"] / 2, box["y"] + box["h"] / 2


@needs_browser
@pytest.mark.parametrize(("width", "words"), [(1280, "from cache"), (320, "GB/s")])
def test_words_along_a_short_slope_stay_within_the_plane(live: Browser, width: int, words: str) -> None:
    """Steps from a fast cache: their roof rises for less than its words are long."""
    live.resize(width, 900)
    said, left, top = live.evaluate("""new Promise((done) => {
      roofline.roof = { bandwidth: 38e9, ops: 470e9, type: 'bf16' };
      roofline.points = { decode: { intensity: 6, ops_per_s: 28e9, bandwidth_share: 0.035 } };
      const pen = at('roofline').getContext('2d'), draw = pen.fillText.bind(pen);
      pen.fillText = (text, x, y) => {
        const half = pen.measureText(text).width / 2, at = (dx) => new DOMPoint(x + dx, y - rem(0.6)).matrixTransform(pen.getTransform());
        if (text.startsWith('133')) done([text, at(-half).x / devicePixelRatio - rem(4.6), at(half).y]); draw(text, x, y);
      }; drawRoofline();
    })""")
    live.resize(1280, 900)
    assert said.endswith(words) and left >= 0 and top >= 0


@needs_browser
def test_limits_that_were_not_measured_are_not_invented(browser: Browser, folder: Path) -> None:
    running = serve(folder, hardware=None)
    try:
        browser.open(running.url + "/")
        browser.evaluate(f"sessionStorage.setItem('penstock.key', '{KEY}'); 1")
        browser.open(running.url + "/")
        browser.until("document.getElementById('machine').textContent === 'limits not measured'")
        with running.client() as client:
            client.post("/v1/chat/completions", json=ASK)
        browser.until("!document.getElementById('sentence').textContent.startsWith('Idle')")
        text, of_what = browser.evaluate("[at('ring-text').textContent, at('ring').closest('div').title]")
        assert "%" not in text or of_what == "of the time"  # the host's, where this machine is slow
        assert "measured limit" not in browser.evaluate("document.getElementById('sentence').textContent")
        running.server.drain.begin()
        browser.until("document.getElementById('status').dataset.state === 'bad'")
        browser.until("document.getElementById('sentence').textContent.includes('The figures below are those of')")
        assert not browser.evaluate("document.getElementById('roofline-read').textContent").count("of the bandwidth")
    finally:
        running.stop()
