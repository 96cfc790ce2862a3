"use strict";
// What binds, and the numbers at the top.

const history_ = []; // [time, output/s, prompt/s, running, waiting, KV share], one a second
const HISTORY = 300;
const LONG_S = 1; // a step that has taken so long is told of: the rates are those of the steps before
const GAP = 3; // seconds without a point after which a line begins anew

/** The points in stretches without a gap. */
function stretches(points) {
  const found = [];
  for (const point of points) {
    const last = found.length && found[found.length - 1];
    if (last && point[0] - last[last.length - 1][0] < GAP) last.push(point);
    else found.push([point]);
  }
  return found;
}

/** A line, dashed or with what is below it filled. */
function drawStretch(pen, points, floor, colour, dashed) {
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = 1.5;
  pen.lineJoin = "round";
  pen.setLineDash(dashed ? [3, 2] : []);
  pen.beginPath();
  for (const [x, y] of points) pen.lineTo(x, y);
  pen.stroke();
  pen.setLineDash([]);
  if (dashed) return;
  pen.lineTo(points[points.length - 1][0], floor);
  pen.lineTo(points[0][0], floor);
  pen.globalAlpha = 0.12;
  pen.fill();
  pen.globalAlpha = 1;
}

/** One or two lines over the last five minutes; the first is filled and ends in a dot. */
function sparkline(id, columns, colours) {
  return surface(at(id), (pen, width, height) => {
    const last = history_.length ? history_[history_.length - 1][0] : 0;
    const points = history_.filter((point) => point[0] > last - HISTORY);
    const most = Math.max(1e-9, ...points.flatMap((point) => columns.map((column) => point[column])));
    const x = (point) => width - 3 - ((last - point[0]) / HISTORY) * (width - 3), y = (value) => height - 1.5 - (value / most) * (height - 5);
    pen.fillStyle = ink("line");
    pen.fillRect(0, height - 1, width, 1);
    if (!points.length) return;
    pen.font = font(0.68);
    pen.textAlign = "left";
    pen.fillStyle = ink("faint");
    if (most > 0.005) pen.fillText(`max ${Number.isInteger(most) ? count(most) : figure(most)}`, 0, rem(0.62));
    columns.forEach((column, number) => {
      for (const stretch of stretches(points)) drawStretch(pen, stretch.map((point) => [x(point), y(point[column])]), height, ink(colours[number]), number > 0);
    });
    const end = points[points.length - 1];
    pen.fillStyle = ink(colours[0]);
    pen.beginPath();
    pen.arc(x(end), y(end[columns[0]]), 2.2, 0, 7);
    pen.fill();
  });
}

let drawLines = [];

/** p50, p90 and p99 as bars on one scale, with the promise as a line: what requests asked for, else what is typed here. */
class Latency {
  constructor(name) {
    this.root = at(name);
    this.input = this.root.querySelector("input");
    this.input.value = memory.get(`slo.${name}`) || "";
    this.input.addEventListener("input", () => { memory.set(`slo.${name}`, this.input.value); if (this.told) this.show(this.told, this.late); });
    this.rows = ["p50", "p90", "p99"].map((percentile) => {
      const fill = element("i"), mark = element("b"), number = element("span", { className: "number" });
      const track = element("div", { className: "bar-track" }, fill, mark);
      this.root.querySelector(".bars").append(element("span", { className: "name", textContent: percentile }), track, number);
      return { percentile, fill, mark, number };
    });
  }

  /** `late`: how many requests were refused or put last, because they could not be served in time. */
  show(told, late = {}) {
    Object.assign(this, { told, late });
    const own = parseFloat(this.input.value) / 1000;
    const slo = told.slo ?? (own > 0 ? own : null);
    const most = Math.max(told.p99 ?? 0, slo ?? 0, 1e-9) * 1.08;
    for (const { percentile, fill, mark, number } of this.rows) {
      const value = told[percentile], over = slo !== null && value !== null && value > slo;
      fill.style.width = `${(100 * (value ?? 0)) / most}%`;
      fill.classList.toggle("over", over);
      mark.style.display = slo === null ? "none" : "block";
      mark.style.left = `calc(${(100 * (slo ?? 0)) / most}% - 1px)`;
      const [text, unit] = time(value);
      const sign = slo === null || value === null ? "" : over ? element("span", { className: "miss", textContent: " ✕", title: "over the SLO" }) : element("span", { className: "kept", textContent: " ✓", title: "within the SLO" });
      number.replaceChildren(text, " ", element("small", { textContent: unit }), sign);
    }
    this.input.disabled = told.slo !== null;
    this.input.placeholder = told.slo !== null ? figure(told.slo * 1000) : "none";
    const kept = told.asked ? `${percent(told.met / told.asked)} of ${count(told.asked)} kept theirs` : told.n ? `${count(told.n)} requests, last ${told.span_s < 60 ? `${Math.ceil(told.span_s)} s` : "minute"}` : "no request in the last minute";
    const others = ["refused", "deferred"].filter((name) => late[name]).map((name) => `${count(late[name])} ${name}`);
    this.root.querySelector(".told").textContent = [...(told.n || !others.length ? [kept] : []), ...others].join(dot);
  }
}

let latencies = null;
let spoken = { text: "", at: 0 };
const SAY_MS = 10000;
const said = { kind: null, at: 0 };

function wireTiles() {
  latencies = { ttft: new Latency("ttft"), tpot: new Latency("tpot") };
  drawLines = [sparkline("output-line", [1], ["accepted"]), sparkline("prefill-line", [2], ["prefill"]), sparkline("requests-line", [3, 4], ["accent", "warn"])];
}

/** Before a server that has gone: what is shown stays, and says of when it is. */
function showLost(why, when) {
  at("sentence").textContent = `${why}.${when ? ` The figures below are those of ${when.toLocaleTimeString()}.` : ""}`;
  at("ring").style.opacity = 0;
  at("ring-text").textContent = "–";
  Object.assign(spoken, { text: "", kind: null });
}

/** The sentence changes at most every two seconds, unless what binds has changed; only then it is said aloud as well. */
function showLimit(limit) {
  const now = Date.now();
  if (limit.kind !== said.kind && now - said.at > SAY_MS) {
    announce(limit.sentence.replaceAll("`", ""));
    Object.assign(said, { kind: limit.kind, at: now });
  }
  if (limit.sentence === spoken.text || (limit.kind === spoken.kind && now - spoken.at < 2000)) return;
  const parts = limit.sentence.replace(/(\d)%/g, `$1${thin}%`).split("`");
  at("sentence").replaceChildren(...parts.map((part, i) => (i % 2 ? element("code", { textContent: part }) : part)));
  spoken = { text: limit.sentence, kind: limit.kind, at: now };
  const measured = limit.kind !== "unmeasured", idle = limit.kind === "arrival_limited";
  const shown = limit.reached ?? limit.share;
  at("ring").style.opacity = measured && !idle ? 1 : 0;
  at("ring").style.strokeDasharray = `${Math.min(100, 100 * shown)} 100`;
  at("ring-text").textContent = !measured ? "?" : idle ? "idle" : `${Math.round(100 * shown)}%`;
  at("ring").closest("div").title = limit.reached === null ? "of the time" : "of the machine's measured limit";
}

function showTiles(update) {
  const { now, rates, cache } = update;
  showLimit(update.limit);
  at("output").textContent = figure(rates.output);
  at("output-note").textContent = now.under_way_s > LONG_S ? `the step in flight has taken ${timed(now.under_way_s)}` : rates.steps ? `${figure(rates.steps)} steps/s of ${timed(rates.step_s)}${rates.drafted ? `${dot}${percent(rates.accepted / rates.drafted)} of drafts accepted` : ""}` : "no steps";
  at("prefill").textContent = figure(rates.prefill);
  at("prefill-note").textContent = rates.steps ? `steps take ${percent(rates.busy)} of the time` : "";
  at("running").textContent = count(now.running);
  at("waiting").textContent = count(now.waiting);
  at("requests-note").textContent = now.waiting ? (now.oldest_s === null ? "" : `the oldest has waited ${timed(now.oldest_s)}`) : "none waiting";
  latencies.ttft.show(update.latency.ttft, update.late);
  latencies.tpot.show(update.latency.tpot);
  const total = now.kv_total || 1;
  at("kv").textContent = figure((100 * now.kv_used) / total);
  const [used, cached] = at("kv-bar").children;
  used.style.width = `${(100 * now.kv_used) / total}%`;
  cached.style.width = `${(100 * now.kv_cached) / total}%`;
  at("kv-bar").ariaLabel = `${count(now.kv_used)} blocks in use, ${count(now.kv_cached)} reusable, of ${count(total)}`;
  at("kv-note").textContent = `${count(now.kv_used)} held + ${count(now.kv_cached)} reusable of ${count(total)}`;
  const hits = cache.hit_rate === null ? "no prompt looked up" : `${percent(cache.hit_rate)} of prompt tokens found`;
  at("hit-note").textContent = `${hits}${dot}${count(cache.evicted_minute)} evicted in a minute`;
  if (update.history) {
    history_.push(update.history);
    while (history_.length > HISTORY) history_.shift();
    for (const draw of drawLines) draw();
  }
}
