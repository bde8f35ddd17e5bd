// The page of pools: what each zone holds, and the engines' reports.

import { Blocks } from "./blocks.js";
import { showCharts } from "./charts.js";
import { getBlocks, getPool, getPools } from "./client.js";
import { byId, element, keyed, setText } from "./dom.js";
import { showChanges, showEngines, showLoans, showPool } from "./lists.js";
import { keepLooking, showReplica } from "./looking.js";
import { Looks } from "./looks.js";
import { showTiers } from "./tiers.js";
import { showZones } from "./zones.js";
import { counted, time } from "./wording.js";

const blocks = new Blocks();

const nameOf = (pool) => `${pool.namespace}/${pool.name}`;

function chosenPool(pools) {
  const wanted = decodeURIComponent(location.hash.slice(2));
  return pools.find((pool) => nameOf(pool) === wanted) ?? pools.find((pool) => pool.exists) ?? pools[0];
}

function showChoices(select, choices, chosen, textOf) {
  keyed(
    select,
    choices,
    (choice) => choice,
    (choice) => element("option", { value: choice }),
    (option, choice) => setText(option, textOf(choice)),
  );
  if (select.value !== chosen) select.value = chosen;
}

async function showBlocks(pool, found, looks) {
  const engines = found.engines.filter((engine) => engine.state !== "NotReady").map((engine) => engine.pod);
  const select = byId("engine");
  const engine = engines.includes(select.value) ? select.value : engines[0];
  byId("engine-field").hidden = engines.length < 2;
  if (engine === undefined) {
    blocks.fail("No engine of this pool is ready.");
    return;
  }
  showChoices(select, engines, engine, (name) => name);
  const tier = chosenTier(found, engine);
  try {
    const map = await getBlocks(pool, engine, tier, blocks.cells);
    blocks.show(map, engine, looks(map.kinds.map((kind) => kind.zone)));
  } catch (error) {
    blocks.fail(`No picture of ${tier ? `tier ${tier} of ${engine}` : `${engine}'s blocks`}: ${error.message}`);
  }
}

/** Returns which map to show: empty for the blocks, or the name of a tier that the engine has. */
function chosenTier(found, engine) {
  const tiers = found.tiers.filter((each) => each.pod === engine).map((each) => each.tier);
  const select = byId("tier");
  const tier = tiers.includes(select.value) ? select.value : "";
  byId("tier-field").hidden = tiers.length === 0;
  showChoices(select, ["", ...tiers], tier, (name) => (name ? `tier ${name}` : "blocks"));
  return tier;
}

async function look() {
  const { pools, replica, unixTime } = await getPools();
  showReplica(replica);
  byId("pages").hidden = !replica.hasManager;
  byId("empty").hidden = pools.length > 0 || !replica.hasListed;
  byId("content").hidden = pools.length === 0;
  const select = byId("pool");
  select.disabled = pools.length === 0;
  if (pools.length > 0) await lookAt(chosenPool(pools), pools, select);
  setText(byId("updated"), `Updated ${time(unixTime)}`);
}

async function lookAt(pool, pools, select) {
  const byName = new Map(pools.map((each) => [nameOf(each), each]));
  showChoices(select, [...byName.keys()], nameOf(pool), (name) => `${name} (${counted(byName.get(name).zones, "zone")})`);
  document.title = `${pool.name} – TenantZone`;
  const filter = byId("filter").value.trim();
  const found = await getPool(pool, filter);
  // Assign looks to all zones of the pool, even if the list or the map does not contain them.
  const names = found.zoneNames;
  const looks = (more) => new Looks([...names, ...more.filter((name) => name !== null)]);
  showPool(found, nameOf(pool));
  showZones(found, nameOf(pool), looks([]), filter);
  showCharts(found, looks([]));
  showTiers(found);
  showEngines(found);
  showLoans(found);
  showChanges(found);
  await showBlocks(pool, found, looks);
}

const wake = keepLooking(look);
byId("pool").addEventListener("change", (event) => {
  location.hash = `#/${event.target.value}`;
});
byId("engine").addEventListener("change", () => wake());
byId("tier").addEventListener("change", () => wake());
byId("filter").addEventListener("input", () => wake());
window.addEventListener("hashchange", () => wake());
