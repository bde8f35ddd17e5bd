// What part of the steps' tokens each zone had of late: engines count them from their start.

const SECONDS = 10;

export class StepShares {
  #looks = [];

  /** Note the counts of a pool as they are now. Another pool, other engines that answer, or counts anew end the past. */
  look(name, pool) {
    const now = performance.now() / 1000;
    const counts = new Map(pool.zones.map((zone) => [keyOf(zone), zone.computedTokens ?? 0]));
    const whose = JSON.stringify([name, ...pool.engines.filter(isHeard).map((engine) => engine.pod)]);
    const last = this.#looks.at(-1);
    if (last && (last.whose !== whose || pool.computedTokens < last.total)) this.#looks = [];
    this.#looks.push({ now, whose, total: pool.computedTokens, counts });
    // One that is older is kept, so that there is always a whole span to tell of.
    while (this.#looks.length > 2 && this.#looks[1].now <= now - SECONDS) this.#looks.shift();
  }

  /** Percent of all tokens that were computed in the last seconds, or since the zone is shown; null where none were. */
  of(zone) {
    const [first, last] = [this.#looks.find((look) => look.counts.has(keyOf(zone))), this.#looks.at(-1)];
    const total = first ? last.total - first.total : 0;
    if (total <= 0) return null;
    return Math.max(0, Math.round((100 * ((zone.computedTokens ?? 0) - first.counts.get(keyOf(zone)))) / total));
  }
}

const isHeard = (engine) => engine.generation !== undefined;
const keyOf = (zone) => `${zone.registered ? "registered" : "declared"} ${zone.name}`;
