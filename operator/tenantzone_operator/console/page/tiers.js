// What zones hold in the tiers below their engines' blocks, and the state of the tiers.

import { byId, element, emptyRow, fillRow, keyed, setAttribute, setText } from "./dom.js";
import { amount, bytes } from "./wording.js";

export function showTiers(pool) {
  const rows = pool.zones.flatMap((zone) => (zone.tiers ?? []).map((tier) => ({ zone: zone.name, registered: zone.registered, ...tier })));
  byId("tiers").hidden = rows.length === 0 && pool.tiers.length === 0;
  keyed(
    byId("tier-rows"),
    rows,
    (row) => `${row.registered ? "registered" : "declared"} ${row.zone} ${row.tier}`,
    () => emptyRow(["", "", "number", "number", "number", "number", "number"]),
    (line, { zone, tier, held, reserved, hits, evictions, writesRefused }) =>
      fillRow(line, [zone, tier, bytes(held), bytes(reserved), amount(hits), amount(evictions), amount(writesRefused)]),
  );
  keyed(
    byId("engine-tier-rows"),
    pool.tiers,
    (row) => `${row.pod} ${row.tier}`,
    () => {
      const line = emptyRow(["", "", "number", "number", ""]);
      line.cells[4].append(element("span", { class: "badge" }), element("p", { class: "message" }));
      return line;
    },
    (line, { pod, tier, heldBytes, capacityBytes, problem }) => {
      fillRow(line, [pod, tier, bytes(heldBytes), bytes(capacityBytes)]);
      const [badge, message] = line.cells[4].children;
      setAttribute(badge, "data-status", problem ? "False" : "True");
      setText(badge, problem ? "fails" : "works");
      setText(message, problem);
    },
  );
}
