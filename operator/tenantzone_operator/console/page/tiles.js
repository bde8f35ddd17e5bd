// Draws a block: solid in its zone's colour when in use, hatched when cached, bordered when borrowed.

/**
 * @param {CanvasRenderingContext2D} context
 * @param {{use: string, borrowed: boolean}} kind
 * @param {{colour: string, mark: string}} look the look of its zone
 * @param {number} size the edge of the cell in the context's pixels, including the gap to the next one
 * @param {(name: string) => string} colours looks up a colour of the theme
 */
export function drawTile(context, kind, look, size, colours) {
  const gap = size >= 8 ? Math.max(1, Math.round(size / 12)) : 1;
  const edge = size - gap;
  if (kind.use === "free") {
    context.fillStyle = colours("--free");
    context.fillRect(0, 0, edge, edge);
    outline(context, edge, 1, colours("--free-line"));
    return;
  }
  const colour = colours(look.colour);
  context.fillStyle = colour;
  if (kind.use === "cached") hatch(context, edge, colour, colours("--surface"));
  else context.fillRect(0, 0, edge, edge);
  mark(context, edge, look.mark, colour, colours("--surface"));
  if (kind.borrowed) outline(context, edge, Math.max(1.5, edge / 7), colours("--ink"));
}

function hatch(context, edge, colour, ground) {
  context.save();
  context.beginPath();
  context.rect(0, 0, edge, edge);
  context.clip();
  context.fillStyle = ground;
  context.fillRect(0, 0, edge, edge);
  context.strokeStyle = colour;
  const step = Math.max(3, edge / 3);
  context.lineWidth = step * 0.45;
  context.beginPath();
  for (let at = -edge; at <= edge; at += step) {
    context.moveTo(at, edge);
    context.lineTo(at + edge, 0);
  }
  context.stroke();
  context.restore();
  outline(context, edge, Math.max(1, edge / 14), colour);
}

function outline(context, edge, width, colour) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.strokeRect(width / 2, width / 2, edge - width, edge - width);
}

function mark(context, edge, name, colour, ground) {
  if (name === "none") return;
  const middle = edge / 2;
  context.fillStyle = ground;
  context.beginPath();
  context.arc(middle, middle, edge * 0.34, 0, 2 * Math.PI);
  context.fill();
  context.fillStyle = colour;
  const thick = Math.max(1, edge * 0.14);
  const long = edge * 0.46;
  if (name === "dot") {
    context.beginPath();
    context.arc(middle, middle, edge * 0.18, 0, 2 * Math.PI);
    context.fill();
    return;
  }
  context.fillRect(middle - long / 2, middle - thick / 2, long, thick);
  if (name === "cross") context.fillRect(middle - thick / 2, middle - long / 2, thick, long);
}

/** Returns a small canvas with one tile, for legends. */
export function drawSwatch(canvas, kind, look, colours, size = 18) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = canvas.height = Math.round(size * scale);
  canvas.style.width = canvas.style.height = `${size}px`;
  drawTile(canvas.getContext("2d"), kind, look, canvas.width, colours);
}
