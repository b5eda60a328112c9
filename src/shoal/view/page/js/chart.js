// Lines over each other and bars, drawn as SVG.

import { h, svg } from "./dom.js";
import { round, short } from "./format.js";

// On a phone as many letters have to be read in half the width.
const WIDTH = window.innerWidth < 720 ? 340 : 560;
const LEFT = 46;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 24;

/** Draw curves: [{ name, hue, dashed, points: [[x, y]], raw, band: [[x, low, high]] }]. */
export function lines(curves, { height = 240, log = false, by = "step" } = {}) {
  const fits = (value) => value !== null && Number.isFinite(value) && (!log || value > 0);
  const shown = curves.flatMap((curve) => [...curve.points, ...(curve.raw ?? [])]).filter(([, y]) => fits(y));
  const bands = curves.flatMap((curve) => curve.band ?? []).filter(([, low]) => low !== null);
  if (!shown.length) return h("p", { class: "quiet" }, "nothing to draw yet");
  const xs = extent(shown.map(([x]) => x));
  const ys = extent([...shown.map(([, y]) => y), ...bands.flatMap(([, low, high]) => [low, high])], log);
  const x = (value) => LEFT + ((value - xs[0]) / (xs[1] - xs[0] || 1)) * (WIDTH - LEFT - RIGHT);
  const scale = log ? Math.log10 : (value) => value;
  const y = (value) => TOP + (1 - (scale(value) - scale(ys[0])) / (scale(ys[1]) - scale(ys[0]) || 1)) * (height - TOP - BOTTOM);
  const path = (points) => points.filter(([, value]) => fits(value)).map(([at, value], place) => `${place ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const drawing = svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": `${curves.map((curve) => curve.name).join(", ")} by ${by}` },
    ticks(ys, log).map((value) => [
      svg("line", { class: "gridline", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
      svg("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, round(value))]),
    ticks(xs, false, 5).map((value) => svg("text", { x: x(value), y: height - 6, "text-anchor": "middle" }, round(value))),
    curves.map((curve) => svg("g", { class: `hue${curve.hue % 8}` },
      curve.band ? svg("path", { class: "band", d: bandPath(curve.band, x, y), opacity: 0.35 }) : null,
      curve.raw ? svg("path", { class: "curve raw", d: path(curve.raw) }) : null,
      svg("path", { class: `curve${curve.dashed ? " dashed" : ""}`, d: path(curve.points) }))));
  return hovering(drawing, curves, { x, y, xs, height, by, fits });
}

function bandPath(band, x, y) {
  const known = band.filter(([, low]) => low !== null);
  const upper = known.map(([at, , high]) => `${x(at)} ${y(high)}`);
  const lower = known.map(([at, low]) => `${x(at)} ${y(low)}`).reverse();
  return `M${[...upper, ...lower].join("L")}Z`;
}

/** Tell of the points nearest to the pointer. */
function hovering(drawing, curves, { x, y, xs, height, by, fits }) {
  const cross = svg("line", { class: "cross", y1: TOP, y2: height - BOTTOM, visibility: "hidden" });
  const dots = curves.map((curve) => svg("circle", { class: `dot hue${curve.hue % 8}`, r: 4, visibility: "hidden" }));
  drawing.append(cross, ...dots);
  const tip = h("div", { class: "tip", hidden: true });
  const frame = h("div", { class: "frame" }, drawing, tip);
  const hide = () => {
    tip.hidden = true;
    [cross, ...dots].forEach((part) => part.setAttribute("visibility", "hidden"));
  };
  drawing.addEventListener("pointerleave", hide);
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const share = ((event.clientX - box.left) / box.width * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT);
    const at = xs[0] + Math.max(0, Math.min(share, 1)) * (xs[1] - xs[0]);
    const near = curves.map((curve) => nearest(curve.points.filter(([, value]) => fits(value)), at));
    const known = near.filter(Boolean);
    if (!known.length) return;
    const place = known.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best))[0];
    cross.setAttribute("x1", x(place));
    cross.setAttribute("x2", x(place));
    cross.setAttribute("visibility", "visible");
    near.forEach((point, index) => {
      dots[index].setAttribute("visibility", point ? "visible" : "hidden");
      if (!point) return;
      dots[index].setAttribute("cx", x(point[0]));
      dots[index].setAttribute("cy", y(point[1]));
    });
    tip.replaceChildren(h("p", { class: "quiet" }, `${by} ${short(Math.round(place))}`),
      ...curves.map((curve, index) => near[index] && h("p", {}, h("span", { class: `hue${curve.hue % 8}` }, curve.name), h("b", {}, short(near[index][1])))).filter(Boolean));
    tip.hidden = false;
    const right = event.clientX - box.left > box.width / 2;
    tip.style.left = right ? "auto" : `${event.clientX - box.left + 14}px`;
    tip.style.right = right ? `${box.right - event.clientX + 14}px` : "auto";
    tip.style.top = "8px";
  });
  return frame;
}

function nearest(points, at) {
  if (!points.length) return null;
  let low = 0, high = points.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < at) low = middle;
    else high = middle;
  }
  return Math.abs(points[low][0] - at) <= Math.abs(points[high][0] - at) ? points[low] : points[high];
}

/** Draw bins as bars: [{ from, to, count }]. */
export function bars(bins, { height = 170, name = String } = {}) {
  if (!bins.length) return h("p", { class: "quiet" }, "nothing to draw yet");
  const most = Math.max(...bins.map((bin) => bin.count));
  const wide = (WIDTH - LEFT - RIGHT) / bins.length;
  const y = (value) => TOP + (1 - value / (most || 1)) * (height - TOP - BOTTOM);
  const every = Math.ceil(bins.length / 7);
  return svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": `histogram, ${bins.length} bars` },
    ticks([0, most], false, 3).map((value) => [
      svg("line", { class: "gridline", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
      svg("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, round(value))]),
    bins.map((bin, at) => svg("rect", { class: "bar-shape", x: LEFT + at * wide + 0.5, width: Math.max(wide - 1.5, 1),
      y: y(bin.count), height: Math.max(y(0) - y(bin.count), bin.count ? 1.5 : 0), rx: 2 },
      svg("title", {}, `${name(bin.from)} to ${name(bin.to)}: ${short(bin.count)}`))),
    bins.map((bin, at) => (at % every ? null : svg("text", { x: LEFT + at * wide, y: height - 6 }, name(bin.from)))));
}

function extent(values, log = false) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low === high) return log ? [low / 2, high * 2] : [low - Math.abs(low) * 0.1 - 0.5, high + Math.abs(high) * 0.1 + 0.5];
  return [low, high];
}

/** Round numbers inside of a range. */
function ticks([low, high], log = false, wanted = 4) {
  if (log && Math.log10(high / low) >= 1.5) {
    const found = [];
    for (let at = Math.ceil(Math.log10(low)); at <= Math.log10(high); at += 1) found.push(10 ** at);
    return found;
  }
  const rough = (high - low) / wanted;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = size * ([1, 2, 5, 10].find((factor) => factor * size >= rough) ?? 10);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}
