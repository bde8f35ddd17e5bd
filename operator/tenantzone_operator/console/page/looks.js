// How each zone looks: a colour, and once those are used up a mark on it, too. In the order of names, so that a zone looks
// the same whenever the same zones are there.

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

/** The colours as the present theme has them. */
export function themeColours() {
  const style = getComputedStyle(document.documentElement);
  return (name) => style.getPropertyValue(name).trim();
}
