// What is in a store, and who holds it.

import { fill, h } from "./dom.js";
import { bytes, count, percent } from "./format.js";
import { PolledPage } from "./polled.js";

const COLUMNS = [["id", "id"], ["type", "type"], ["names", "names"], ["where", "where"], ["bytes", "size"], ["persisted", "kept"]];

export class StorePage extends PolledPage {
  constructor() {
    super("/api/store", 2);
    this.sort = { by: "bytes", down: true };
    this.path = h("p", { class: "quiet mono" });
    this.memory = h("section", { class: "card stackup" });
    this.objects = h("section", { class: "card" });
    this.processes = h("section", { class: "card" });
    this.element = h("div", { class: "page" }, h("div", { class: "inner" },
      h("div", { class: "head" }, h("div", { class: "words" }, h("h2", {}, "Store"), this.path)), this.memory, this.objects, this.processes));
  }

  draw(told, error) {
    if (error) {
      fill(this.path, error.message);
      return 3;
    }
    this.told = told;
    fill(this.path, told.status.path);
    fill(this.memory, memory(told.status));
    this.drawObjects();
    fill(this.processes, h("h3", {}, "Processes that hold it"), processes(told.processes));
    return 2;
  }

  drawObjects() {
    const { by, down } = this.sort;
    const rows = [...this.told.objects].sort((one, other) => compare(one[by], other[by]) * (down ? -1 : 1));
    const head = COLUMNS.map(([name, title]) => h("th", { scope: "col", class: name === "bytes" ? "right" : "", "aria-sort": name === by ? (down ? "descending" : "ascending") : null },
      h("button", { type: "button", onclick: () => this.sortBy(name) }, title)));
    fill(this.objects, h("h3", {}, "Objects"), rows.length ? h("div", { class: "table-wrap" }, h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows.map(object)))) : h("p", { class: "quiet" }, "It is empty."));
  }

  sortBy(name) {
    this.sort = { by: name, down: this.sort.by === name ? !this.sort.down : name === "bytes" };
    this.drawObjects();
  }
}

function compare(one, other) {
  const [a, b] = [one, other].map((value) => (Array.isArray(value) ? value.join() : value));
  return a < b ? -1 : a > b ? 1 : 0;
}

function object(row) {
  const kept = row.persisted ? h("span", { class: "badge good" }, "kept") : h("span", { class: "badge plain" }, "goes with its process");
  return h("tr", {}, h("td", { class: "key-cell" }, row.id), h("td", {}, row.type), h("td", {}, row.names.join(", ")), h("td", {}, row.where),
    h("td", { class: "right" }, bytes(row.bytes)), h("td", {}, kept));
}

function memory(status) {
  const used = h("i", { class: "used" }), aside = h("i", { class: "aside" });
  used.style.width = `${100 * status.memory_usage / status.memory_limit}%`;
  aside.style.width = `${100 * status.aside / status.memory_limit}%`;
  const facts = [
    ["in use", `${bytes(status.memory_usage)} of ${bytes(status.memory_limit)}`],
    ["set aside", bytes(status.aside)],
    ["on disk", `${bytes(status.spilled_bytes)} in ${count(status.spilled)}`],
    ["objects", `${count(status.objects)}, ${count(status.persisted)} kept`],
    ["names", count(status.names)],
    ["deleted, looked at", count(status.zombies)],
  ];
  return [h("h3", {}, "Memory ", h("span", { class: "quiet" }, percent(status.memory_usage / status.memory_limit))),
    h("div", { class: "meter", role: "meter", "aria-label": "memory in use", "aria-valuenow": Math.round(100 * status.memory_usage / status.memory_limit) }, used, aside),
    h("dl", { class: "facts-row" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))))];
}

function processes(found) {
  if (!found.length) return h("p", { class: "quiet" }, "Nobody holds anything.");
  const head = ["process", "command", "objects", "set aside", "looks at"];
  return h("div", { class: "table-wrap" }, h("table", {},
    h("thead", {}, h("tr", {}, head.map((name, at) => h("th", { scope: "col", class: at > 1 ? "right" : "" }, name)))),
    h("tbody", {}, found.map((each) => h("tr", {}, h("td", { class: "key-cell" }, String(each.pid), each.alive ? null : h("span", { class: "badge plain" }, "has ended")),
      h("td", { class: "key-cell quiet" }, each.command), [count(each.objects), bytes(each.aside), count(each.looks)].map((text) => h("td", { class: "right" }, text)))))));
}
