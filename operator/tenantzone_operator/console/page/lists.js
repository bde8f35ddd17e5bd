// The pool's figures, engines, loans and changes.

import { byId, element, emptyRow, fillRow, keyed, setAttribute, setText } from "./dom.js";
import { showReady } from "./zones.js";
import { NONE, amount, duration, time } from "./wording.js";

const FIGURES = [
  ["capacityBlocks", "blocks per engine"],
  ["reservedBlocks", "reserved"],
  ["allocatableBlocks", "left to reserve"],
  ["enginesReady", "engines ready"],
  ["enginesAcknowledged", "with this config"],
  ["zonesAccepted", "zones accepted"],
  ["zonesRejected", "zones refused"],
  ["configGeneration", "config generation"],
];

/** The badge's colour and text for each state. */
const ENGINE_STATES = {
  Answers: ["True", "answers"],
  RefusesConfig: ["False", "refuses the config"],
  Unreachable: ["False", "unreachable"],
  NotReady: ["Unknown", "not ready"],
};

export function showPool(pool, name) {
  setText(byId("pool-name"), `Pool ${name}`);
  showReady(byId("pool-ready"), { ready: pool.exists ? pool.ready : { status: "False", reason: "PoolNotFound" } });
  const isWell = pool.exists && pool.ready.status === "True";
  const missing = "Zones name this pool, and there is no ZonePool of that name.";
  setText(byId("pool-message"), isWell ? "" : pool.exists ? (pool.ready.message ?? "The operator has not said anything about it yet.") : missing);
  keyed(
    byId("figures"),
    FIGURES.filter(([field]) => pool.figures[field] !== null && pool.figures[field] !== undefined),
    ([field]) => field,
    ([, label]) => element("div", {}, element("dt", {}, label), element("dd")),
    (pair, [field]) => setText(pair.lastElementChild, amount(pool.figures[field])),
  );
}

export function showEngines(pool) {
  keyed(
    byId("engine-rows"),
    pool.engines,
    (engine) => engine.pod,
    () => {
      const row = emptyRow(["", "", "number", "number", "number", "number", "number"]);
      row.cells[1].append(element("span", { class: "badge" }), element("p", { class: "message" }));
      return row;
    },
    fillEngine,
  );
  byId("no-engines").hidden = pool.engines.length > 0;
}

function fillEngine(row, engine) {
  const [badge, message] = row.cells[1].children;
  const [status, text] = ENGINE_STATES[engine.state];
  setText(row.cells[0], engine.pod);
  setAttribute(badge, "data-status", status);
  setText(badge, text);
  setText(message, engine.message);
  const { generation, capacityBlocks, freeBlocks, runningRequests, waitingRequests } = engine;
  const figures = [generation, capacityBlocks, freeBlocks, runningRequests, waitingRequests];
  figures.forEach((figure, index) => setText(row.cells[index + 2], amount(figure)));
}

export function showLoans(pool) {
  const loans = pool.loans.flatMap(({ pod, loans: found }) => found.map((loan) => ({ pod, ...loan })));
  keyed(
    byId("loan-rows"),
    loans,
    (loan) => `${loan.pod} ${loan.lender} ${loan.borrower}`,
    () => emptyRow(["", "", "", "number", "number", "number"]),
    (row, loan) => {
      const since = duration(pool.unixTime - loan.sinceUnixTime);
      fillRow(row, [loan.lender, loan.borrower, loan.pod, amount(loan.blocks), since, due(loan, pool.unixTime)]);
    },
  );
  byId("loans").hidden = loans.length === 0;
  byId("no-loans").hidden = loans.length > 0;
}

function due(loan, now) {
  if (loan.dueUnixTime === null) return "on request";
  const left = loan.dueUnixTime - now;
  return left >= 0 ? `in ${duration(left)}` : `overdue for ${duration(-left)}`;
}

export function showChanges(pool) {
  keyed(
    byId("change-rows"),
    pool.changes,
    (change) => `${change.kind} ${change.name} ${change.reason} ${change.note} ${change.unixTime}`,
    () => {
      const row = emptyRow(["number", "", "", ""]);
      row.cells[2].append(element("span", { class: "badge" }));
      return row;
    },
    (row, change) => {
      const badge = row.cells[2].firstElementChild;
      setText(row.cells[0], time(change.unixTime));
      setText(row.cells[1], change.kind === "ZonePool" ? `pool ${change.name}` : change.name);
      setAttribute(badge, "data-status", change.type === "Warning" ? "False" : "Normal");
      setText(badge, change.count > 1 ? `${change.reason} × ${amount(change.count)}` : change.reason);
      setText(row.cells[3], change.note || NONE);
    },
  );
  byId("changes").hidden = pool.changes.length === 0;
  byId("no-changes").hidden = pool.changes.length > 0;
}
