// Documents as a tree that opens and closes.

import { h } from "../dom.js";

const OPEN = 2;
const SHOWN = 200;

/** A document. */
export function jsonField(sample, field) {
  if (!field.whole) return h("div", { class: "inside" }, h("pre", { tabindex: "0" }, field.value, " …"));
  return h("div", { class: "inside" }, h("div", { class: "tree" }, branch(null, field.value, 0)));
}

function branch(name, value, depth) {
  const title = name === null ? null : h("span", { class: "name" }, `${name}: `);
  if (value === null || typeof value !== "object") return h("div", { class: "leaf" }, title, leaf(value));
  const entries = Object.entries(value);
  const kind = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  const inside = entries.slice(0, SHOWN).map(([inner, held]) => branch(inner, held, depth + 1));
  if (entries.length > SHOWN) inside.push(h("div", { class: "leaf few" }, `and ${entries.length - SHOWN} more`));
  return h("details", { open: depth < OPEN }, h("summary", {}, title, h("span", { class: "few" }, kind)), inside);
}

function leaf(value) {
  const kind = typeof value === "string" ? "string" : typeof value === "number" ? "number" : "few";
  return h("span", { class: kind }, typeof value === "string" ? JSON.stringify(value) : String(value));
}
