"use strict";
// Numbers with units, colours, canvases: what all panels use.

const at = (id) => document.getElementById(id);
const dot = "\u00a0· "; // between two remarks: no line begins with it
const thin = "\u202f"; // between a number and its unit

/** A number in three or four figures, thousands apart. */
function figure(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  const digits = size >= 100 || size === 0 ? 0 : size >= 10 ? 1 : 2;
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

const count = (value) => Math.round(value).toLocaleString("en-US");
const percent = (share) => (share === null || share === undefined ? "–" : `${figure(100 * share)}${thin}%`);

/** [number, unit] of a time. */
function time(seconds) {
  if (seconds === null || seconds === undefined) return ["–", ""];
  if (seconds < 0.001) return [figure(1e6 * seconds), "µs"];
  if (seconds < 1) return [figure(1e3 * seconds), "ms"];
  return [figure(seconds), "s"];
}

const timed = (seconds) => time(seconds).join(thin).trim();

/** A quantity with the SI prefix that leaves one to three digits before the point. */
function si(value, unit) {
  const prefixes = ["", "k", "M", "G", "T", "P"];
  let power = value > 0 ? Math.floor(Math.log10(value) / 3) : 0;
  power = Math.max(0, Math.min(prefixes.length - 1, power));
  return `${Number((value / 1000 ** power).toPrecision(3))}${thin}${prefixes[power]}${unit}`;
}

// Okabe and Ito's colours, the yellow darkened to be seen on white; lanes beyond eight take them again, lighter, then darker.
const HUES = [[202, 100, 35], [41, 100, 45], [164, 100, 31], [327, 45, 64], [202, 77, 63], [26, 100, 42], [56, 85, 42], [262, 45, 46]];

const SHIFTS = [0, 14, -10, 22, -16, 8, -5, 18];
let colours = []; // of lanes, made once for each theme

function laneColour(lane) {
  if (!colours[lane]) {
    const [hue, saturation, light] = HUES[lane % HUES.length];
    const lifted = light + SHIFTS[Math.floor(lane / HUES.length) % SHIFTS.length] + (isDark() ? 8 : 0);
    colours[lane] = `hsl(${hue} ${saturation}% ${Math.max(18, Math.min(82, lifted))}%)`;
  }
  return colours[lane];
}

const scheme = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme || (scheme.matches ? "dark" : "light")) === "dark";

let inks = null; // the style sheet's colours, read once for each theme

function ink(name) {
  if (!inks) {
    const style = getComputedStyle(document.documentElement);
    inks = new Map();
    for (const each of ["ground", "surface", "sunk", "line", "text", "dim", "faint", "accent", "warn", "good", "prefill", "decode", "accepted",
      "rejected", "queue", "reusable", "free", "edge"]) inks.set(each, style.getPropertyValue(`--${each}`).trim());
  }
  return inks.get(name);
}

/** Store and fetch what this browser remembers. Where it may not, even to name the box throws: then the page remembers, until it is closed. */
const memory = {
  own: new Map(),
  get(name, box = "localStorage") {
    if (this.own.has(name)) return this.own.get(name);
    try { return window[box].getItem(`penstock.${name}`); } catch { return null; }
  },
  set(name, value, box = "localStorage") {
    this.own.delete(name);
    try { window[box].setItem(`penstock.${name}`, value); } catch { this.own.set(name, value); }
  },
};

const redraws = []; // of everything that is drawn, when the theme or the size changes

/** A canvas whose pixels are the screen's. `draw(context, width, height)` is in CSS pixels; the result asks for a redraw before the next frame. */
function surface(canvas, draw) {
  const context = canvas.getContext("2d");
  let due = false;
  function paint() {
    due = false;
    const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    if (!width || !height) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    draw(context, width, height);
  }
  const ask = () => { if (!due) { due = true; requestAnimationFrame(paint); } };
  new ResizeObserver(ask).observe(canvas);
  redraws.push(ask);
  return ask;
}

/** What is pointed at on a canvas, by a mouse that is over it or by a finger that touched it last. */
function onPoint(canvas, point, leave) {
  for (const kind of ["pointermove", "pointerdown"]) canvas.addEventListener(kind, point);
  canvas.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") leave(); });
  canvas.addEventListener("blur", leave);
}

/** CSS pixels of `rem` root em. */
const rem = (size) => size * parseFloat(getComputedStyle(document.documentElement).fontSize);
const font = (size) => `${rem(size)}px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif`;

/** Diagonal lines as a fill. */
const hatches = new Map();
function hatch(context, colour) {
  if (!hatches.has(colour)) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const pen = tile.getContext("2d");
    pen.strokeStyle = colour;
    pen.lineWidth = 1.25;
    for (const shift of [-6, 0, 6]) { pen.beginPath(); pen.moveTo(shift, 6); pen.lineTo(shift + 6, 0); pen.stroke(); }
    hatches.set(colour, context.createPattern(tile, "repeat"));
  }
  return hatches.get(colour);
}

/** Said once by a screen reader. What changes by itself, several times a second, is shown and not said. */
function announce(text) {
  if (at("spoken").textContent !== text) at("spoken").textContent = text;
}

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

const chosen = { request: null }; // the request that is pointed at, in whatever panel
function choose(request) {
  if (chosen.request === request) return;
  chosen.request = request;
  for (const redraw of redraws) redraw();
}
