// Arrays: a line for a row of numbers, a heat-map for a table, a picture where it looks like one.

import { picture } from "../api.js";
import { lines } from "../chart.js";
import { h } from "../dom.js";
import { count, short } from "../format.js";

/** The facts of an array, and a drawing of it. */
export function arrayField(sample, field) {
  const facts = [["least", field.least], ["mean", field.mean], ["greatest", field.greatest]].filter(([, value]) => value !== undefined);
  if (field.odd) facts.push(["not finite", count(field.odd)]);
  return h("div", { class: "inside" },
    h("dl", { class: "stats" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, short(value))))),
    drawing(sample, field));
}

function drawing(sample, field) {
  switch (field.draw) {
    case "line": return line(field);
    case "heat": return h("img", { class: "heat", src: picture(sample, field.name, "heat"), alt: `${field.name} as a heat-map` });
    case "picture": return h("div", { class: "stack" }, h("img", { class: "pixels", src: picture(sample, field.name), alt: field.name }));
    default: return h("pre", {}, field.text);
  }
}

function line(field) {
  const size = field.shape[0], steps = field.points.length;
  const at = (place) => (steps > 1 ? (place / (steps - 1)) * (size - 1) : 0);
  const flat = field.points.map(([low, high], place) => [at(place), low === null ? null : (low + high) / 2]);
  const band = steps < size ? field.points.map(([low, high], place) => [at(place), low, high]) : null;
  return lines([{ name: field.name, hue: 0, points: flat, band }], { height: 150, by: "place" });
}
