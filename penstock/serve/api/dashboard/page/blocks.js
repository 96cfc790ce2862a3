"use strict";
// The KV cache, block by block: who holds it, what is shared, what waits to be found again, what has just made room.

const [FREE, REUSABLE, OTHER, LANES, SHARED] = [0, 1, 2, 3, 128];
const FADE_MS = 2500;
const STRUCK = 6; // one cell in so many is struck out at most, some of the latest: more would hide whose the cells are
const blocks = { cells: new Uint8Array(0), fill: null, perCell: 1, total: 0, size: 16, evicted: new Map(), at: null, map: null };
let drawBlocks = () => {};

const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

function takeBlocks(map, size) {
  blocks.cells = bytes(map.cells);
  blocks.fill = map.fill ? bytes(map.fill) : null;
  blocks.perCell = map.per_cell;
  blocks.total = map.blocks;
  blocks.map = map;
  const now = performance.now();
  const most = Math.max(1, Math.floor(blocks.cells.length / STRUCK)), stride = Math.max(1, map.evicted.length / most);
  for (let each = 0; Math.floor(each) < map.evicted.length; each += stride) {
    const cell = map.evicted[Math.floor(each)];
    blocks.evicted.delete(cell); // so that the oldest stand first
    blocks.evicted.set(cell, now);
  }
  for (const [cell, when] of blocks.evicted) if (now - when > FADE_MS || blocks.evicted.size > most) blocks.evicted.delete(cell);
  const each = map.per_cell > 1 ? ` · a cell is ${count(map.per_cell)} blocks` : "";
  at("blocks-other").hidden = !blocks.cells.some((value) => (value & ~SHARED) === OTHER);
  at("blocks-size").textContent = `${count(map.blocks)} blocks of ${size} tokens${each}`;
  drawBlocks();
  showBlock();
}

/** Columns, rows and the cell's size that fill the panel best. */
function grid(width, height) {
  const n = blocks.cells.length || 1;
  let size = Math.floor(Math.sqrt((width * height) / n));
  while (size > 2 && Math.ceil(n / Math.floor(width / size)) * size > height) size--;
  size = Math.max(2, Math.min(size, Math.round(rem(2.4))));
  const columns = Math.max(1, Math.floor(width / size));
  return { size, columns, rows: Math.ceil(n / columns) };
}

/** The request in a lane now. */
const holder = (lane) => [...timeline.requests.values()].find((row) => row[LANE] === lane && row[ENDED] === null);

function paintCell(pen, x, y, size, value, chosenLane, colours) {
  const lane = (value & ~SHARED) - LANES, shared = value >= SHARED;
  pen.globalAlpha = lane >= 0 && chosenLane !== null && lane !== chosenLane ? 0.25 : 1;
  pen.fillStyle = lane >= 0 ? colours(lane) : ink({ [FREE]: "free", [REUSABLE]: "reusable", [OTHER]: "dim" }[value & ~SHARED]);
  pen.fillRect(x, y, size, size);
  if (shared && size > 3) {
    const rim = Math.max(1, Math.round(size / 4));
    pen.fillStyle = ink("surface");
    pen.fillRect(x + rim, y + rim, size - 2 * rim, size - 2 * rim);
  }
  pen.globalAlpha = 1;
}

function wireBlocks() {
  const canvas = at("blocks");
  drawBlocks = surface(canvas, (pen, width, height) => {
    const on = grid(width, height), inner = on.size > 3 ? on.size - 1 : on.size, now = performance.now();
    const row = chosen.request && timeline.requests.get(chosen.request);
    const lane = row ? row[LANE] : null;
    const known = new Map(), colours = (each) => { if (!known.has(each)) known.set(each, laneColour(each)); return known.get(each); };
    blocks.cells.forEach((value, cell) => {
      const x = (cell % on.columns) * on.size, y = Math.floor(cell / on.columns) * on.size;
      if (blocks.fill && value !== FREE) {
        paintCell(pen, x, y, inner, FREE, null, colours);
        const tall = Math.max(1, Math.round((inner * blocks.fill[cell]) / 255));
        pen.save();
        pen.beginPath();
        pen.rect(x, y + inner - tall, inner, tall);
        pen.clip();
        paintCell(pen, x, y, inner, value, lane, colours);
        pen.restore();
      } else paintCell(pen, x, y, inner, value, lane, colours);
    });
    pen.strokeStyle = ink("rejected");
    for (const [cell, when] of blocks.evicted) {
      const x = (cell % on.columns) * on.size, y = Math.floor(cell / on.columns) * on.size;
      pen.globalAlpha = 0.85 * Math.max(0, 1 - (now - when) / FADE_MS);
      pen.lineWidth = 1;
      pen.strokeRect(x + 0.5, y + 0.5, inner - 1, inner - 1);
      pen.beginPath();
      pen.moveTo(x + 1, y + inner - 1);
      pen.lineTo(x + inner - 1, y + 1);
      pen.stroke();
    }
    pen.globalAlpha = 1;
    if (blocks.at !== null) {
      pen.strokeStyle = ink("text");
      pen.lineWidth = 2;
      pen.strokeRect((blocks.at % on.columns) * on.size - 0.5, Math.floor(blocks.at / on.columns) * on.size - 0.5, inner + 1, inner + 1);
    }
  });
  const point = (cell) => {
    blocks.at = cell === null || !blocks.cells.length ? null : Math.max(0, Math.min(blocks.cells.length - 1, cell));
    const lane = blocks.at === null ? -1 : (blocks.cells[blocks.at] & ~SHARED) - LANES;
    const row = lane >= 0 ? holder(lane) : undefined;
    choose(row ? row[ID] : null);
    drawBlocks();
    showBlock();
  };
  canvas.addEventListener("pointermove", (event) => {
    const on = grid(canvas.clientWidth, canvas.clientHeight);
    const cell = Math.floor(event.offsetY / on.size) * on.columns + Math.min(on.columns - 1, Math.floor(event.offsetX / on.size));
    point(cell < blocks.cells.length ? cell : null);
  });
  canvas.addEventListener("pointerleave", () => point(null));
  canvas.addEventListener("blur", () => point(null));
  canvas.addEventListener("keydown", (event) => {
    const { columns } = grid(canvas.clientWidth, canvas.clientHeight);
    const move = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") point(null);
    if (move === undefined) return;
    event.preventDefault();
    point(blocks.at === null ? 0 : blocks.at + move);
    announce(at("blocks-read").textContent);
  });
}

/** What is pointed at, in words; else the whole map. */
function showBlock() {
  const { cells, perCell, map } = blocks;
  let text = "";
  if (blocks.at !== null && blocks.at < cells.length) {
    const value = cells[blocks.at], lane = (value & ~SHARED) - LANES, first = blocks.at * perCell;
    const name = perCell > 1 ? `Blocks ${count(first)} to ${count(Math.min(blocks.total, first + perCell) - 1)}` : `Block ${count(first)}`;
    const row = lane >= 0 ? holder(lane) : undefined;
    const state = lane >= 0 ? `held by ${row ? row[ID] : "a request that has just ended"}` : { [FREE]: "free", [REUSABLE]: "a cached prefix that nobody holds", [OTHER]: "held by a request without a lane here" }[value & ~SHARED];
    text = `${name}: ${state}${value >= SHARED ? ", shared by several sequences" : ""}${blocks.fill ? `, ${percent(blocks.fill[blocks.at] / 255)} in use` : ""}${blocks.evicted.has(blocks.at) ? "; a cached prefix has just made room here" : ""}.`;
  } else if (map) text = map.shared || map.cached ? `${count(map.shared)} blocks are shared by several sequences; ${count(map.cached)} hold prefixes that can be found again.` : "Nothing is held and nothing cached.";
  if (at("blocks-read").textContent !== text) at("blocks-read").textContent = text;
}
