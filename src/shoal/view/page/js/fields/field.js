// A field by its kind.

import { arrayField } from "./array.js";
import { bytesField } from "./bytes.js";
import { jsonField } from "./json.js";
import { maskField, pictureField } from "./picture.js";
import { soundField, videoField } from "./sound.js";
import { h } from "../dom.js";

const KINDS = {
  picture: (sample, field) => (field.mask ? maskField(sample, field) : pictureField(sample, field)),
  sound: soundField,
  video: videoField,
  array: arrayField,
  json: jsonField,
  bytes: bytesField,
  broken: brokenField,
  number: (sample, field) => h("p", { class: "inside value" }, field.text),
  text: textField,
  none: () => h("p", { class: "inside quiet" }, "nothing"),
};

/** Draw a field of a sample. */
export function drawField(sample, field) {
  return (KINDS[field.kind] ?? KINDS.none)(sample, field);
}

function textField(sample, field) {
  return h("div", { class: "inside" },
    h("div", { class: "prose", tabindex: "0" }, field.text),
    field.whole ? null : h("p", { class: "quiet" }, "The rest is left out; save the field to see it."));
}

function brokenField(sample, field) {
  return h("div", {},
    h("div", { class: "inside" }, h("p", { class: "problem" }, field.problem)),
    field.hex ? bytesField(sample, field) : null);
}
