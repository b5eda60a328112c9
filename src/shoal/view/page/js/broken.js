// What cannot be used: skipped by a run, met while looking, or found by a check of everything.

import { fill, h, sign } from "./dom.js";
import { count, many } from "./format.js";
import { PolledPage } from "./polled.js";

export class BrokenPage extends PolledPage {
  constructor(openSamples) {
    super("/api/broken", 0.5);
    this.openSamples = openSamples;
    this.state = h("p", { class: "quiet", "aria-live": "polite" });
    this.check = h("button", { class: "button primary", type: "button", onclick: () => this.act("/api/broken/start") }, "Check all samples");
    this.stop = h("button", { class: "button", type: "button", onclick: () => this.act("/api/broken/stop") }, "Stop");
    this.bar = h("i");
    this.progress = h("div", { class: "progress" }, this.bar);
    this.list = h("section", { class: "card" });
    this.element = h("div", { class: "page" }, h("div", { class: "inner" },
      h("div", { class: "head" }, h("div", { class: "words" }, h("h2", {}, "Broken samples"), this.state), h("div", { class: "actions" }, this.check, this.stop)),
      this.progress, this.list));
  }

  draw(told, error) {
    if (error) {
      fill(this.state, error.message);
      return 3;
    }
    const seen = told.checked ? `${count(told.seen)} of ${count(told.total)} samples were decoded${told.stopped ? ", then it was stopped" : ""}.` : "From the ledger, and what was met while looking; a check decodes every field of every sample.";
    fill(this.state, seen, told.error);
    this.bar.style.width = `${100 * told.seen / Math.max(told.total, 1)}%`;
    this.progress.hidden = !told.running;
    this.stop.hidden = !told.running;
    this.check.hidden = told.running;
    fill(this.list, told.failures.length ? this.table(told.failures) : h("p", { class: "fine" }, "None is known."));
    return told.running ? 0.4 : 0;
  }

  table(failures) {
    const rows = failures.map((failure) => h("tr", {},
      h("td", { class: "key-cell" }, failure.number === null ? failure.key ?? "the shard" : h("a", { href: `#samples/${failure.number}` }, failure.key)),
      h("td", { class: "key-cell" }, failure.stage),
      h("td", {}, h("b", {}, failure.error), ` ${failure.message}`),
      h("td", { class: "key-cell quiet" }, failure.shard ?? "", failure.offset === null ? "" : ` #${failure.offset}`)));
    return h("div", {}, h("h3", {}, sign("broken"), ` ${many(failures.length, "problem")}`),
      h("div", { class: "table-wrap" }, h("table", {},
        h("thead", {}, h("tr", {}, ["key", "stage", "what is wrong", "where"].map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows))));
  }
}
