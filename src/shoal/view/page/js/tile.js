// A sample in the grid.

import { thumbnail } from "./api.js";
import { h, sign, svg } from "./dom.js";

const PIXELATED = 64;

/** Fill the face and the foot of a tile with what is told of a sample. */
export function drawTile(element, tile, edge) {
  element.classList.remove("waiting");
  element.setAttribute("aria-label", named(tile));
  element.replaceChildren(
    h("span", { class: "face" }, face(tile, edge)),
    h("span", { class: "foot" },
      h("span", { class: "key", title: tile.key }, tile.key),
      tile.label === undefined ? null : h("span", { class: "label", title: tile.label }, tile.label)),
  );
}

/** Show that a sample is on its way. */
export function drawWaiting(element, index) {
  element.classList.add("waiting");
  element.setAttribute("aria-label", `sample ${index}, not loaded yet`);
  element.replaceChildren(h("span", { class: "face" }), h("span", { class: "foot" }));
}

function named(tile) {
  return `sample ${tile.number}, ${tile.key}${tile.label === undefined ? "" : `, class ${tile.label}`}, ${tile.kind}`;
}

function face(tile, edge) {
  if (tile.kind === "picture" || (tile.kind === "array" && !tile.points)) return picture(tile, edge);
  if (tile.kind === "array") return spark(tile.points);
  if (tile.kind === "text") return h("span", { class: "words" }, tile.text);
  if (tile.facts) {
    return h("dl", { class: "facts" }, tile.facts.map(([name, value]) => [h("dt", {}, name), h("dd", { title: value }, value)]));
  }
  if (tile.kind === "broken") return broken(tile.text);
  const signs = { sound: "sound", video: "film" };
  return h("span", { class: "sign" }, sign(signs[tile.kind] ?? "bytes", 36), tile.text ?? tile.field ?? "nothing");
}

function picture(tile, edge) {
  const image = h("img", { alt: "", decoding: "async", draggable: "false" });
  image.addEventListener("load", () => {
    if (image.naturalWidth <= PIXELATED && image.naturalHeight <= PIXELATED) image.classList.add("tiny");
    image.classList.add("there");
  });
  image.addEventListener("error", () => image.isConnected && image.replaceWith(broken(`${tile.field} cannot be shown`)));
  image.src = thumbnail(tile, tile.field, edge);
  return image;
}

function broken(text) {
  return h("span", { class: "sign broken" }, sign("broken", 30), text);
}

/** A row of numbers as a small line, between its least and its greatest. */
export function spark(points) {
  const known = points.flat().filter((value) => value !== null);
  const low = Math.min(...known), high = Math.max(...known);
  const y = (value) => 58 - ((value - low) / (high - low || 1)) * 56;
  const upper = points.map(([, value], at) => (value === null ? null : `${(at / Math.max(points.length - 1, 1)) * 100} ${y(value)}`));
  const lower = points.map(([value], at) => (value === null ? null : `${(at / Math.max(points.length - 1, 1)) * 100} ${y(value)}`));
  const line = [...upper, ...lower.reverse()].filter((place) => place !== null).join("L");
  return svg("svg", { class: "chart spark", viewBox: "0 0 100 60", preserveAspectRatio: "none", "aria-hidden": "true" },
    line ? svg("path", { class: "band", d: `M${line}`, "vector-effect": "non-scaling-stroke" }) : null);
}
