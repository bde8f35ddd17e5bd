// What part of the steps' tokens each zone had of late: engines count them from their start.

const SECONDS = 10;

export class StepShares {
  #looks = [];

  /** Note the counts of a pool as they are now; those of another pool, or of engines that began anew, end the past. */
  look(name, pool) {
    const now = performance.now() / 1000;
    const counts = new Map(pool.zones.map((zone) => [keyOf(zone), zone.computedTokens ?? 0]));
    const last = this.#looks.at(-1);
    if (last && (last.name !== name || pool.computedTokens < last.total)) this.#looks = [];
    this.#looks.push({ now, name, total: pool.computedTokens, counts });
    // One that is older is kept, so that there is always a whole span to tell of.
    while (this.#looks.length > 2 && this.#looks[1].now <= now - SECONDS) this.#looks.shift();
  }

  /** Percent of all tokens that were computed in the last seconds; null where none were. */
  of(zone) {
    const [first, last] = [this.#looks[0], this.#looks.at(-1)];
    const total = last.total - first.total;
    const before = first.counts.get(keyOf(zone));
    if (total <= 0 || before === undefined) return null;
    return Math.max(0, Math.round((100 * ((zone.computedTokens ?? 0) - before)) / total));
  }
}

const keyOf = (zone) => `${zone.registered ? "registered" : "declared"} ${zone.name}`;
