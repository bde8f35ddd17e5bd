// The section about one engine's blocks: the map, its legend, and the same as a table.

import { BlockMap } from "./block_map.js";
import { byId, element, emptyRow, fillRow, keyed, setAttribute, setText } from "./dom.js";
import { themeColours } from "./looks.js";
import { drawSwatch } from "./tiles.js";
import { amount, counted, unitOf } from "./wording.js";

const NO_ZONE = "no zone";
const KEY = [
  [{ use: "in_use", borrowed: false }, "in use: a request refers to it"],
  [{ use: "cached", borrowed: false }, "cached: kept for its prefix"],
  [{ use: "cached", borrowed: true }, "borrowed: the first to go when the lender needs it"],
  [{ use: "free", borrowed: false }, "free"],
];

const TIER_KEY = [
  [{ use: "in_use", borrowed: false }, "in use: it is being stored or loaded"],
  [{ use: "cached", borrowed: false }, "cached: kept to be loaded"],
  ...KEY.slice(2),
];

export class Blocks {
  constructor() {
    this.chosen = null;
    this.latest = null;
    this.map = new BlockMap(
      byId("map"),
      (text) => setText(byId("cell"), text),
      (zone) => this.choose(zone),
    );
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
  }

  /** The number of cells that fit on the screen. */
  get cells() {
    return window.innerWidth >= 700 ? 4096 : 1024;
  }

  show(map, engine, looks) {
    this.latest = { map, engine, looks };
    byId("blocks").hidden = false;
    byId("blocks-state").hidden = true;
    this.redraw();
  }

  /** Hides the map, and shows why there is none. */
  fail(text) {
    this.latest = null;
    byId("blocks").hidden = true;
    byId("blocks-state").hidden = false;
    setText(byId("blocks-state"), text);
    setText(byId("blocks-summary"), "");
  }

  choose(zone) {
    this.chosen = zone;
    this.redraw();
  }

  redraw() {
    if (this.latest === null) return;
    const { map, engine, looks } = this.latest;
    const rows = map.owners;
    if (!rows.some((row) => row.zone === this.chosen)) this.chosen = null;
    const each = map.blocksPerCell;
    const unit = unitOf(map);
    const scale = each === 1 ? `one cell per ${unit}` : `each cell stands for ${amount(each)} ${unit}s`;
    const whose = map.tier ? `tier ${map.tier} of ${engine}` : engine;
    setText(byId("blocks-summary"), `${whose}: ${counted(map.capacityBlocks, unit)}, ${scale}`);
    this.showLegend(rows, looks, unit);
    showKey(looks, map.tier);
    this.map.show(map, looks, this.chosen);
    setAttribute(byId("map"), "aria-label", `${map.tier ? "Chunks" : "Blocks"} of ${whose}. ${rows.map(rowInWords).join("; ")}`);
    showRows(rows);
  }

  showLegend(rows, looks, unit) {
    const colours = themeColours();
    const owned = rows.filter((row) => !row.isFree);
    keyed(
      byId("legend"),
      owned,
      (row) => row.zone ?? NO_ZONE,
      (row) => this.legendButton(row),
      (button, row) => {
        const [swatch, name, blocks] = button.children;
        drawSwatch(swatch, { use: "in_use", borrowed: false }, looks.of(row.zone), colours);
        setText(name, row.zone ?? NO_ZONE);
        setText(blocks, counted(row.blocks, unit));
        setAttribute(button, "aria-pressed", row.zone !== null && this.chosen === row.zone);
      },
    );
  }

  legendButton(row) {
    const swatch = element("canvas", { "aria-hidden": "true" });
    const button = element(
      "button",
      { type: "button" },
      swatch,
      element("span", { class: "name" }),
      element("span", { class: "quiet" }),
    );
    button.disabled = row.zone === null;
    button.addEventListener("click", () => this.choose(this.chosen === row.zone ? null : row.zone));
    return button;
  }
}

function rowInWords(row) {
  if (row.isFree) return `${amount(row.blocks)} free`;
  const borrowed = row.borrowed ? `, ${amount(row.borrowed)} of them borrowed` : "";
  return `${row.zone ?? NO_ZONE}: ${amount(row.inUse)} in use, ${amount(row.cached)} cached${borrowed}`;
}

function showKey(looks, tier) {
  const colours = themeColours();
  const example = { ...looks.of(""), colour: "--ink-quiet" };
  keyed(
    byId("key"),
    tier ? TIER_KEY : KEY,
    ([, text]) => text,
    ([, text]) => element("li", {}, element("canvas", { "aria-hidden": "true" }), text),
    (item, [kind]) => drawSwatch(item.firstElementChild, kind, example, colours),
  );
}

function showRows(rows) {
  keyed(
    byId("block-rows"),
    rows,
    (row) => (row.isFree ? "free" : `zone ${row.zone ?? ""}`),
    () => emptyRow(["", "number", "number", "number", "number", "number"]),
    (line, row) => {
      const share = `${row.percent.toFixed(1)} %`;
      const parts = row.isFree ? ["", "", ""] : [row.inUse, row.cached, row.borrowed].map(amount);
      fillRow(line, [row.isFree ? "free" : (row.zone ?? NO_ZONE), ...parts, amount(row.blocks), share]);
    },
  );
}
