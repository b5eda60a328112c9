// Elements in one call. Text is always text: nothing from the data becomes markup.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element: h("button", { class: "icon", onclick }, "text", child). */
export function h(tag, props = {}, ...children) {
  return filled(document.createElement(tag), props, children);
}

/** The same for SVG. */
export function svg(tag, props = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

function filled(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Put other children in the place of all. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const PATHS = {
  search: "M7 12a5 5 0 1 1 0-10 5 5 0 0 1 0 10zm4-1 4 4",
  filter: "M2 3h12l-4.500 5.500V14l-3-1.500v-4z",
  sun: "M8 5a3 3 0 1 1 0 6 3 3 0 0 1 0-6zM8 1v1.500M8 13.500V15M1 8h1.500M13.500 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1",
  moon: "M13.500 9.500A6 6 0 0 1 6.500 2.500a6 6 0 1 0 7 7z",
  left: "M10 3 5 8l5 5",
  right: "m6 3 5 5-5 5",
  close: "m4 4 8 8m0-8-8 8",
  sound: "M2 8h1m2-3v6m3-9v12m3-9v6m3-4v2",
  film: "M2 3h12v10H2zM5 3v10M11 3v10",
  broken: "M8 2 15 14H1zM8 6v4m0 2v.500",
  bytes: "M3 2v5M6 2h2v5H6zM3 9h2v5H3zM8 9v5M11 2v5M11 9h2v5h-2z",
  play: "M4 2.500v11l9-5.500z",
  stop: "M4 4h8v8H4z",
  arrow: "M1 8h13m-4-4 4 4-4 4",
  small: "M6 6h4v4H6z",
  large: "M2 2h12v12H2z",
};

/** A small picture by name. */
export function sign(name, size = 16) {
  return svg("svg", { viewBox: "0 0 16 16", width: size, height: size, "aria-hidden": "true" },
    svg("path", { d: PATHS[name], fill: "none", stroke: "currentColor", "stroke-width": 1.5, "stroke-linecap": "round",
      "stroke-linejoin": "round" }));
}
