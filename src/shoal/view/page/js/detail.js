// One sample, all its fields side by side.

import { get, raw } from "./api.js";
import { h, fill, sign } from "./dom.js";
import { drawField } from "./fields/field.js";
import { overlaid } from "./fields/picture.js";
import { bytes, count } from "./format.js";

/** What one looks at first comes first; numbers are small and stand with it. */
const RANK = ["picture", "video", "sound", "number", "text", "json", "array", "none", "bytes", "broken"];

export class Detail {
  /**
   * @param {string} base where the samples lie, see api.js
   * @param {{ step: (by: number) => void, closed: () => void }} events
   */
  constructor(base, events) {
    this.base = base;
    this.events = events;
    this.number = null;
    this.title = h("h2", { id: "detail-title" });
    this.place = h("p");
    this.body = h("div", { class: "body", tabindex: "0", "aria-label": "Fields of the sample" });
    const button = (name, label, act) => h("button", { class: "icon", type: "button", "aria-label": label, title: label, onclick: act }, sign(name, 20));
    this.element = h("dialog", { class: "detail", "aria-labelledby": "detail-title" },
      h("div", { class: "top" },
        button("left", "Sample before (←)", () => events.step(-1)),
        button("right", "Next sample (→)", () => events.step(1)),
        h("div", { class: "names" }, this.title, this.place),
        button("close", "Close (Esc)", () => this.leave())),
      this.body);
    // At once, before a next key is heard: the browser tells of a dialog that it closed only later.
    this.element.addEventListener("cancel", (event) => {
      event.preventDefault();
      this.leave();
    });
    this.element.addEventListener("close", () => this.left());
    this.element.addEventListener("click", (event) => event.target === this.element && this.leave());
    this.element.addEventListener("keydown", (event) => this.key(event));
  }

  get isOpen() {
    return this.element.open;
  }

  async show(number) {
    if (this.number === number) return;
    this.number = number;
    if (!this.element.open) {
      this.element.showModal();
      this.body.focus();
    }
    try {
      const sample = await get(`${this.base}/api/samples/${number}`);
      if (this.number === number) this.draw({ base: this.base, ...sample });
    } catch (error) {
      fill(this.title, `sample ${number}`);
      fill(this.body, h("p", { class: "problem" }, error.message));
    }
  }

  /** Close it, because the address says so. */
  close() {
    if (!this.element.open) return;
    this.number = null;
    this.element.close();
    fill(this.body);
  }

  leave() {
    this.element.close();
    this.left();
  }

  left() {
    if (this.number === null) return;
    this.number = null;
    fill(this.body);
    this.events.closed();
  }

  draw(sample) {
    fill(this.title, sample.key);
    fill(this.place, `sample ${count(sample.number)} · number ${count(sample.offset)} of ${sample.shard}`);
    const base = sample.fields.find((field) => field.kind === "picture" && !field.mask);
    const masks = base ? sample.fields.filter((field) => field.mask) : [];
    const rank = (field) => RANK.indexOf(field.kind) + (field.mask ? 0.5 : 0);
    const cards = [...sample.fields].sort((one, other) => rank(one) - rank(other)).map((field) => {
      const inside = field === base && masks.length ? overlaid(sample, base, masks) : drawField(sample, field);
      return card(sample, field, inside);
    });
    fill(this.body, h("div", { class: "fields" }, cards));
    this.body.scrollTop = 0;
  }

  key(event) {
    if (event.target.matches("input, audio, video, select, summary")) return;
    if (event.key === "ArrowRight" || event.key === "j") this.events.step(1);
    else if (event.key === "ArrowLeft" || event.key === "k") this.events.step(-1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

function card(sample, field, inside) {
  const note = [noteOf(field), bytes(field.size)].filter(Boolean).join(" · ");
  return h("section", { class: `card ${field.kind}`, "data-field": field.name },
    h("div", { class: "title" },
      h("h3", {}, field.name),
      h("span", { class: "note" }, note),
      h("a", { href: raw(sample, field.name), download: "", title: "Save the bytes of this field" }, "save")),
    inside);
}

function noteOf(field) {
  switch (field.kind) {
    case "picture": return `${field.width} × ${field.height} ${field.format}`;
    case "sound": return `${(field.rate / 1000).toFixed(1)} kHz, ${field.channels === 1 ? "mono" : `${field.channels} channels`}`;
    case "array": return `${field.dtype} ${field.shape.join(" × ")}`;
    case "text": return `${count(field.letters)} letters`;
    case "broken": return "broken";
    default: return field.kind;
  }
}
