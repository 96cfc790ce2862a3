"use strict";
// What each request did in each step: one lane for each that lives, time to the right.

const [LANE, ID, STATE, ARRIVED, SCHEDULED, FIRST, ENDED, PROMPT, CACHED, OUTPUT, BLOCKS, PREEMPTIONS, SINCE] = Array(13).keys();
const timeline = {
  now: 0, shownS: 15, columns: [], requests: new Map(), marks: [], hidden: 0, lane: null, missed: 0,
};
const KEPT_S = 65;
let drawTimeline = () => {};

/** Takes in an update's part. Requests are kept as they were last told of; their ends stay for as long as they can be seen. */
function takeTimeline(update) {
  const { columns, requests, ended, hidden } = update.timeline;
  timeline.now = update.t;
  timeline.columns.push(...columns);
  timeline.hidden = hidden;
  timeline.missed = update.steps_missed;
  for (const row of [...requests, ...ended]) {
    const before = timeline.requests.get(row[ID]);
    if (before && row[PREEMPTIONS] > before[PREEMPTIONS]) timeline.marks.push([update.t, row[LANE]]);
    timeline.requests.set(row[ID], row);
  }
  const live = new Set(requests.map((row) => row[ID])), old = update.t - KEPT_S;
  for (const [id, row] of timeline.requests) {
    if (row[ENDED] === null && !live.has(id)) row[ENDED] = update.t;
    if (row[ENDED] !== null && row[ENDED] < old) timeline.requests.delete(id);
  }
  timeline.columns = timeline.columns.filter((column) => column[1] > old);
  timeline.marks = timeline.marks.filter((mark) => mark[0] > old);
  drawTimeline();
  showRead();
  if (at("table").open) showTable();
}

/** Those in a lane at a time. */
const inLane = (lane, when) => [...timeline.requests.values()].filter((row) => row[LANE] === lane && row[SINCE] <= when && (row[ENDED] === null || row[ENDED] >= when));

/** Where lanes and times lie. Right of `now` each request that holds blocks shows the colour that these have. */
function frame(width, height) {
  const since = timeline.now - timeline.shownS;
  const seen = [...timeline.requests.values()].filter((row) => row[LANE] !== null && (row[ENDED] === null || row[ENDED] > since));
  const lanes = Math.max(8, 1 + Math.max(-1, ...seen.map((row) => row[LANE])));
  const bottom = rem(1.3), right = width - rem(0.75);
  const tall = Math.max(3, (height - bottom) / lanes);
  return {
    since, seen, lanes, tall, right, width, floor: height - bottom, y: (lane) => lane * tall,
    x: (when) => ((when - since) / timeline.shownS) * right, when: (x) => since + (x / right) * timeline.shownS,
  };
}

/** One request's tokens of a column: prefill above, below it what was decoded, with drafts that were accepted and rejected. */
function drawCell(pen, x, y, wide, tall, figures) {
  const [prefill, decode, accepted, rejected] = figures;
  const parts = decode + accepted + rejected;
  let below = parts ? (prefill ? tall / 2 : tall) : 0;
  if (prefill) {
    pen.fillStyle = ink("prefill");
    pen.fillRect(x, y, wide, tall - below);
  }
  let top = y + tall;
  for (const [figure, name] of [[decode, "decode"], [accepted, "accepted"], [rejected, "rejected"]]) {
    if (!figure) continue;
    const share = (below * figure) / parts;
    top -= share;
    pen.fillStyle = name === "rejected" ? hatch(pen, ink("rejected")) : ink(name);
    pen.fillRect(x, top, wide, share);
  }
}

const EDGE = 4; // the request's own colour, at the head of its bar

/** Its time in the queue, and behind what it did since its first step a bar. What is narrower than a pixel is left out: there may be thousands. */
function drawRequest(pen, row, on, gap) {
  const begin = on.x(row[SINCE]), scheduled = Math.max(begin, on.x(row[SCHEDULED] ?? timeline.now)), end = on.x(row[ENDED] ?? timeline.now);
  const top = on.y(row[LANE]) + gap / 2, tall = on.tall - gap;
  if (scheduled - begin >= 1) drawWait(pen, begin, scheduled, top + tall / 2, on);
  if (row[STATE] === "preempted") drawWait(pen, scheduled, end, top + tall / 2, on);
  if (row[SCHEDULED] === null) return;
  pen.fillStyle = laneColour(row[LANE]);
  pen.fillRect(scheduled - EDGE, top, EDGE, tall);
  if (row[ENDED] === null && row[BLOCKS]) pen.fillRect(on.right + 3, top, on.width - on.right - 3, tall);
  if (end - scheduled < 1) return;
  pen.globalAlpha = 0.16;
  pen.fillRect(scheduled, top, end - scheduled, tall);
  pen.globalAlpha = 1;
}

function drawWait(pen, from, to, middle, on) {
  pen.strokeStyle = ink("queue");
  pen.lineWidth = Math.min(3, on.tall / 3);
  pen.setLineDash([2, 2]);
  pen.beginPath();
  pen.moveTo(from, middle);
  pen.lineTo(to, middle);
  pen.stroke();
  pen.setLineDash([]);
}

function drawLanes(pen, width, on) {
  const gap = on.tall > 7 ? 2 : 1;
  for (let lane = 0; lane < on.lanes; lane++) {
    if (lane === timeline.lane) { pen.fillStyle = ink("sunk"); pen.fillRect(0, on.y(lane), width, on.tall); }
    pen.fillStyle = ink("line");
    pen.fillRect(0, on.y(lane) + on.tall - 0.5, width, 0.5);
  }
  for (const row of on.seen) drawRequest(pen, row, on, gap);
  for (const [began, ended, , cells] of timeline.columns) {
    const x = on.x(began), wide = Math.max(1, on.x(ended) - x - (on.x(ended) - x > 5 ? 1 : 0));
    if (x + wide < 0) continue;
    for (const [lane, ...figures] of cells) if (lane < on.lanes) drawCell(pen, x, on.y(lane) + gap / 2, wide, on.tall - gap, figures);
  }
}

function drawOver(pen, width, height, on) {
  for (const [when, lane] of timeline.marks) {
    const x = on.x(when), y = on.y(lane) + on.tall / 2, size = Math.min(5, on.tall / 2);
    pen.fillStyle = ink("warn");
    pen.strokeStyle = ink("surface");
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(x, y - size);
    pen.lineTo(x + size, y);
    pen.lineTo(x, y + size);
    pen.lineTo(x - size, y);
    pen.closePath();
    pen.fill();
    pen.stroke();
  }
  if (chosen.request) {
    const row = timeline.requests.get(chosen.request);
    if (row && row[LANE] !== null) {
      const begin = on.x(row[SINCE]), end = on.x(row[ENDED] ?? timeline.now);
      pen.strokeStyle = ink("text");
      pen.lineWidth = 1.5;
      pen.strokeRect(begin, on.y(row[LANE]) + 0.75, Math.max(2, end - begin - 1), on.tall - 1.5);
    }
  }
  pen.font = font(0.74);
  pen.fillStyle = ink("faint");
  pen.fillRect(0, on.floor, width, 1);
  const step = timeline.shownS / 5;
  for (let back = 0; back <= timeline.shownS; back += step) {
    const x = on.x(timeline.now - back);
    pen.textAlign = back === 0 ? "right" : x < rem(2) ? "left" : "center";
    pen.fillRect(x, on.floor, 1, 4);
    pen.fillText(back === 0 ? "now" : `−${Number(back.toFixed(1))}${thin}s`, back === 0 ? width : x, height - 2);
  }
  if (!on.seen.length) {
    pen.font = font(0.9);
    pen.textAlign = "center";
    pen.fillText("no request in this time", width / 2, on.floor / 2);
  }
}

function wireTimeline() {
  const canvas = at("timeline"), leave = () => { timeline.lane = null; choose(null); drawTimeline(); showRead(); };
  drawTimeline = surface(canvas, (pen, width, height) => {
    const on = frame(width, height);
    drawLanes(pen, width, on);
    drawOver(pen, width, height, on);
  });
  onPoint(canvas, (event) => {
    const on = frame(canvas.clientWidth, canvas.clientHeight);
    const lane = Math.floor(event.offsetY / on.tall), found = inLane(lane, on.when(event.offsetX));
    timeline.lane = lane < on.lanes ? lane : null;
    choose(found.length ? found[0][ID] : null);
    drawTimeline();
    showRead();
  }, leave);
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") leave();
    if (move === undefined) return;
    event.preventDefault();
    const { lanes } = frame(canvas.clientWidth, canvas.clientHeight);
    timeline.lane = Math.max(0, Math.min(lanes - 1, (timeline.lane ?? (move > 0 ? -1 : lanes)) + move));
    const found = inLane(timeline.lane, timeline.now);
    choose(found.length ? found[0][ID] : null);
    drawTimeline();
    showRead();
    announce(at("timeline-read").textContent);
  });
  at("zoom").addEventListener("change", (event) => { timeline.shownS = Number(event.target.value); drawTimeline(); });
  at("table").addEventListener("toggle", showTable);
}

/** A request in words. */
function told(row) {
  const state = row[ENDED] !== null ? `ended after ${timed(row[ENDED] - row[ARRIVED])}` : row[STATE];
  const first = row[FIRST] !== null ? `, first token after ${timed(row[FIRST] - row[ARRIVED])}` : "";
  const preempted = row[PREEMPTIONS] ? `, preempted ${row[PREEMPTIONS]} times` : "";
  return `${row[ID]}: ${state}; prompt of ${count(row[PROMPT])} tokens, ${count(row[CACHED])} of them cached; ${count(row[OUTPUT])} tokens out${first}; ${count(row[BLOCKS])} blocks${preempted}`;
}

function showRead() {
  const row = chosen.request && timeline.requests.get(chosen.request);
  let text = timeline.lane !== null ? `Lane ${timeline.lane + 1} is free.` : "";
  if (row) text = told(row);
  else if (timeline.lane === null && timeline.columns.length) {
    const lately = timeline.columns.slice(-32), most = Math.max(...lately.map((column) => column[2]));
    text = most > 1 ? `Steps are short: a column stands for as many as fit into 62${thin}ms, up to ${most} now.` : "Each column is a step.";
    if (timeline.hidden) text += ` ${count(timeline.hidden)} more requests have no lane here.`;
    if (timeline.missed) text += ` ${count(timeline.missed)} steps came too fast to be seen.`;
  }
  if (at("timeline-read").textContent !== text) at("timeline-read").textContent = text;
}

function showTable() {
  const rows = [...timeline.requests.values()].filter((row) => row[ENDED] === null).sort((a, b) => a[ARRIVED] - b[ARRIVED]);
  at("table").querySelector("tbody").replaceChildren(...rows.map((row) => element("tr", {},
    ...[row[ID], row[STATE], figure(timeline.now - row[ARRIVED]), count(row[PROMPT]), count(row[CACHED]), count(row[OUTPUT]), count(row[BLOCKS]), count(row[PREEMPTIONS])]
      .map((text) => element("td", { textContent: text })))));
}
