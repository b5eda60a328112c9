// Sound with its waveform, and films.

import { media } from "../api.js";
import { h, svg } from "../dom.js";
import { seconds } from "../format.js";

const WIDTH = 400;
const HEIGHT = 96;

/** A waveform that shows where the player is, and moves it when it is clicked. */
export function soundField(sample, field) {
  const player = h("audio", { controls: true, preload: "none", src: media(sample, field.name), "aria-label": `${field.name} of ${sample.key}` });
  const head = svg("line", { x1: 0, x2: 0, y1: 0, y2: HEIGHT, visibility: "hidden" });
  const wave = svg("svg", { class: "wave", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `waveform, ${seconds(field.seconds)}` }, svg("path", { d: outline(field.peaks) }), head);
  player.addEventListener("timeupdate", () => {
    const x = (player.currentTime / (player.duration || field.seconds)) * WIDTH;
    head.setAttribute("visibility", "visible");
    head.setAttribute("x1", x);
    head.setAttribute("x2", x);
  });
  wave.addEventListener("click", (event) => {
    const box = wave.getBoundingClientRect();
    player.currentTime = ((event.clientX - box.left) / box.width) * field.seconds;
    player.play();
  });
  return h("div", { class: "inside" }, wave, h("p", { class: "quiet" }, seconds(field.seconds)), player);
}

/** The shape between the lowest and the highest points. */
function outline(peaks) {
  const loudest = Math.max(...peaks.flat().map((value) => Math.abs(value ?? 0)), 1e-6);
  const x = (at) => ((at + 0.5) / peaks.length) * WIDTH;
  const y = (value) => HEIGHT / 2 - ((value ?? 0) / loudest) * (HEIGHT / 2 - 3);
  const upper = peaks.map(([, high], at) => `${x(at)} ${y(high) - 0.6}`);
  const lower = peaks.map(([low], at) => `${x(at)} ${y(low) + 0.6}`).reverse();
  return peaks.length ? `M${[...upper, ...lower].join("L")}Z` : "";
}

/** A film, if the browser knows its format. */
export function videoField(sample, field) {
  return h("div", { class: "inside" }, h("video", { controls: true, preload: "metadata", src: media(sample, field.name) }));
}
