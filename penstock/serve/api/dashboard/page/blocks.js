"use strict";
// The KV cache, block by block: who holds it, what is shared, what waits to be found again, what has just made room.

const [FREE, REUSABLE, OTHER, LANES, SHARED] = [0, 1, 2, 3, 128];
const FADE_MS = 2500;
const STRUCK = 6; // one cell in so many is struck out at most, some of the latest: more would hide whose the cells are
const blocks = { cells: new Uint8Array(0), held: null, fill: null, perCell: 1, total: 0, size: 16, evicted: new Map(), at: null, map: null };
let drawBlocks = () => {};

const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

function takeBlocks(map, size) {
  blocks.cells = bytes(map.cells);
  blocks.held = map.held ? bytes(map.held) : null;
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

/** One state's part of a cell: all of it, or as much of it from below as is in that state. */
function paintCell(pen, x, y, size, tall, value, chosenLane) {
  const lane = (value & ~SHARED) - LANES, shared = value >= SHARED, top = y + size - tall;
  pen.globalAlpha = lane >= 0 && chosenLane !== null && lane !== chosenLane ? 0.25 : 1;
  pen.fillStyle = lane >= 0 ? laneColour(lane) : ink({ [FREE]: "free", [REUSABLE]: "reusable", [OTHER]: "dim" }[value & ~SHARED]);
  pen.fillRect(x, top, size, tall);
  const rim = Math.max(1, Math.round(size / 4));
  if (shared && size > 3 && tall > 2 * rim) {
    pen.fillStyle = ink("surface");
    pen.fillRect(x + rim, top + rim, size - 2 * rim, tall - 2 * rim);
  }
  pen.globalAlpha = 1;
}

/** What can be seen of so many 255ths of a cell. */
const part = (size, share) => (share ? Math.max(1, Math.round((size * share) / 255)) : 0);

/** The states of a cell and how tall they stand in it, what lies behind first. */
function layers(cell, size) {
  const value = blocks.cells[cell];
  if (!blocks.fill) return [[value, size]];
  return [[FREE, size], [REUSABLE, part(size, blocks.fill[cell])], [value, part(size, blocks.held[cell])]].filter(([, tall]) => tall);
}

function wireBlocks() {
  const canvas = at("blocks");
  drawBlocks = surface(canvas, (pen, width, height) => {
    const on = grid(width, height), inner = on.size > 3 ? on.size - 1 : on.size, now = performance.now();
    const row = chosen.request && timeline.requests.get(chosen.request);
    const lane = !row ? null : row[ENDED] === null ? row[LANE] : -1; // of one that has ended no block is left
    for (let cell = 0; cell < blocks.cells.length; cell++) {
      const x = (cell % on.columns) * on.size, y = Math.floor(cell / on.columns) * on.size;
      for (const [value, tall] of layers(cell, inner)) paintCell(pen, x, y, inner, tall, value, lane);
    }
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
  onPoint(canvas, (event) => {
    const on = grid(canvas.clientWidth, canvas.clientHeight);
    const cell = Math.floor(event.offsetY / on.size) * on.columns + Math.min(on.columns - 1, Math.floor(event.offsetX / on.size));
    point(cell < blocks.cells.length ? cell : null);
  }, () => point(null));
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

/** A cell in words. */
function toldCell(cell) {
  const { cells, perCell, total, held, fill, evicted } = blocks;
  const value = cells[cell], lane = (value & ~SHARED) - LANES, first = cell * perCell, last = Math.min(total, first + perCell) - 1;
  const holds = lane >= 0 ? holder(lane)?.[ID] ?? "a request that has just ended" : "a request without a lane here";
  const shared = value >= SHARED ? ", shared by several sequences" : "", room = evicted.has(cell) ? "; a cached prefix has just made room here" : "";
  if (!fill) {
    const state = { [FREE]: "free", [REUSABLE]: "a cached prefix that nobody holds" }[value] ?? `held by ${holds}`;
    return `Block ${count(first)}: ${state}${shared}${room}.`;
  }
  const [numHeld, numUsed] = [held, fill].map((shares) => Math.floor((shares[cell] * perCell) / 255));
  const about = perCell > 255 ? "about " : ""; // shares come in 255ths
  const states = numHeld ? [`${about}${count(numHeld)} held, the first by ${holds}${shared}`] : [];
  if (numUsed > numHeld) states.push(`${about}${count(numUsed - numHeld)} reusable`);
  return `Blocks ${count(first)} to ${count(last)}: ${states.join(", ") || "free"}${room}.`;
}

/** What is pointed at, in words; else the whole map. */
function showBlock() {
  const { cells, map } = blocks;
  let text = "";
  if (blocks.at !== null && blocks.at < cells.length) text = toldCell(blocks.at);
  else if (map) text = map.shared || map.cached ? `${count(map.shared)} blocks are shared by several sequences; ${count(map.cached)} hold prefixes that can be found again.` : "No block is shared, and no prefix is cached.";
  if (at("blocks-read").textContent !== text) at("blocks-read").textContent = text;
}
