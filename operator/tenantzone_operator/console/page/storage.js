// The page of storages and groups: what many engines store together, and within which quotas.

import { getStorages } from "./client.js";
import { byId, element, emptyRow, fillRow, keyed, setAttribute, setText } from "./dom.js";
import { keepLooking, showReplica } from "./looking.js";
import { NONE, amount, bytes, counted, duration, percent, time } from "./wording.js";

const HEALTH = { True: "healthy", False: "unhealthy", Off: "disabled" };
const QUOTA = ["wide", "number", "number", "number"];

async function look() {
  const found = await getStorages();
  const { replica, problem, inAll, unixTime } = found;
  showReplica(replica, problem && `the API server does not list storages: ${problem}`);
  byId("no-manager").hidden = replica.hasManager;
  byId("empty").hidden = !replica.hasManager || problem !== "" || inAll.storages + inAll.groups > 0;
  byId("content").hidden = inAll.storages + inAll.groups === 0;
  showStorages(found);
  showGroups(found);
  showTypes(found);
  showZones(found);
  setText(byId("updated"), `Updated ${time(unixTime)}`);
}

function showStorages({ storages, inAll }) {
  summarize("storages", storages, inAll.storages, "storage");
  keyed(
    byId("storage-rows"),
    storages,
    (storage) => storage.name,
    () => named(["", "", "", ...QUOTA, ""], [2]),
    (row, storage) => {
      fillName(row, storage.name, trouble(storage));
      setText(row.cells[1], storage.type ?? NONE);
      fillBadge(row.cells[2], isSwitchedOff(storage) ? { status: "Off" } : storage.healthy, HEALTH);
      fillQuota(row, 3, storage);
      setText(row.cells[7], storage.place);
    },
  );
}

function showGroups({ groups, inAll }) {
  summarize("groups", groups, inAll.groups, "group");
  keyed(
    byId("group-rows"),
    groups,
    (group) => group.name,
    () => named(["", "", ...QUOTA, "", "number", "number", "number", ""], [1]),
    (row, group) => {
      fillName(row, group.name, trouble(group));
      fillBadge(row.cells[1], group.ready, { True: "ready" });
      fillQuota(row, 2, group);
      const unused = group.ttlSeconds === null ? NONE : duration(group.ttlSeconds);
      const rest = [group.policy, unused, amount(group.instances), amount(group.evictedBlocks), group.storages.join(", ")];
      rest.forEach((text, index) => setText(row.cells[index + 6], text));
    },
  );
}

function showTypes({ types, inAll }) {
  byId("types").hidden = types.length === 0;
  summarize("types", types, inAll.types, "row");
  keyed(
    byId("type-rows"),
    types,
    (row) => `${row.group} ${row.type}`,
    () => named(["", "", ...QUOTA]),
    (line, row) => {
      fillName(line, row.group, "");
      setText(line.cells[1], row.type);
      fillQuota(line, 2, row);
    },
  );
}

function showZones({ zones, inAll }) {
  byId("zones").hidden = zones.length === 0;
  summarize("zones", zones, inAll.zones, "row");
  keyed(
    byId("zone-rows"),
    zones,
    (row) => `${row.group} ${row.namespace}/${row.name} ${row.type}`,
    () => emptyRow(["", "", "", "number", "number", "number"]),
    (line, row) => {
      const amounts = [row.held, row.reserved, row.limit].map(bytes);
      fillRow(line, [`${row.namespace}/${row.name}`, row.group, row.type, ...amounts]);
    },
  );
}

function summarize(id, shown, inAll, one) {
  const part = shown.length < inAll ? `the first ${amount(shown.length)} of ` : "";
  setText(byId(`${id}-summary`), `${part}${counted(inAll, one)}`);
}

/** Returns a row whose first cell has a name and a message, with a badge in some cells and a bar in the wide one. */
function named(classes, badges = []) {
  const row = emptyRow(classes);
  row.cells[0].append(element("span", { class: "name" }), element("p", { class: "message" }));
  for (const index of badges) row.cells[index].append(element("span", { class: "badge" }));
  const bar = element("div", { class: "bar", "aria-hidden": "true" }, element("div", { class: "stored" }), element("div", { class: "reserved" }));
  row.cells[classes.indexOf("wide")].append(bar);
  return row;
}

function fillName(row, name, message) {
  const [label, text] = row.cells[0].children;
  setText(label, name);
  setText(text, message);
}

/** Returns why the object can't be used; a disabled object is no trouble. */
function trouble(found) {
  if (found.ready.status === "True" || isSwitchedOff(found)) return "";
  return found.ready.message ?? "The operator has not said anything about it yet.";
}

const isSwitchedOff = ({ ready }) => ready.reason === "Disabled";

function fillBadge(cell, condition, words) {
  const badge = cell.firstElementChild;
  const status = condition.status ?? "Unknown";
  setAttribute(badge, "data-status", status);
  setText(badge, words[status] ?? condition.reason ?? "unknown");
}

/** Shows what is held of a limit, as a bar and in numbers; the mark on the bar is the watermark. */
function fillQuota(row, first, { held, limit, watermarkPercent }) {
  const bar = row.cells[first].firstElementChild;
  const [stored, watermark] = bar.children;
  bar.hidden = !limit;
  stored.style.width = limit ? `${Math.min(100, (100 * (held ?? 0)) / limit)}%` : "0";
  watermark.hidden = watermarkPercent === null;
  watermark.style.width = `${watermarkPercent ?? 0}%`;
  const figures = [bytes(held), bytes(limit), percent(watermarkPercent)];
  figures.forEach((figure, index) => setText(row.cells[first + 1 + index], figure));
}

keepLooking(look);
