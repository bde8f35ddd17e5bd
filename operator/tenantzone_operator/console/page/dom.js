// Small helpers around the DOM. Text goes in as text: nothing here, or elsewhere on the page, parses HTML.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Sets a text only if it differs: an unchanged text is not read out again, and stays selected. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/** Makes one child per item, in their order. A child stays the same node while its key exists, so it keeps the focus. */
export function keyed(parent, items, keyOf, create, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let child = known.get(key);
    known.delete(key);
    if (child === undefined) {
      child = create(item);
      child.dataset.key = key;
    }
    update(child, item);
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
  }
  for (const gone of known.values()) gone.remove();
}

/** Sets the texts of a row's first cells, one per text. */
export function fillRow(row, texts) {
  texts.forEach((text, index) => setText(row.cells[index], text));
}

/** Returns a row of empty cells; `classes` has one entry per cell, and the first cell heads the row. */
export function emptyRow(classes) {
  const cells = classes.map((name, index) =>
    element(index === 0 ? "th" : "td", { ...(index === 0 && { scope: "row" }), ...(name && { class: name }) }),
  );
  return element("tr", {}, ...cells);
}
