// A pipeline: its stages from left to right, and while it runs how fast each is and which one holds the others up.

import { fill, h, sign } from "./dom.js";
import { count, percent, round } from "./format.js";
import { PolledPage } from "./polled.js";
import { spark } from "./tile.js";

export class PlanPage extends PolledPage {
  constructor() {
    super("/api/plan", 0.6);
    this.title = h("p", { class: "quiet mono" });
    this.start = h("button", { class: "button primary", type: "button", onclick: () => this.act("/api/plan/start") }, sign("play"), "Run it");
    this.stop = h("button", { class: "button", type: "button", onclick: () => this.act("/api/plan/stop") }, sign("stop"), "Stop");
    this.verdict = h("section", { class: "card", "aria-live": "polite" });
    this.flow = h("div", { class: "flow", role: "list", "aria-label": "Stages", tabindex: "0" });
    this.table = h("section", { class: "card" });
    this.element = h("div", { class: "page" }, h("div", { class: "inner" },
      h("div", { class: "head" }, h("div", { class: "words" }, h("h2", {}, "Pipeline"), this.title), h("div", { class: "actions" }, this.start, this.stop)),
      this.flow, this.verdict, this.table));
  }

  draw(told, error) {
    if (error) {
      fill(this.verdict, h("p", { class: "problem" }, error.message));
      return 3;
    }
    const live = told.statistics;
    fill(this.title, told.title);
    this.start.hidden = told.running;
    this.stop.hidden = !told.running;
    fill(this.flow, nodes(told.plan, live), arrow(), consumer(live));
    fill(this.verdict, told.error ? h("p", { class: "problem" }, told.error) : verdict(told, live));
    this.table.hidden = !live;
    fill(this.table, live ? table(live) : null);
    return told.running ? 0.6 : 0;
  }
}

function arrow() {
  return h("span", { class: "arrow" }, sign("arrow", 22));
}

function nodes(plan, live) {
  const made = plan.source ? [source(plan, live)] : [h("div", { class: "branches" }, plan.components.map((component, at) => branch(component, plan.shares[at], live)))];
  for (const stage of plan.stages) made.push(arrow(), node(stage, live));
  if (plan.shuffle) made.push(arrow(), h("div", { class: "node", role: "listitem" }, h("h3", {}, "shuffle"), h("p", { class: "quiet" }, plan.shuffle, ", in a loader")));
  return made;
}

function branch(plan, share, live) {
  return h("div", { class: "flow" }, nodes(plan, live), h("span", { class: "badge plain" }, `× ${share}`), arrow());
}

function source(plan, live) {
  const read = live?.stages.find((stage) => stage.name === "read");
  return h("div", { class: `node source${isHot(live, "read") ? " hot" : ""}`, role: "listitem" },
    h("h3", {}, "read"), h("p", { class: "quiet mono" }, plan.source.text), figures(read), hotBadge(live, "read"));
}

function node(stage, live) {
  const found = live?.stages.find((each) => each.name === stage.name);
  const notes = [stage.workers && `${stage.workers} workers`, stage.keeps_count ? "" : "changes how many there are"].filter(Boolean);
  return h("div", { class: `node${isHot(live, stage.name) ? " hot" : ""}`, role: "listitem" },
    h("h3", {}, stage.name),
    notes.length ? h("p", { class: "quiet" }, notes.join(", ")) : null,
    figures(found),
    live && !found ? h("p", { class: "quiet" }, "done with a neighbour") : null,
    hotBadge(live, stage.name));
}

function figures(stage) {
  if (!stage) return null;
  const bar = h("i");
  bar.style.width = `${100 * stage.busy}%`;
  return [
    h("p", { class: "rate" }, round(stage.samples_per_second), h("small", {}, " samples/s")),
    h("div", { class: "progress", role: "meter", "aria-label": "busy", "aria-valuenow": Math.round(100 * stage.busy) }, bar),
    h("p", { class: "quiet" }, `busy ${percent(stage.busy)}, ${stage.workers} ${stage.mode}`)];
}

function isHot(live, name) {
  return Boolean(live) && live.bottleneck === name;
}

function hotBadge(live, name) {
  return isHot(live, name) ? h("span", { class: "badge" }, "bottleneck") : null;
}

function consumer(live) {
  const hot = isHot(live, "consumer");
  return h("div", { class: `node source${hot ? " hot" : ""}`, role: "listitem" }, h("h3", {}, "consumer"),
    h("p", { class: "quiet" }, "here: takes all it gets"),
    live ? h("p", { class: "rate" }, round(live.samples_per_second), h("small", {}, " samples/s")) : null,
    live ? h("p", { class: "quiet" }, `waited ${percent(live.waiting)} of the time`) : null, hotBadge(live, "consumer"));
}

function verdict(told, live) {
  if (!live) return h("p", { class: "quiet" }, "Run it to see how fast each stage is. Samples are read and dropped; nothing is written.");
  const rates = told.rates.length ? spark(told.rates.map((rate) => [Math.min(0, rate), rate])) : null;
  rates?.classList.add("spark-line");
  return h("div", { class: "stackup" },
    h("div", { class: "verdict" },
      h("p", { class: "value" }, `${count(Math.round(live.samples_per_second))} `, h("small", {}, "samples/s")),
      h("p", { class: "value" }, `${live.megabytes_per_second.toFixed(1)} `, h("small", {}, "MB/s read")),
      h("p", { class: "value" }, `${count(live.skipped)} `, h("small", {}, "skipped")),
      h("p", { class: "value" }, `${told.passes} `, h("small", {}, "passes done"))),
    h("p", {}, h("b", {}, `Bottleneck: ${live.bottleneck}. `), live.advice),
    rates);
}

function table(live) {
  const head = ["stage", "workers", "samples/s", "busy", "queue", "samples"];
  return h("div", {}, h("h3", {}, "What runs"), h("div", { class: "table-wrap" }, h("table", {},
    h("thead", {}, h("tr", {}, head.map((name, at) => h("th", { scope: "col", class: at > 1 ? "right" : "" }, name)))),
    h("tbody", {}, live.stages.map((stage) => h("tr", {},
      h("td", { class: "key-cell" }, stage.name), h("td", {}, `${stage.workers} ${stage.mode}`),
      [round(stage.samples_per_second), percent(stage.busy), percent(stage.queue), count(stage.samples)].map((text) => h("td", { class: "right" }, text))))))));
}
