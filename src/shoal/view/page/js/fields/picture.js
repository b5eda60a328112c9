// Pictures, masks, and masks over pictures.

import { picture } from "../api.js";
import { h } from "../dom.js";
import { percent } from "../format.js";

const PIXELATED = 128;

/** A picture as it is. */
export function pictureField(sample, field) {
  return h("div", { class: "stack" }, image(sample, field, "picture"));
}

/** A mask by itself, each class in its colour. */
export function maskField(sample, field) {
  return h("div", { class: "stack" }, image(sample, field, "mask"));
}

/** A picture with masks over it, which can be taken off, and how strong they are. */
export function overlaid(sample, base, masks) {
  const layers = masks.map((mask) => {
    const over = image(sample, mask, "mask");
    over.classList.add("over");
    return over;
  });
  const amount = h("output", {}, percent(0.55));
  const slider = h("input", { type: "range", min: 0, max: 100, value: 55, "aria-label": "How strong masks are" });
  const fade = () => {
    layers.forEach((layer) => { layer.style.opacity = slider.value / 100; });
    amount.value = percent(slider.value / 100);
  };
  slider.addEventListener("input", fade);
  fade();
  const toggles = masks.map((mask, at) => {
    const box = h("input", { type: "checkbox", checked: true });
    box.addEventListener("change", () => { layers[at].hidden = !box.checked; });
    return h("label", {}, box, mask.name);
  });
  return h("div", {},
    h("div", { class: "stack" }, image(sample, base, "picture"), layers),
    h("div", { class: "overlays" }, toggles, h("label", {}, slider, amount)));
}

function image(sample, field, as) {
  const made = h("img", { src: picture(sample, field.name, as), alt: `${field.name} of ${sample.key}`, draggable: "false" });
  if (field.width <= PIXELATED && field.height <= PIXELATED) made.classList.add("pixels");
  made.addEventListener("error", () => made.replaceWith(h("p", { class: "problem" }, `${field.name} cannot be shown`)));
  return made;
}
