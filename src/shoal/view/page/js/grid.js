// The grid: a few tiles that stand for millions. Only what is seen is asked for, once scrolling comes to rest.

import { get } from "./api.js";
import { h } from "./dom.js";
import { Scroller } from "./scroller.js";
import { drawTile, drawWaiting } from "./tile.js";

const GAP = 12;
const FOOT = 32;
const REST = 70;
const KEPT = 3000;

export class Grid {
  /**
   * @param {string} base where the samples lie, see api.js
   * @param {{ opened: (index: number) => void, told: (state: object) => void }} events
   */
  constructor(base, events) {
    this.base = base;
    this.events = events;
    this.canvas = h("div", { class: "canvas" });
    this.note = h("div", { class: "empty", hidden: true });
    this.element = h("div", { class: "grid", role: "group", "aria-label": "Samples", tabindex: "-1" }, this.canvas, this.note);
    this.scroller = new Scroller(this.element, this.canvas, () => this.draw());
    this.query = { key: "", where: "" };
    this.wanted = 176;
    this.total = 0;
    this.current = 0;
    this.tiles = new Map();
    this.shown = new Map();
    this.asking = null;
    this.after = -1;
    this.timer = 0;
    new ResizeObserver(() => this.layOut()).observe(this.element);
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.element.addEventListener("click", (event) => this.clicked(event));
  }

  /** Show what a query finds, from its beginning. */
  search(query) {
    this.query = query;
    this.tiles.clear();
    this.total = 0;
    this.after = -1;
    this.current = 0;
    this.asking?.abort.abort();
    this.asking = null;
    this.wipe();
    this.scroller.go(0);
    this.ask(0, this.perView());
  }

  /** Change how large tiles are, keeping the first one in sight. */
  resize(wanted) {
    const first = this.columns ? Math.floor(this.scroller.top / this.pitch) * this.columns : 0;
    this.wanted = wanted;
    this.wipe();
    this.layOut();
    this.scroller.go(Math.floor(first / this.columns) * this.pitch);
    this.draw();
  }

  layOut() {
    const width = this.element.clientWidth - 2 * GAP;
    if (width <= 0) return;
    const fewest = width > 300 ? 2 : 1;
    const columns = Math.max(Math.floor((width + GAP) / (this.wanted + GAP)), fewest);
    this.side = Math.floor((width + GAP) / columns) - GAP;
    const pitch = this.side + FOOT + GAP;
    if (columns !== this.columns || pitch !== this.pitch) this.wipe();
    this.columns = columns;
    this.pitch = pitch;
    this.edge = [96, 160, 256, 384, 512].find((edge) => edge >= this.side * Math.min(devicePixelRatio, 2)) ?? 512;
    this.scroller.resize(Math.ceil(this.total / columns) * pitch + GAP);
    this.draw();
  }

  perView() {
    if (!this.columns) return 24;
    return (Math.ceil(this.scroller.view / this.pitch) + 1) * this.columns;
  }

  /** Say which samples are in sight. */
  range() {
    const first = Math.max(Math.floor((this.scroller.top - GAP) / this.pitch), 0) * this.columns;
    const last = Math.ceil((this.scroller.top + this.scroller.view) / this.pitch) * this.columns;
    return [first, Math.min(last, this.total)];
  }

  wipe() {
    this.shown.forEach((element) => element.remove());
    this.shown.clear();
  }

  draw() {
    if (!this.columns) return;
    const [first, last] = this.range();
    for (const [index, element] of this.shown) {
      if (index < first || index >= last) {
        if (element === document.activeElement) this.element.focus({ preventScroll: true });
        element.remove();
        this.shown.delete(index);
      }
    }
    for (let index = first; index < last; index += 1) this.place(index);
    this.fetchSoon(first, last);
  }

  place(index) {
    let element = this.shown.get(index);
    const tile = this.tiles.get(index);
    if (!element) {
      element = h("button", { class: "tile", type: "button", "data-index": index, tabindex: index === this.current ? "0" : "-1" });
      element.style.width = `${this.side}px`;
      element.style.height = `${this.side + FOOT}px`;
      this.shown.set(index, element);
      this.canvas.append(element);
      if (!tile) drawWaiting(element, index);
    }
    if (tile && element.tile !== tile) {
      element.tile = tile;
      drawTile(element, tile, this.edge);
    }
    const x = GAP + (index % this.columns) * (this.side + GAP);
    const y = GAP + Math.floor(index / this.columns) * this.pitch + this.scroller.shift;
    element.style.transform = `translate(${x}px, ${y}px)`;
  }

  fetchSoon(first, last) {
    let low = first, high = last;
    while (low < high && this.tiles.has(low)) low += 1;
    while (high > low && this.tiles.has(high - 1)) high -= 1;
    if (low >= high) return;
    if (this.asking) {
      const { start, end } = this.asking;
      if (start <= low && high <= end) return;
      if (end <= first || start >= last) this.asking.abort.abort();  // nobody sees it any more
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(low, high - low), REST);
  }

  async ask(start, number) {
    const abort = new AbortController();
    const asking = { start, end: start + number, abort };
    this.asking = asking;
    try {
      const told = await get(`${this.base}/api/samples`, { start, count: number, ...this.query, after: this.after }, abort.signal);
      if (this.asking === asking) this.asking = null;
      else if (abort.signal.aborted) return;
      this.take(told);
    } catch (error) {
      if (this.asking === asking) this.asking = null;
      if (error.name !== "AbortError") this.events.told({ error: error.message, found: 0, total: 0, done: true });
    }
  }

  take(told) {
    this.after = told.ticks;
    told.tiles.forEach((tile, at) => this.tiles.set(told.start + at, { base: this.base, ...tile }));
    this.forget();
    const grown = told.found !== this.total;
    this.total = told.found;
    this.note.hidden = this.total > 0 || !told.done;
    this.note.textContent = told.error || "No sample is like that.";
    this.events.told(told);
    if (grown) this.layOut();
    else this.draw();
    if (!told.done) {
      clearTimeout(this.more);
      const query = this.query;
      this.more = setTimeout(() => query === this.query && !this.asking && this.askForMore(), 250);
    }
  }

  /** Ask how far the search is by now, with the tiles in sight that are not there yet. */
  askForMore() {
    const [first, last] = this.columns ? this.range() : [0, 0];
    let low = first;
    while (low < last && this.tiles.has(low)) low += 1;
    this.ask(low, Math.max(first + this.perView() - low, 0));
  }

  forget() {
    if (this.tiles.size <= KEPT) return;
    const [first, last] = this.range();
    for (const index of this.tiles.keys()) {
      if (this.tiles.size <= KEPT) return;
      if (index < first || index >= last) this.tiles.delete(index);
    }
  }

  /** Give the number of a sample in the dataset by its place in the grid. */
  async numberAt(index) {
    if (this.tiles.has(index)) return this.tiles.get(index).number;
    const told = await get(`${this.base}/api/samples`, { start: index, count: 1, ...this.query, after: this.after });
    return told.tiles[0]?.number;
  }

  clicked(event) {
    const tile = event.target.closest(".tile");
    if (!tile) return;
    this.current = Number(tile.dataset.index);
    this.events.opened(this.current);
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const rows = Math.max(Math.floor(this.scroller.view / this.pitch), 1);
    const steps = {
      ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns,
      PageDown: rows * this.columns, PageUp: -rows * this.columns, Home: -this.total, End: this.total,
    };
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      if (this.total) this.events.opened(this.current);
    } else if (event.key in steps) {
      event.preventDefault();
      this.goTo(this.current + steps[event.key]);
    }
  }

  /** Make a sample the current one, and bring it into sight. */
  goTo(index, focus = true) {
    if (!this.total) return;
    this.shown.get(this.current)?.setAttribute("tabindex", "-1");
    this.current = Math.max(0, Math.min(index, this.total - 1));
    const top = Math.floor(this.current / this.columns) * this.pitch;
    if (top < this.scroller.top) this.scroller.go(top);
    else if (top + this.pitch + GAP > this.scroller.top + this.scroller.view) {
      this.scroller.go(top + this.pitch + GAP - this.scroller.view);
    }
    this.draw();
    const element = this.shown.get(this.current);
    element?.setAttribute("tabindex", "0");
    if (focus) element?.focus({ preventScroll: true });
  }
}
