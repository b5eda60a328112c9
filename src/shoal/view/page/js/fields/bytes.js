// Bytes as editors show them: where, in numbers, and as letters where they are some.

import { h } from "../dom.js";

const ROW = 8;

/** The first bytes of a field. */
export function bytesField(sample, field) {
  const bytes = (field.hex.match(/../g) ?? []).map((pair) => parseInt(pair, 16));
  const rows = [];
  for (let at = 0; at < bytes.length; at += ROW) {
    const some = bytes.slice(at, at + ROW);
    rows.push(
      h("span", { class: "at" }, at.toString(16).padStart(6, "0")),
      h("span", {}, some.map((byte) => byte.toString(16).padStart(2, "0")).join(" ")),
      h("span", { class: "quiet" }, some.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·")).join("")));
  }
  return h("div", { class: "inside" }, h("div", { class: "hex", tabindex: "0" }, rows),
    bytes.length ? null : h("p", { class: "quiet" }, "no bytes"));
}
