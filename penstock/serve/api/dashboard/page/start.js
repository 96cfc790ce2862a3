"use strict";
// Puts the parts together.

let paused = false;
let greeting = null; // of a server that was met while paused
let lost = null; // why there are no figures
let lastAt = null; // when there were some
let blockSize = 16;
let version = null; // of the server that this page came from
let outdated = false; // the page of another version is on its way

function greet(hello) {
  const about = hello.about;
  version ??= about.version;
  if (about.version !== version) { // this page may not understand it
    outdated = true;
    location.reload();
    return;
  }
  blockSize = hello.block_size;
  at("model").replaceChildren(element("b", { textContent: about.model ?? "" }), about.quant && about.quant !== "none" ? ` ${about.quant}` : about.dtype ? ` ${about.dtype}` : "");
  document.title = `${about.model ?? "Penstock"} · Penstock`;
  Object.assign(roofline, { roof: hello.roof, points: {}, trail: { prefill: [], decode: [] } });
  at("machine").textContent = hello.roof ? hello.roof.name : "limits not measured";
  history_.splice(0, Infinity, ...hello.history);
  Object.assign(timeline, { columns: [], marks: [] });
  timeline.requests.clear();
  blocks.evicted.clear();
  const told = [about.parameters && si(about.parameters, " parameters"), about.weight_bytes && `${si(about.weight_bytes, "B")} of weights`, about.max_model_len && `context ${count(about.max_model_len)} tokens`, about.backend && `${about.backend} backend`, about.propose && `drafts by ${about.propose}`];
  at("about").textContent = [...told.filter(Boolean), `Penstock ${about.version ?? ""}`].join(" · ");
  for (const redraw of redraws) redraw();
}

function take(event) {
  if (outdated) return;
  lost = null;
  if (paused) {
    if (event.type === "hello") greeting = event;
    return say("wait", "paused");
  }
  if (event.type === "hello") return greet(event);
  if (event.type !== "update") return;
  lastAt = new Date();
  delete at("panels").dataset.stale;
  if (event.health.ok) say("live", "live");
  else say("bad", event.health.reason);
  showTiles(event);
  showRoofline(event.points);
  takeTimeline(event);
  takeBlocks(event.map, blockSize);
}

/** The server has gone; `follow` looks for it again. */
function lose(why) {
  lost = why;
  say("bad", `${why}; trying again`);
  if (paused) return;
  at("panels").dataset.stale = "true";
  showLost(why[0].toUpperCase() + why.slice(1), lastAt);
}

function pause() {
  paused = !paused;
  at("pause").ariaPressed = String(paused);
  if (!paused && greeting) greet(greeting);
  greeting = null;
  if (lost) lose(lost);
  else say("wait", paused ? "paused" : "waiting for figures");
}

const THEMES = ["auto", "light", "dark"];

function wear(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  at("theme").textContent = `Theme: ${theme}`;
  memory.set("theme", theme);
  inks = null;
  colours = [];
  hatches.clear();
  for (const redraw of redraws) redraw();
}

function nextTheme() {
  wear(THEMES[(THEMES.indexOf(memory.get("theme") || "auto") + 1) % THEMES.length]);
}

function onKey(event) {
  if (!at("shortcuts").checked || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input:not([type=radio], [type=checkbox]), textarea, dialog")) return;
  const zoom = at("zoom").querySelectorAll("input")["123".indexOf(event.key)];
  if (event.key === "p") pause();
  else if (event.key === "t") nextTheme();
  else if (event.key === "/") { event.preventDefault(); at("say").focus(); }
  else if (zoom) { zoom.checked = true; zoom.dispatchEvent(new Event("change", { bubbles: true })); }
}

wireKey();
wireTiles();
wireRoofline();
wireTimeline();
wireBlocks();
wireChat();
wear(memory.get("theme") || "auto");
scheme.addEventListener("change", () => wear(memory.get("theme") || "auto"));
at("pause").addEventListener("click", pause);
at("theme").addEventListener("click", nextTheme);
document.addEventListener("keydown", onKey);
at("shortcuts").checked = memory.get("shortcuts") !== "off";
at("shortcuts").addEventListener("change", (event) => memory.set("shortcuts", event.target.checked ? "on" : "off"));
follow(take, lose);
