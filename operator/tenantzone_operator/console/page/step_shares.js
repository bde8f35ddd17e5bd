// Each zone's recent share of the steps' tokens, from counters that begin at the engines' start.

const SECONDS = 10;

export class StepShares {
  #looks = [];

  /** Notes a pool's current counts. Another pool, another set of answering engines, or a restarted count resets the past. */
  look(name, pool) {
    const now = performance.now() / 1000;
    const counts = new Map(pool.zones.map((zone) => [keyOf(zone), zone.computedTokens ?? 0]));
    const whose = JSON.stringify([name, ...pool.engines.filter(isHeard).map((engine) => engine.pod)]);
    const last = this.#looks.at(-1);
    if (last && (last.whose !== whose || pool.computedTokens < last.total)) this.#looks = [];
    this.#looks.push({ now, whose, total: pool.computedTokens, counts });
    // Keep one older look, so that the looks always cover the whole span.
    while (this.#looks.length > 2 && this.#looks[1].now <= now - SECONDS) this.#looks.shift();
  }

  /** Returns the zone's percentage of the tokens of the last seconds, or since the zone is shown; null without tokens. */
  of(zone) {
    const [first, last] = [this.#looks.find((look) => look.counts.has(keyOf(zone))), this.#looks.at(-1)];
    const total = first ? last.total - first.total : 0;
    if (total <= 0) return null;
    return Math.max(0, Math.round((100 * ((zone.computedTokens ?? 0) - first.counts.get(keyOf(zone)))) / total));
  }
}

const isHeard = (engine) => engine.generation !== undefined;
const keyOf = (zone) => `${zone.registered ? "registered" : "declared"} ${zone.name}`;
