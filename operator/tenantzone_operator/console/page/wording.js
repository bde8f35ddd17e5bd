// Formats numbers, times and the product's terms for people.

const whole = new Intl.NumberFormat("en");
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export const NONE = "–";

export const amount = (value) => (value === null || value === undefined ? NONE : whole.format(value));

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Formats an amount of bytes with two or three digits. */
export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit > 0 && value < 10 ? Math.round(10 * value) / 10 : Math.round(value)} ${UNITS[unit]}`;
}

export const percent = (value) => (value === null || value === undefined ? NONE : `${value} %`);

export const counted = (count, one, many = `${one}s`) => `${whole.format(count)} ${count === 1 ? one : many}`;

export const time = (unixTime) => clock.format(unixTime * 1000);

export function duration(seconds) {
  const rounded = Math.max(0, Math.round(seconds));
  if (rounded < 60) return `${rounded} s`;
  if (rounded < 3600) return `${Math.floor(rounded / 60)} min ${rounded % 60} s`;
  return `${Math.floor(rounded / 3600)} h ${Math.floor((rounded % 3600) / 60)} min`;
}

const USES = { in_use: "in use", cached: "cached", free: "free" };

const WAITS = {
  limit: "blocks: its limit is in use",
  reserved: "blocks: they are kept for others",
  in_use: "blocks: other requests use them",
  seats: "a seat: the engine runs as many requests as it can",
  tokens: "its share of the steps' tokens",
  seat_limit: "a seat: it runs as many requests as it may",
  adapter: "a LoRA adapter slot: other adapters have them all",
  grammar: "its grammar: that of its structured output is being compiled",
  load: "a tier: blocks of its prompt are looked up there, or copied from there",
  encoder: "room in the encoder: media of other requests use it, or it is kept for another zone",
};

export const waiting = (reason) => WAITS[reason] ?? reason;

/** Returns the unit of a map: the engine's blocks, or a tier's chunks. */
export const unitOf = (map) => (map.tier ? "chunk" : "block");

/** Describes a kind of blocks in words. */
export function kindInWords(kind) {
  if (kind.use === "free") return "free";
  const whose = kind.zone ?? "no zone";
  return `${whose}, ${USES[kind.use]}${kind.borrowed ? ", borrowed" : ""}`;
}
