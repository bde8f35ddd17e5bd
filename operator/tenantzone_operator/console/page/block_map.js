// The map of an engine's blocks, on a canvas: thousands of cells are too many elements, but few pixels.

import { drawTile } from "./tiles.js";
import { themeColours } from "./looks.js";
import { amount, kindInWords } from "./wording.js";

const HEIGHT = 330;
const SMALLEST = 6;
const LARGEST = 24;
const DIMMED = 0.16;
const KEYS = {
  ArrowLeft: (at) => at - 1,
  ArrowRight: (at) => at + 1,
  ArrowUp: (at, columns) => at - columns,
  ArrowDown: (at, columns) => at + columns,
  PageUp: (at, columns) => at - 5 * columns,
  PageDown: (at, columns) => at + 5 * columns,
  Home: (at, columns) => at - (at % columns),
  End: (at, columns) => at - (at % columns) + columns - 1,
};

export class BlockMap {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {(text: string) => void} describeTo called with a description of the cell under the cursor
   * @param {(zone: string | null) => void} choose called with the zone to highlight alone; null for all
   */
  constructor(canvas, describeTo, choose) {
    this.canvas = canvas;
    this.describeTo = describeTo;
    this.choose = choose;
    this.map = null;
    this.cells = [];
    this.cursor = null;
    this.pointed = null;
    this.chosen = null;
    this.columns = 1;
    this.size = LARGEST;
    canvas.addEventListener("keydown", (event) => this.pressed(event));
    canvas.addEventListener("pointermove", (event) => this.point(this.cellAt(event)));
    canvas.addEventListener("pointerleave", () => this.point(null));
    canvas.addEventListener("click", (event) => this.toggle(this.cellAt(event)));
    canvas.addEventListener("focus", () => this.moveTo(this.cursor ?? 0));
    canvas.addEventListener("blur", () => this.moveTo(null));
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Shows another map. */
  show(map, looks, chosen) {
    this.map = map;
    this.looks = looks;
    this.chosen = chosen;
    this.cells = map.runs.flatMap(([kind, count]) => Array(count).fill(kind));
    if (this.cursor !== null) this.cursor = Math.min(this.cursor, this.cells.length - 1);
    this.draw();
    this.describe();
  }

  draw() {
    const width = this.canvas.parentElement.clientWidth;
    if (this.map === null || width === 0) return;
    this.arrange(width);
    const scale = window.devicePixelRatio || 1;
    const rows = Math.ceil(this.cells.length / this.columns);
    const [wide, high] = [this.columns * this.size, rows * this.size];
    this.canvas.width = Math.round(wide * scale);
    this.canvas.height = Math.round(high * scale);
    this.canvas.style.width = `${wide}px`;
    this.canvas.style.height = `${high}px`;
    this.canvas.dataset.columns = this.columns;
    const context = this.canvas.getContext("2d");
    const colours = themeColours();
    const tiles = this.map.kinds.map((kind) => this.tile(kind, colours, scale));
    context.scale(scale, scale);
    this.cells.forEach((kind, index) => {
      const [x, y] = this.corner(index);
      context.globalAlpha = this.isDimmed(this.map.kinds[kind]) ? DIMMED : 1;
      context.drawImage(tiles[kind], x, y, this.size, this.size);
    });
    context.globalAlpha = 1;
    if (this.cursor !== null) this.drawCursor(context, colours);
  }

  arrange(width) {
    const ideal = Math.floor(Math.sqrt((width * HEIGHT) / this.cells.length));
    this.size = Math.max(SMALLEST, Math.min(LARGEST, ideal));
    const fit = Math.max(1, Math.floor(width / this.size));
    // Rows with a round number of cells are easier to count.
    this.columns = fit > 16 ? fit - (fit % 8) : fit;
    this.size = Math.floor(width / this.columns);
  }

  tile(kind, colours, scale) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = Math.round(this.size * scale);
    drawTile(tile.getContext("2d"), kind, this.looks.of(kind.zone), tile.width, colours);
    return tile;
  }

  drawCursor(context, colours) {
    const [x, y] = this.corner(this.cursor);
    context.lineWidth = 5;
    context.strokeStyle = colours("--surface");
    context.strokeRect(x - 1, y - 1, this.size + 1, this.size + 1);
    context.lineWidth = 2.5;
    context.strokeStyle = colours("--focus");
    context.strokeRect(x - 1, y - 1, this.size + 1, this.size + 1);
  }

  corner(index) {
    return [(index % this.columns) * this.size, Math.floor(index / this.columns) * this.size];
  }

  isDimmed(kind) {
    return this.chosen !== null && kind.zone !== this.chosen;
  }

  cellAt(event) {
    const column = Math.floor(event.offsetX / this.size);
    const index = Math.floor(event.offsetY / this.size) * this.columns + column;
    return column < this.columns && index < this.cells.length ? index : null;
  }

  pressed(event) {
    if (event.altKey || event.metaKey || this.cells.length === 0) return;
    if (event.key === "Escape") this.choose(null);
    else if (event.key === "Enter" || event.key === " ") this.toggle(this.cursor);
    else if (event.ctrlKey && event.key === "Home") this.moveTo(0);
    else if (event.ctrlKey && event.key === "End") this.moveTo(this.cells.length - 1);
    else if (event.key in KEYS) this.moveTo(KEYS[event.key](this.cursor ?? 0, this.columns));
    else return;
    event.preventDefault();
  }

  toggle(index) {
    if (index === null) return;
    const { zone } = this.map.kinds[this.cells[index]];
    this.choose(zone === this.chosen ? null : zone);
  }

  moveTo(index) {
    if (this.map === null) return;
    this.cursor = index === null ? null : Math.max(0, Math.min(index, this.cells.length - 1));
    this.draw();
    this.describe();
  }

  point(index) {
    if (index === this.pointed) return;
    this.pointed = index;
    this.describe();
  }

  /** Describes the cell under the pointer, else under the cursor. */
  describe() {
    const index = this.pointed ?? this.cursor;
    this.describeTo(index === null || index >= this.cells.length ? "" : this.inWords(index));
  }

  inWords(index) {
    const each = this.map.blocksPerCell;
    const first = index * each + 1;
    const last = Math.min(first + each - 1, this.map.capacityBlocks);
    const what = kindInWords(this.map.kinds[this.cells[index]]);
    const unit = this.map.tier ? "Chunk" : "Block";
    if (first === last) return `${unit} ${amount(first)}: ${what}`;
    return `${unit}s ${amount(first)} to ${amount(last)}, in one cell: ${what}`;
  }
}
