"use strict";
// The machine's measured roof, and where steps stand under it now. Both axes are logarithmic.

const roofline = { roof: undefined, points: {}, trail: { prefill: [], decode: [] } };
const TRAIL = 40;
const POINT = 0.38; // rem, from its middle to its edge
let drawRoofline = () => {};

const decades = (low, high) => { const found = []; for (let power = Math.ceil(low); power <= Math.floor(high); power++) found.push(power); return found; };

/** The plane: powers of ten at its edges, and where a point lies. */
function plane(width, height) {
  const { roof, points } = roofline;
  const all = Object.values(points);
  const ridge = roof && roof.ops ? roof.ops / roof.bandwidth : 10;
  const top = roof ? roof.ops || roof.bandwidth * 100 : Math.max(1e9, ...all.map((point) => point.ops_per_s));
  const xs = [ridge, ...all.map((point) => point.intensity)], ys = [top, ...all.map((point) => point.ops_per_s)];
  const left = Math.floor(Math.log10(Math.min(...xs)) - 0.6), right = Math.ceil(Math.log10(Math.max(...xs)) + 0.4);
  const low = Math.floor(Math.log10(Math.min(...ys)) - 0.5), high = Math.log10(Math.max(...ys)) + 0.35;
  const box = { x: rem(4.6), y: rem(0.5), w: width - rem(5.2), h: height - rem(3) };
  return {
    box, left, right, low, high,
    x: (value) => box.x + ((Math.log10(value) - left) / (right - left)) * box.w,
    y: (value) => box.y + box.h - ((Math.log10(value) - low) / (high - low)) * box.h,
  };
}

/** What the lower axis counts, in as many words as there is room for. */
const CAPTIONS = ["operations for each byte of weights, keys and values", "operations for each byte", "op/B"];
const caption = (pen, room) => CAPTIONS.find((words) => pen.measureText(words).width <= room) ?? "";

function drawAxes(pen, on) {
  pen.font = font(0.74);
  pen.lineWidth = 1;
  for (const power of decades(on.left, on.right)) {
    const x = on.x(10 ** power);
    pen.fillStyle = ink("line");
    pen.fillRect(x, on.box.y, 1, on.box.h);
    pen.fillStyle = ink("faint");
    pen.textAlign = power === on.right ? "right" : "center";
    pen.fillText(String(Number((10 ** power).toPrecision(1))), x, on.box.y + on.box.h + rem(1.05));
  }
  pen.textAlign = "right";
  for (const power of decades(on.low, on.high)) {
    const y = on.y(10 ** power);
    pen.fillStyle = ink("line");
    pen.fillRect(on.box.x, y, on.box.w, 1);
    pen.fillStyle = ink("faint");
    pen.fillText(si(10 ** power, "op/s"), on.box.x - rem(0.4), y + rem(0.25));
  }
  pen.textAlign = "center";
  pen.fillText(caption(pen, on.box.w), on.box.x + on.box.w / 2, on.box.y + on.box.h + rem(2.2));
}

/** min(bandwidth x intensity, rate). `style`: its colour, and whether it is dashed. */
function drawRoof(pen, on, bandwidth, ops, colour, dashed) {
  const left = 10 ** on.left, right = 10 ** on.right, most = ops || bandwidth * right;
  const ridge = Math.min(right, most / bandwidth);
  pen.save();
  pen.beginPath();
  pen.rect(on.box.x, on.box.y, on.box.w, on.box.h);
  pen.clip();
  pen.beginPath();
  pen.moveTo(on.x(left), on.y(bandwidth * left));
  pen.lineTo(on.x(ridge), on.y(bandwidth * ridge));
  if (ops) pen.lineTo(on.x(right), on.y(ops));
  pen.setLineDash(dashed ? [4, 4] : []);
  pen.strokeStyle = colour;
  pen.lineWidth = dashed ? 1.25 : 2;
  pen.stroke();
  pen.restore();
}

function label(pen, text, x, y, align, colour) {
  pen.textAlign = align;
  pen.font = font(0.78);
  pen.lineWidth = 4;
  pen.strokeStyle = ink("surface");
  pen.lineJoin = "round";
  pen.strokeText(text, x, y);
  pen.fillStyle = colour;
  pen.fillText(text, x, y);
}

/** Along the slope of a roof, `off` CSS pixels below it: in the middle of what can be seen of it, further up where words would begin left of the
 *  plane, and as many of them as end within it. */
function labelSlope(pen, on, bandwidth, ops, words, off, colour) {
  const clamp = (value) => Math.max(10 ** on.low, Math.min(10 ** on.high, value));
  const from = clamp(bandwidth * 10 ** on.left), to = clamp(ops || bandwidth * 10 ** on.right);
  const [x0, y0, x1, y1] = [on.x(from / bandwidth), on.y(from), on.x(to / bandwidth), on.y(to)];
  const middle = { x: (x0 + x1) / 2, y: (y0 + y1) / 2 }, angle = Math.atan2(y1 - y0, x1 - x0), above = Math.max(0, rem(0.8) - off);
  pen.font = font(0.78);
  for (let count = words.length; count; count--) {
    const text = words.slice(0, count).join(" "), half = pen.measureText(text).width / 2;
    const beyond = on.box.x + half * Math.cos(angle) - above * Math.sin(angle) - middle.x; // of its left corner
    const up = Math.max(0, beyond) / Math.cos(angle);
    if (count > 1 && middle.y + (up + half) * Math.sin(angle) - above * Math.cos(angle) < on.box.y) continue;
    pen.save();
    pen.translate(middle.x, middle.y);
    pen.rotate(angle);
    label(pen, text, up, off, "center", colour);
    pen.restore();
    return;
  }
}

function drawPoint(pen, on, name, point) {
  const colour = ink(name === "prefill" ? "prefill" : "accepted");
  roofline.trail[name].forEach(([x, y], i, all) => {
    pen.globalAlpha = (0.35 * (i + 1)) / all.length;
    pen.fillStyle = colour;
    pen.beginPath();
    pen.arc(on.x(x), on.y(y), 2, 0, 7);
    pen.fill();
  });
  pen.globalAlpha = 1;
  const { x, y } = spot(on, point), size = rem(POINT);
  pen.fillStyle = colour;
  pen.strokeStyle = ink("surface");
  pen.lineWidth = 2;
  pen.beginPath();
  if (name === "prefill") pen.rect(x - size, y - size, 2 * size, 2 * size);
  else pen.arc(x, y, size, 0, 7);
  pen.fill();
  pen.stroke();
}

const spot = (on, point) => ({ x: on.x(point.intensity), y: on.y(point.ops_per_s) });
const grown = (box, by) => ({ x: box.x - by, y: box.y - by, w: box.w + 2 * by, h: box.h + 2 * by });
const meet = (one, other) => one.x < other.x + other.w && other.x < one.x + one.w && one.y < other.y + other.h && other.y < one.y + one.h;
const middle = (box) => ({ x: box.x + box.w / 2, y: box.y + box.h / 2 });
const apart = (one, other) => Math.hypot(one.x - other.x, one.y - other.y);

/** Boxes around a spot in which a word has room: right, left, above, below. */
function besides({ x, y }, w) {
  const h = rem(0.9), gap = rem(POINT + 0.25);
  return [{ x: x + gap, y: y - h / 2, w, h }, { x: x - gap - w, y: y - h / 2, w, h }, { x: x - w / 2, y: y - gap - h, w, h }, { x: x - w / 2, y: y + gap, w, h }];
}

/** Spots along the slope of the memory's roof, which has words beside it. */
function slope(on, roof) {
  if (!roof) return [];
  const most = roof.ops ? Math.min(on.right, Math.log10(roof.ops / roof.bandwidth)) : on.right;
  return Array.from({ length: 41 }, (_, step) => 10 ** (on.left + ((most - on.left) * step) / 40))
    .map((intensity) => spot(on, { intensity, ops_per_s: roof.bandwidth * intensity }));
}

/** Names beside their points: nearer to them than to the others, and clear of those, of each other and of the roof's slope. */
function placeNames(pen, on, points) {
  pen.font = font(0.78);
  const spots = Object.entries(points).map(([name, point]) => ({ name, ...spot(on, point) }));
  const past = Object.values(roofline.trail).flat().map(([intensity, ops_per_s]) => spot(on, { intensity, ops_per_s }));
  const inside = (box) => box.x >= on.box.x && box.x + box.w <= on.box.x + on.box.w && box.y >= on.box.y && box.y + box.h <= on.box.y + on.box.h;
  const rising = slope(on, roofline.roof);
  const placed = [];
  for (const own of spots) {
    const others = spots.filter((each) => each !== own);
    const cost = (box) =>
      (inside(box) ? 0 : 1000) +
      100 * others.filter((each) => meet(grown(box, rem(POINT)), { x: each.x, y: each.y, w: 0, h: 0 })).length +
      100 * placed.filter((each) => meet(grown(each.box, 2), box)).length +
      60 * others.filter((each) => apart(middle(box), each) <= apart(middle(box), own) * 1.3).length +
      (rising.some((each) => meet(grown(box, rem(1)), { ...each, w: 0, h: 0 })) ? 40 : 0) +
      past.filter((each) => meet(box, { ...each, w: 0, h: 0 })).length;
    const boxes = besides(own, pen.measureText(own.name).width);
    placed.push({ name: own.name, box: boxes.reduce((best, box) => (cost(box) < cost(best) ? box : best)) });
  }
  return placed;
}

function drawNames(pen, on, points) {
  for (const { name, box } of placeNames(pen, on, points)) label(pen, name, box.x, box.y + box.h - rem(0.18), "left", ink("text"));
}

function wireRoofline() {
  drawRoofline = surface(at("roofline"), (pen, width, height) => {
    const on = plane(width, height), { roof, points } = roofline;
    drawAxes(pen, on);
    if (roof) {
      const decode = points.decode;
      const held = decode && decode.bandwidth_share ? decode.ops_per_s / decode.intensity / decode.bandwidth_share : 0; // bytes/s from this working set
      if (held > roof.bandwidth * 1.05) {
        drawRoof(pen, on, held, roof.ops, ink("faint"), true);
        labelSlope(pen, on, held, roof.ops, [si(held, "B/s"), "from cache"], -rem(0.5), ink("faint"));
      }
      drawRoof(pen, on, roof.bandwidth, roof.ops, ink("text"), false);
      labelSlope(pen, on, roof.bandwidth, roof.ops, [si(roof.bandwidth, "B/s"), "from memory"], rem(1), ink("dim"));
      if (roof.ops) label(pen, `${si(roof.ops, "op/s")} in ${roof.type}`, on.box.x + on.box.w - rem(0.3), on.y(roof.ops) - rem(0.45), "right", ink("dim"));
    }
    for (const [name, point] of Object.entries(points)) drawPoint(pen, on, name, point);
    drawNames(pen, on, points);
    if (roof === null) label(pen, "no roof: penstock limits has not been run here", on.box.x + on.box.w / 2, on.box.y + rem(1.6), "center", ink("dim"));
    else if (roof && !Object.keys(points).length) label(pen, "idle: no step to place", on.box.x + on.box.w - rem(0.4), on.box.y + on.box.h - rem(0.7), "right", ink("dim"));
  });
}

function showRoofline(points) {
  roofline.points = points;
  for (const name of Object.keys(roofline.trail)) {
    const trail = roofline.trail[name], point = points[name];
    if (point) trail.push([point.intensity, point.ops_per_s]);
    if (trail.length > TRAIL || (!point && trail.length)) trail.shift();
  }
  const share = (of, what) => (of === null ? "" : `, ${percent(of)} of the ${what}`);
  const told = Object.entries(points).map(([name, point]) => `${name}: ${si(point.bytes_per_step, "B")} a step in ${timed(point.step_s)}${share(point.bandwidth_share, "bandwidth")}${share(point.rate_share, "rate")}`);
  at("roofline-read").textContent = told.join(" · ") || "Steps are placed here while they run: to the left reading binds, to the right arithmetic.";
  at("roofline").ariaLabel = `Roofline. ${told.join(". ") || "No steps now."}`;
  drawRoofline();
}
