"""The page and its server: keys, what a browser may not keep, servers that are silent, not well, or replaced by another version."""
import pytest

from tests.serve.api.dashboard.browser import MISSING, Browser, find_browser
from tests.serve.api.dashboard.conftest import KEY, Served

pytestmark = pytest.mark.skipif(find_browser() is None, reason=MISSING)
BLOCKED = """for (const box of ["localStorage", "sessionStorage"])
  Object.defineProperty(window, box, { get() { throw new DOMException("denied", "SecurityError"); } });"""


def test_a_browser_that_keeps_nothing_is_asked_for_the_key_once(browser: Browser, served: Served) -> None:
    """Where site data is blocked, even to name the storage throws."""
    script = browser.call("Page.addScriptToEvaluateOnNewDocument", source=BLOCKED)["identifier"]
    try:
        browser.open(served.url + "/")
        browser.until("at('ask-key').open")
        browser.type(KEY)
        browser.press("Enter")
        browser.until("at('status').dataset.state === 'live'")
        browser.press("t")
        assert browser.evaluate("[key.get(), memory.get('theme'), at('theme').textContent]") == [KEY, "light", "Theme: light"]
        assert not browser.evaluate("at('ask-key').open") and not [each for each in browser.complaints if "401" not in each]
    finally:
        browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)


def test_a_key_of_any_letters_is_sent_and_one_with_control_characters_is_not(browser: Browser, served: Served) -> None:
    browser.open(served.url + "/")
    browser.evaluate("sessionStorage.clear(); 1")
    browser.open(served.url + "/")
    browser.until("at('ask-key').open")
    browser.type("ключ")
    browser.press("Enter")
    browser.until("at('key-why').textContent.includes('not accepted') && at('ask-key').open")
    browser.evaluate(f"at('key-text').value = '{KEY[:3]}\\0{KEY[3:]}'; 1")
    browser.press("Enter")
    assert browser.evaluate("at('ask-key').open && at('key-why').textContent").startswith("No key has control characters")
    browser.evaluate(f"at('key-text').value = '{KEY}'; 1")
    browser.press("Enter")
    browser.until("at('status').dataset.state === 'live'")


def test_comments_are_heard_and_are_no_events(live: Browser) -> None:
    assert live.evaluate("""(async () => {
      const told = [], heard = [];
      for await (const event of events(new Response(":\\n\\ndata: 7\\n\\n:\\n\\n"), () => heard.push(told.length))) told.push(event);
      return [told, heard.length > 0];
    })()""") == [[7], True]


def test_a_connection_that_is_given_up_is_closed_before_the_next(live: Browser, served: Served) -> None:
    live.evaluate("""const take_ = take, fetch_ = fetch, signals = [];
      fetch = (address, options) => { signals.push(options.signal); return fetch_(address, options); };
      showTiles = () => { throw new TypeError("planted"); }; 1""")
    live.until("at('status').textContent === 'this page cannot show what the server sends (planted); trying again'")
    live.until("signals.length > 1")
    assert live.evaluate("signals.slice(0, -1).every((signal) => signal.aborted)")


def test_what_cannot_be_shown_is_asked_for_ever_more_seldom(live: Browser) -> None:
    live.evaluate("""const setTimeout_ = setTimeout, waits = [];
      setTimeout = (then, wait) => { waits.push(wait); return setTimeout_(then, wait === SILENT_MS ? wait : wait / 10); };
      showTiles = () => { throw new TypeError("planted"); }; 1""")
    assert live.until("waits.includes(FIRST_WAIT_MS * 1.6 * 1.6)")


def test_an_open_connection_without_figures_is_not_called_connecting(live: Browser) -> None:
    assert live.evaluate("""(async () => {
      fetch = async () => new Response(":\\n\\n");
      await listen(take).catch(() => {});
      return at("status").textContent;
    })()""") == "connected, waiting for the step in flight"


def test_seconds_that_run_are_shown_and_not_said(live: Browser) -> None:
    live.press("p")
    said = live.evaluate("""(() => {
      const told = [];
      for (const text of ["live", "no step has ended for 31 s", "no step has ended for 32 s", "live"]) {
        say("bad", text);
        told.push([at("status").textContent === text, at("status-said").textContent]);
      }
      return told;
    })()""")
    live.press("p")
    assert said == [[True, "live"], [True, "no step has ended for 31 s"], [True, "no step has ended for 31 s"], [True, "live"]]


def test_a_server_of_another_version_brings_its_own_page(live: Browser) -> None:
    shown = live.evaluate("""window.isOld = true; var shown = []; showTiles = (event) => shown.push(event);
      take({ type: 'hello', about: { version: 'newer' }, history: [] });
      try { take({ type: 'update', health: { ok: true } }); } catch {}
      shown.length""")
    assert shown == 0, "what the page may not understand"
    live.until("window.isOld === undefined && document.readyState === 'complete' && at('status').dataset.state === 'live'")
    assert live.evaluate("version") == "test"


def test_the_oldest_that_waits_and_a_long_step_are_the_servers_to_tell(live: Browser) -> None:
    live.press("p")
    notes = live.evaluate("""[[2, 3.5, 12], [2, null, 0.5], [0, null, null]].map(([waiting, oldest_s, under_way_s]) => {
      const latency = { n: 0, p50: null, p90: null, p99: null, slo: null, asked: 0, met: 0, span_s: 60 };
      showTiles({ now: { running: 0, waiting, kv_used: 0, kv_cached: 0, kv_total: 1, oldest_s, under_way_s }, rates: {}, late: {},
        history: null, cache: { hit_rate: null, evicted_minute: 0 }, latency: { ttft: latency, tpot: latency },
        limit: { kind: "arrival_limited", sentence: "Idle.", share: 1, reached: null } });
      return [at("requests-note").textContent, at("output-note").textContent];
    })""")
    live.press("p")
    assert [[note.replace("\u202f", " ") for note in each] for each in notes] == [
        ["the oldest has waited 3.50 s", "the step in flight has taken 12.0 s"], ["", "no steps"], ["none waiting", "no steps"]]


def test_a_bar_begins_where_its_lane_was_free(live: Browser) -> None:
    """A request that waited without a lane is not drawn over the one before."""
    live.press("p")
    found = live.evaluate("""(() => {
      timeline.requests.clear();
      timeline.requests.set("a", [0, "a", "ended", 1, 1, 1, 5, 8, 0, 4, 0, 0, 1]);
      timeline.requests.set("b", [0, "b", "running", 1, 5, null, null, 8, 0, 0, 0, 0, 5]);
      return [3, 6].map((when) => inLane(0, when).map((row) => row[ID]).join());
    })()""")
    live.press("p")
    assert found == ["a", "b"]
