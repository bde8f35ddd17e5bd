// The page's requests to the operator.

const PATIENCE = 8000;

/** A failed request; its message is for people. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function get(path) {
  let answer;
  try {
    answer = await fetch(path, { signal: AbortSignal.timeout(PATIENCE) });
  } catch {
    throw new Refused(0, "the operator does not answer; is the port-forward still running?");
  }
  if (answer.ok) return answer.json();
  const body = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, body.error ?? `the operator answers with status ${answer.status}`);
}

const pathOf = ({ namespace, name }) => `/api/pools/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;

export const getStorages = () => get("/api/storages");

export const getPools = () => get("/api/pools");

export const getPool = (pool, filter) => get(`${pathOf(pool)}?filter=${encodeURIComponent(filter)}`);

/** Requests the map of an engine's blocks; with a tier, of that tier's chunks. */
export const getBlocks = (pool, engine, tier, cells) =>
  get(`${pathOf(pool)}/blocks/${encodeURIComponent(engine)}?cells=${cells}${tier ? `&tier=${encodeURIComponent(tier)}` : ""}`);
