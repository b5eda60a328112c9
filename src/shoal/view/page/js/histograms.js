// Classes and sizes: a first look at some samples, all of them if somebody asks for it.

import { post } from "./api.js";
import { bars } from "./chart.js";
import { fill, h } from "./dom.js";
import { bytes, count, many, percent, round } from "./format.js";
import { PolledPage } from "./polled.js";

export class HistogramsPage extends PolledPage {
  constructor(openSamples) {
    super("/api/histograms", 0.4);
    this.openSamples = openSamples;
    this.whole = false;
    this.state = h("p", { class: "quiet", "aria-live": "polite" });
    this.bar = h("i");
    this.all = h("button", { class: "button", type: "button", onclick: () => this.countAll() }, "Count all samples");
    this.stop = h("button", { class: "button", type: "button", onclick: () => post("/api/histograms/stop") }, "Stop");
    this.progress = h("div", { class: "progress" }, this.bar);
    this.boards = h("div", { class: "boards columns" });
    this.element = h("div", { class: "page" }, h("div", { class: "inner" },
      h("div", { class: "head" }, h("div", { class: "words" }, h("h2", {}, "How samples are spread"), this.state), h("div", { class: "actions" }, this.all, this.stop)),
      this.progress, this.boards));
  }

  asked() {
    return this.whole ? { whole: 1 } : {};
  }

  countAll() {
    this.whole = true;
    this.show();
  }

  draw(told, error) {
    if (error) {
      fill(this.state, error.message);
      return 3;
    }
    const few = !told.whole;
    fill(this.state, few ? `${count(told.seen)} samples, evenly spread over ${count(told.total)}` : `${count(told.seen)} of ${count(told.total)} samples`,
      told.stopped ? ", stopped" : "", told.error ? ` (${told.error})` : "");
    this.bar.style.width = `${told.done ? 100 : Math.min(100, 100 * told.seen / Math.max(few ? Math.min(told.total, 20000) : told.total, 1))}%`;
    this.progress.hidden = told.done;
    this.stop.hidden = told.done;
    this.all.hidden = told.whole && !told.stopped;
    fill(this.boards, classBoard(told.classes, told.seen, (label) => this.choose(told.classes.field, label)),
      Object.entries(told.sides).map(([name, found]) => board(`Pictures: ${name}`, found, (value) => `${round(value)}`, "pixels")),
      Object.entries(told.sizes).map(([name, found]) => board(`Size of ${name}`, found, bytes)));
    return told.done ? 0 : 0.3;
  }

  choose(field, label) {
    const word = /^-?\d+$/.test(label) ? label : JSON.stringify(label);
    this.openSamples({ where: `${field} == ${word}` });
  }
}

function classBoard(classes, seen, choose) {
  if (!classes.field) return null;
  const most = Math.max(...classes.counts.map((each) => each.count), 1);
  const rows = classes.counts.map(({ label, count: number }) => {
    const bar = h("i");
    bar.style.width = `${100 * number / most}%`;
    return h("li", {}, h("button", { type: "button", onclick: () => choose(label), title: `Show samples of class ${label}` },
      h("span", { class: "what" }, label), h("span", { class: "bar-track" }, bar),
      h("span", { class: "many" }, `${count(number)} (${percent(number / Math.max(seen, 1))})`)));
  });
  const more = classes.different > classes.counts.length ? `, the ${classes.counts.length} most frequent` : "";
  return h("section", { class: "card classes-card" },
    h("h3", {}, "Classes", h("small", {}, `${classes.complete ? "" : "more than "}${many(classes.different, "class")} in ${classes.field}${more}`)),
    rows.length ? h("ol", { class: "classes" }, rows) : h("p", { class: "quiet" }, "nothing counted yet"));
}

function board(title, found, name, unit = "") {
  const of = (value) => [name(value), unit].filter(Boolean).join(" ");
  const same = found.least === found.greatest;
  const facts = same ? `always ${of(found.least)}` : `${name(found.least)} to ${of(found.greatest)}, mean ${name(found.mean)}`;
  return h("section", { class: "card" }, h("h3", {}, title, h("small", {}, facts)), same ? null : bars(found.bins, { name }));
}
