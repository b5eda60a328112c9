// The keys, and how conditions are written.

import { h } from "./dom.js";

const KEYS = [
  [["←", "→", "↑", "↓"], "go through the samples, in the grid and one by one"],
  [["Enter"], "look at a sample"],
  [["Esc"], "back to the grid"],
  [["Home", "End"], "the first and the last sample"],
  [["/"], "search keys"],
  [["f"], "write a filter"],
  [["d"], "dark or light"],
  [["1", "…", "9"], "the tabs"],
  [["?"], "this help"],
];
const EXAMPLES = ["cls == 3 and width > 200", "cls in [1, 2] or not has(txt)", '"dog" in lower(txt)', "json.height >= 480", "max(x) > 0.9 and len(x) == 64", 'key.startswith("train/")'];

/** Make the dialog; gives a function that opens it. */
export function setUpHelp(button) {
  const dialog = h("dialog", { class: "help", "aria-labelledby": "help-title" },
    h("h2", { id: "help-title" }, "Keys"),
    h("dl", {}, KEYS.map(([keys, text]) => [h("dt", {}, keys.map((key) => [h("kbd", {}, key), " "])), h("dd", {}, text)])),
    h("h2", {}, "Filters"),
    h("p", { class: "quiet" }, "A filter compares fields, or what is in them; width and height are those of the picture."),
    h("div", { class: "examples" }, EXAMPLES.map((text) => h("code", {}, text))),
    h("form", { method: "dialog" }, h("button", { class: "button primary", type: "button", onclick: () => dialog.close() }, "Close")));
  document.body.append(dialog);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  const open = () => dialog.open || dialog.showModal();
  button.addEventListener("click", open);
  return open;
}
