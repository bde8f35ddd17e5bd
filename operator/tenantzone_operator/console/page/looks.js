// Assigns each zone a colour and, once all colours are used, also a mark. The order is that of names, so that the same
// zones always look the same.

const COLOURS = 7;
const MARKS = ["none", "dot", "bar", "cross"];

export class Looks {
  constructor(names) {
    const looks = [...new Set(names)].sort().map((name, index) => [name, look(index)]);
    this.byZone = new Map(looks);
  }

  of(zone) {
    return this.byZone.get(zone) ?? { colour: "--no-zone", mark: "none" };
  }
}

function look(index) {
  const round = Math.floor(index / COLOURS) % MARKS.length;
  return { colour: `--zone-${(index % COLOURS) + 1}`, mark: MARKS[round] };
}

/** Returns a function that looks up a colour in the current theme. */
export function themeColours() {
  const style = getComputedStyle(document.documentElement);
  return (name) => style.getPropertyValue(name).trim();
}
