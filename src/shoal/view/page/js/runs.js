// Learning curves of several trainings over each other.

import { lines } from "./chart.js";
import { fill, h } from "./dom.js";
import { many } from "./format.js";
import { PolledPage } from "./polled.js";

export class RunsPage extends PolledPage {
  constructor() {
    super("/api/runs", 3);
    this.hidden = new Set();
    this.smooth = 0;
    this.log = false;
    this.state = h("p", { class: "quiet" });
    this.legend = h("div", { class: "legend", role: "group", "aria-label": "Runs" });
    this.boards = h("div", { class: "boards" });
    const slider = h("input", { type: "range", min: 0, max: 95, value: 0, "aria-label": "Smoothing" });
    slider.addEventListener("input", () => { this.smooth = slider.value / 100; this.drawCharts(); });
    const log = h("button", { class: "button", type: "button", "aria-pressed": "false" }, "Log scale");
    log.addEventListener("click", () => { this.log = !this.log; log.setAttribute("aria-pressed", this.log); this.drawCharts(); });
    this.element = h("div", { class: "page" }, h("div", { class: "inner" },
      h("div", { class: "head" }, h("div", { class: "words" }, h("h2", {}, "Learning curves"), this.state),
        h("div", { class: "actions" }, h("label", { class: "field" }, "Smooth", slider), log)),
      this.legend, this.boards));
  }

  show() {
    this.last = "";
    super.show();
  }

  draw(told, error) {
    if (error) {
      fill(this.state, error.message);
      return 3;
    }
    const seen = JSON.stringify(told);
    if (seen === this.last) return 3;
    this.last = seen;
    this.told = told;
    fill(this.state, `${many(told.runs.length, "run")}, validation dashed; looked at anew every few seconds`);
    fill(this.legend, told.runs.map((run, at) => this.toggle(run, at)));
    this.drawCharts();
    return 3;
  }

  toggle(run, at) {
    const button = h("button", { class: "button", type: "button", "aria-pressed": String(!this.hidden.has(run)) }, h("i", { class: `hue${at % 8}` }), run);
    button.addEventListener("click", () => {
      if (!this.hidden.delete(run)) this.hidden.add(run);
      button.setAttribute("aria-pressed", String(!this.hidden.has(run)));
      this.drawCharts();
    });
    return button;
  }

  drawCharts() {
    if (!this.told) return;
    fill(this.boards, this.told.charts.map((chart) => h("section", { class: "card", "data-tag": chart.tag },
      h("h3", {}, chart.tag, h("small", {}, `by ${chart.by}`)), this.chart(chart))));
  }

  chart(chart) {
    const curves = chart.curves.filter((curve) => !this.hidden.has(curve.run)).map((curve) => ({
      name: curve.part && chart.curves.some((other) => other.run === curve.run && other.part !== curve.part) ? `${curve.run} ${curve.part}` : curve.run,
      hue: this.told.runs.indexOf(curve.run),
      dashed: curve.part === "validation" && curve.points.length > 1,
      points: smoothed(curve.points, this.smooth),
      raw: this.smooth ? curve.points : null,
    }));
    return lines(curves, { log: this.log, by: chart.by });
  }
}

/** Let each point lean on those before it. */
function smoothed(points, weight) {
  if (!weight) return points;
  let mean = null, total = 0;
  return points.map(([at, value]) => {
    if (typeof value !== "number") return [at, value];
    mean = (mean ?? 0) * weight + value * (1 - weight);
    total = total * weight + (1 - weight);
    return [at, mean / total];
  });
}
