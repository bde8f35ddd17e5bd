// One small chart per zone, all on one scale: the blocks held in the last minutes, compared to the reservation.

import { byId, element, keyed, setAttribute, setText, svg } from "./dom.js";
import { amount, counted } from "./wording.js";

const SECONDS = 300;
const [WIDTH, HEIGHT] = [300, 84];
const HEADROOM = 1.08;

export function showCharts(pool, looks) {
  const zones = pool.zones.filter((zone) => !zone.registered && zone.name in pool.history.held);
  const samples = zones.map((zone) => pool.history.held[zone.name]);
  const top = Math.max(1, ...samples.flat().map((held) => held ?? 0), ...zones.map((zone) => zone.reserved ?? 0));
  keyed(
    byId("charts"),
    zones,
    (zone) => zone.name,
    newChart,
    (item, zone) => draw(item, zone, pool.history.held[zone.name], pool, looks.of(zone.name).colour, top * HEADROOM),
  );
  byId("no-charts").hidden = zones.length > 0;
}

function newChart() {
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" },
    svg("path", { class: "area" }),
    svg("path", { class: "line" }),
    svg("line", { class: "reserved", x1: 0, x2: WIDTH }),
  );
  return element(
    "li",
    {},
    element("p", { class: "title" }, element("strong"), element("span", { class: "quiet" })),
    picture,
    element("p", { class: "axis quiet", "aria-hidden": "true" }, element("span"), element("span")),
  );
}

function draw(item, zone, held, pool, colour, top) {
  const [title, picture, axis] = item.children;
  const [area, line, reserved] = picture.children;
  setText(title.firstElementChild, zone.name);
  setText(title.lastElementChild, `${amount(zone.held)} held, ${amount(zone.reserved)} reserved`);
  setText(axis.firstElementChild, "5 min ago");
  setText(axis.lastElementChild, `now; full height is ${counted(Math.round(top / HEADROOM), "block")}`);
  item.style.setProperty("--zone", `var(${colour})`);
  const height = (blocks) => HEIGHT - (HEIGHT * blocks) / top;
  const stretches = connected(pool.history.unixTimes, held, pool.unixTime);
  setAttribute(line, "d", stretches.map((points) => path(points, height)).join(" "));
  setAttribute(area, "d", stretches.map((points) => closed(points, height)).join(" "));
  setAttribute(reserved, "y1", height(zone.reserved ?? 0));
  setAttribute(reserved, "y2", height(zone.reserved ?? 0));
  reserved.style.display = zone.reserved ? "" : "none";
  setAttribute(picture, "aria-label", inWords(zone, held));
}

/** Returns runs of points (x, blocks) of consecutive samples; unknown samples leave a gap. */
function connected(times, held, now) {
  const stretches = [];
  let open = null;
  held.forEach((blocks, index) => {
    if (blocks === null) {
      open = null;
      return;
    }
    if (open === null) stretches.push((open = []));
    open.push([WIDTH - ((now - times[index]) / SECONDS) * WIDTH, blocks]);
  });
  return stretches;
}

const path = (points, height) => points.map(([x, blocks], index) => `${index ? "L" : "M"}${x.toFixed(1)} ${height(blocks).toFixed(1)}`).join("");

function closed(points, height) {
  const [first, last] = [points[0][0].toFixed(1), points.at(-1)[0].toFixed(1)];
  return `${path(points, height)}L${last} ${HEIGHT}L${first} ${HEIGHT}Z`;
}

function inWords(zone, held) {
  const known = held.filter((blocks) => blocks !== null);
  const range = known.length ? `between ${amount(Math.min(...known))} and ${amount(Math.max(...known))}` : "an unknown number";
  return `${zone.name} held ${range} of blocks in the last five minutes; ${amount(zone.reserved)} are reserved`;
}
