"use strict";
// Puts the parts together.

let paused = false;
let blockSize = 16;

function greet(hello) {
  const about = hello.about;
  blockSize = hello.block_size;
  at("model").replaceChildren(element("b", { textContent: about.model ?? "" }), about.quant && about.quant !== "none" ? ` ${about.quant}` : about.dtype ? ` ${about.dtype}` : "");
  document.title = `${about.model ?? "Penstock"} · Penstock`;
  roofline.roof = hello.roof;
  at("machine").textContent = hello.roof ? hello.roof.name : "limits not measured";
  history_.splice(0, Infinity, ...hello.history);
  Object.assign(timeline, { columns: [], marks: [] });
  timeline.requests.clear();
  const told = [about.parameters && si(about.parameters, " parameters"), about.weight_bytes && `${si(about.weight_bytes, "B")} of weights`, about.max_model_len && `context ${count(about.max_model_len)} tokens`, about.backend && `${about.backend} backend`, about.propose && `drafts by ${about.propose}`];
  at("about").textContent = [...told.filter(Boolean), `Penstock ${about.version ?? ""}`].join(" · ");
  for (const redraw of redraws) redraw();
}

function take(event) {
  if (event.type === "hello") return greet(event);
  if (event.type !== "update" || paused) return;
  if (event.health.ok) say("live", "live");
  else say("bad", event.health.reason);
  showTiles(event);
  showRoofline(event.points);
  takeTimeline(event);
  takeBlocks(event.map, blockSize);
}

function pause() {
  paused = !paused;
  at("pause").ariaPressed = String(paused);
  at("pause").textContent = paused ? "Go on" : "Pause";
  say(paused ? "wait" : "live", paused ? "paused" : "live");
}

const THEMES = ["auto", "light", "dark"];

function wear(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  at("theme").textContent = `Theme: ${theme}`;
  memory.set("theme", theme);
  inks = null;
  hatches.clear();
  for (const redraw of redraws) redraw();
}

function nextTheme() {
  wear(THEMES[(THEMES.indexOf(memory.get("theme") || "auto") + 1) % THEMES.length]);
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input:not([type=radio]), textarea, dialog")) return;
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
follow(take);
