// The table of zones.

import { byId, element, keyed, setAttribute, setText } from "./dom.js";
import { themeColours } from "./looks.js";
import { drawSwatch } from "./tiles.js";
import { StepShares } from "./step_shares.js";
import { amount, counted, percent, waiting } from "./wording.js";

const SOLID = { use: "in_use", borrowed: false };
const BLOCKS = ["held", "reserved", "limit", "inUse", "cached", "lent", "borrowed", "evictions"];
const REQUESTS = ["runningRequests", "waitingRequests", "reservedSeats"];
const FIGURES = BLOCKS.length + 1 + REQUESTS.length + 1;
const shares = new StepShares();

export function showZones(pool, name, looks, filter) {
  const colours = themeColours();
  shares.look(name, pool);
  const widest = Math.max(1, ...pool.zones.flatMap((zone) => [zone.held ?? 0, zone.reserved ?? 0, zone.limit ?? 0]));
  keyed(
    byId("zone-rows"),
    pool.zones,
    (zone) => `${zone.registered ? "registered" : "declared"} ${zone.name}`,
    newRow,
    (row, zone) => fill(row, zone, looks, colours, widest),
  );
  const shown = pool.zones.length;
  const part = shown < pool.zonesFound ? `the first ${amount(shown)} of ` : "";
  const found = filter ? `${amount(pool.zonesFound)} of ` : "";
  setText(byId("zones-summary"), `${part}${found}${counted(pool.zonesInAll, "zone")}`);
  const empty = byId("no-zones");
  empty.hidden = shown > 0;
  setText(empty, filter ? "No zone has a name like this." : "No TenantZone names this pool yet.");
}

function newRow() {
  const name = element(
    "th",
    { scope: "row" },
    element(
      "div",
      { class: "zone" },
      element("canvas", { "aria-hidden": "true" }),
      element("span", { class: "name" }),
      element("span", { class: "quiet" }),
    ),
    element("p", { class: "message" }),
  );
  const bar = element("div", { class: "bar", "aria-hidden": "true" }, part("held"), part("reserved"), part("limit"));
  return element(
    "tr",
    {},
    name,
    element("td"),
    element("td", {}, element("span", { class: "badge" })),
    element("td", {}, bar),
    ...Array.from({ length: FIGURES }, () => element("td", { class: "number" })),
  );
}

const part = (name) => element("div", { class: name });

function fill(row, zone, looks, colours, widest) {
  const [name, state, ready, bar, ...rest] = row.cells;
  const [label, message] = name.children;
  const [swatch, text, more] = label.children;
  drawSwatch(swatch, SOLID, looks.of(zone.name), colours, 14);
  setText(text, zone.name);
  setText(more, zone.registered ? "auto-registered" : zone.tenant !== zone.name ? `tenant ${zone.tenant}` : "");
  setText(message, trouble(zone));
  setText(state, zone.state ?? "unknown");
  showReady(ready.firstElementChild, zone);
  showBar(bar.firstElementChild, zone, looks, colours, widest);
  const amounts = (fields) => fields.map((field) => amount(zone[field]));
  const figures = [...amounts(BLOCKS), percent(zone.hitPercent), ...amounts(REQUESTS), percent(shares.of(zone))];
  figures.forEach((figure, index) => setText(rest[index], figure));
}

/** Returns what is wrong with the zone, or what its requests wait for. */
function trouble(zone) {
  if (zone.ready.status && zone.ready.status !== "True") return zone.ready.message;
  if (zone.latency.status === "False") return `misses its latency target: ${zone.latency.message}`;
  return zone.waitReason ? `waits for ${waiting(zone.waitReason)}` : "";
}

export function showReady(badge, { ready, registered }) {
  const status = registered ? "auto" : (ready.status ?? "Unknown");
  setAttribute(badge, "data-status", status);
  setText(badge, { True: "ready", False: ready.reason, Unknown: ready.reason ?? "unknown", auto: "by template" }[status]);
}

function showBar(bar, zone, looks, colours, widest) {
  const [held, reserved, limit] = bar.children;
  const share = (blocks) => `${(100 * (blocks ?? 0)) / widest}%`;
  held.style.width = share(zone.held);
  held.style.background = colours(looks.of(zone.name).colour);
  reserved.style.width = share(zone.reserved);
  reserved.hidden = !zone.reserved;
  limit.style.width = share(zone.limit);
}
