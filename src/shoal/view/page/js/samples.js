// The page of samples, and that of results: what is looked for, the grid, and one of them in detail.

import { get } from "./api.js";
import { h, fill, sign } from "./dom.js";
import { count, many } from "./format.js";
import { Grid } from "./grid.js";

const TYPED = 250;

export class SamplesPage {
  /**
   * @param {string} base where the samples lie, see api.js
   * @param {{ shards: number, class_field: string | null, after?: string }} about what is read, and what is done to it
   * @param {(asked: { key?: string, where?: string, sample?: number }) => void} go leads to a query, or to a sample
   */
  constructor(base, about, go) {
    this.base = base;
    this.about = about;
    this.go = go;
    this.grid = new Grid(base, { opened: (index) => this.open(index), told: (state) => this.tell(state) });
    this.detail = null;
    this.element = h("div", { class: "page-samples" }, this.toolbar(), this.grid.element);
    this.index = null;
  }

  toolbar() {
    this.key = h("input", { type: "search", placeholder: "Search keys", "aria-label": "Search by key", id: "key",
      spellcheck: "false", autocomplete: "off" });
    this.where = h("input", { type: "text", placeholder: this.example(), "aria-label": "Filter by an expression",
      id: "where", spellcheck: "false", autocomplete: "off" });
    this.classes = h("select", { "aria-label": "Filter by class", id: "class" }, h("option", { value: "" }, "All classes"));
    this.state = h("p", { class: "state", "aria-live": "polite" });
    this.whereBox = h("label", { class: "field where" }, sign("filter"), this.where);
    const size = h("input", { type: "range", min: 96, max: 360, value: this.grid.wanted, "aria-label": "Size of tiles", id: "size" });
    size.addEventListener("input", () => this.grid.resize(Number(size.value)));
    this.key.addEventListener("input", () => this.soon());
    this.where.addEventListener("input", () => this.soon());
    this.where.addEventListener("change", () => this.apply());
    this.classes.addEventListener("pointerdown", () => this.loadClasses(), { once: true });
    this.classes.addEventListener("focus", () => this.loadClasses(), { once: true });
    this.classes.addEventListener("change", () => this.filterBy(this.about.class_field, this.classes.value));
    return h("div", { class: "toolbar" },
      h("label", { class: "field" }, sign("search"), this.key),
      this.whereBox,
      this.about.class_field ? h("label", { class: "field" }, this.classes) : h("span"),
      h("span", { class: "size" }, sign("small"), size, sign("large")),
      this.state);
  }

  example() {
    return this.about.class_field ? `Filter: ${this.about.class_field} == 3 and width > 200` : "Filter: width > 200";
  }

  /** Show what the address says: a query, and perhaps a sample. */
  show({ key = "", where = "", sample = null }) {
    const query = { key, where };
    const fresh = !this.query || this.query.key !== key || this.query.where !== where;
    if (this.key.value !== key) this.key.value = key;
    if (this.where.value !== where && document.activeElement !== this.where) this.where.value = where;
    if (fresh) {
      this.query = query;
      this.grid.search(query);
    }
    this.asked = sample;
    if (sample === null) this.detail?.close();
    else this.showSample();
  }

  /** Show the sample that was asked for last; what draws it is loaded with the first. */
  async showSample() {
    if (!this.detail) {
      const { Detail } = await import("./detail.js");
      this.detail ??= new Detail(this.base, { step: (by) => this.step(by), closed: () => this.closed() });
      this.element.append(this.detail.element);
    }
    if (this.asked !== null) this.detail.show(this.asked);
  }

  get isShowingSample() {
    return Boolean(this.detail?.isOpen);
  }

  focusSearch() {
    this.key.focus();
    this.key.select();
  }

  soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.apply(), TYPED);
  }

  apply() {
    clearTimeout(this.timer);
    this.go({ key: this.key.value, where: this.where.value });
  }

  filterBy(field, label) {
    const word = /^-?\d+$/.test(label) ? label : JSON.stringify(label);
    this.where.value = label === "" ? "" : `${field} == ${word}`;
    this.apply();
  }

  async loadClasses() {
    const told = await get("/api/histograms").catch(() => null);
    if (!told) return;
    const known = told.classes.counts.map(({ label, count: number }) => h("option", { value: label }, `${label} (${count(number)})`));
    fill(this.classes, h("option", { value: "" }, "All classes"), known);
    if (!told.done) setTimeout(() => this.loadClasses(), 700);
  }

  tell(state) {
    this.whereBox.classList.toggle("wrong", Boolean(state.error));
    if (state.error) {
      fill(this.state, h("span", { class: "wrong" }, state.error));
      return;
    }
    const shards = many(this.about.shards, "shard");
    const looked = this.query.key || this.query.where;
    if (!looked) {
      fill(this.state, h("span", {}, h("b", {}, count(state.total)), ` samples in ${shards}${this.about.after ? `, after ${this.about.after}` : ""}`, state.done ? "" : ", counting …"));
      return;
    }
    const share = state.total ? state.seen / state.total : 1;
    const bar = h("i");
    bar.style.width = `${100 * share}%`;
    fill(this.state,
      h("span", {}, h("b", {}, count(state.found)), ` of ${count(state.total)} samples`, state.done ? "" : `, ${count(state.seen)} looked at`),
      state.done ? null : h("span", { class: "progress" }, bar));
  }

  async open(index) {
    this.index = index;
    const number = await this.grid.numberAt(index);
    if (number !== undefined) this.go({ ...this.query, sample: number });
  }

  async step(by) {
    const index = this.index === null ? null : this.index + by;
    if (index === null || index < 0 || index >= this.grid.total) return;
    this.grid.goTo(index, false);
    await this.open(index);
  }

  closed() {
    if (this.index !== null) this.grid.goTo(this.index);
    this.go(this.query);
  }
}
