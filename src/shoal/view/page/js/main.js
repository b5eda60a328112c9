// The page: what there is to see, its tabs, its address, its keys.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { setUpHelp } from "./help.js";
import { SamplesPage } from "./samples.js";
import { setUpTheme } from "./theme.js";

/** Tab -> its title, and what makes its page; a page that nobody opens is not loaded. */
const PAGES = {
  samples: ["Samples", async () => new SamplesPage("", about.samples, goSamples)],
  results: ["Results", async () => new SamplesPage("/results", { ...about.samples, class_field: null, after: about.results }, goResults)],
  histograms: ["Histograms", async () => new (await import("./histograms.js")).HistogramsPage(goSamples)],
  broken: ["Broken", async () => new (await import("./broken.js")).BrokenPage(goSamples)],
  plan: ["Pipeline", async () => new (await import("./plan.js")).PlanPage()],
  runs: ["Curves", async () => new (await import("./runs.js")).RunsPage()],
  store: ["Store", async () => new (await import("./store.js")).StorePage()],
};
const WITH_SAMPLES = ["samples", "histograms", "broken"];

const main = document.getElementById("main");
const made = {};
let about, tabs = [], current = null;

/** Read the address: #samples/12?key=a&where=b */
function address() {
  const [path, query = ""] = location.hash.slice(1).split("?");
  const [name, rest] = path.split("/");
  const asked = Object.fromEntries(new URLSearchParams(query));
  const sample = rest !== undefined && /^\d+$/.test(rest) ? Number(rest) : null;
  return { name: tabs.includes(name) ? name : tabs[0], ...asked, sample };
}

const goSamples = (asked) => goTo("samples", asked);
const goResults = (asked) => goTo("results", asked);

/** Go to an address; typing in a search does not fill the history. */
function goTo(name, { key = "", where = "", sample = null }) {
  const query = new URLSearchParams(Object.entries({ key, where }).filter(([, value]) => value)).toString();
  const next = `#${name}${sample === null ? "" : `/${sample}`}${query ? `?${query}` : ""}`;
  if (next === location.hash) return;
  if (current === name && (sample === null) === (address().sample === null)) {
    history.replaceState(null, "", next);
    show();
  } else {
    location.hash = next;
  }
}

async function show() {
  const asked = address();
  if (asked.name !== current) {
    made[current]?.hide?.();
    current = asked.name;
    document.querySelectorAll("#tabs a").forEach((tab) => tab.toggleAttribute("aria-current", false));
    document.querySelector(`#tabs a[href="#${asked.name}"]`)?.setAttribute("aria-current", "page");
    document.querySelector("#tabs a[aria-current]")?.scrollIntoView({ inline: "nearest", block: "nearest" });
    if (!made[asked.name]) {
      const page = await PAGES[asked.name][1]();
      made[asked.name] ??= page;
    }
    if (current !== asked.name) return;
    fill(main, made[asked.name].element);
  }
  made[asked.name].show(asked);
}

function keys(event) {
  const typing = event.target.matches("input:not([type=range]):not([type=checkbox]), select, textarea");
  const page = made[current], grid = page?.grid;
  if (event.key === "Escape" && typing) {
    event.target.blur();
    grid?.goTo(grid.current);
  }
  if (typing || event.altKey || event.ctrlKey || event.metaKey || document.querySelector("dialog.help[open]")) return;
  const act = {
    "/": () => samples((page) => page.focusSearch()),
    f: () => samples((page) => page.where.focus()),
    d: changeTheme,
    "?": openHelp,
  }[event.key] ?? (/^[1-9]$/.test(event.key) && tabs[event.key - 1] ? () => { location.hash = `#${tabs[event.key - 1]}`; } : null);
  if (act) {
    event.preventDefault();
    act();
  } else if (grid && !page.isShowingSample && event.key.startsWith("Arrow") && (event.target === document.body || event.target === main)) {
    event.preventDefault();
    grid.goTo(grid.current);
  }
}

/** Do something on the page with a grid that is seen, or go to one. */
function samples(act) {
  const page = made[current];
  if (!tabs.includes("samples") || page?.isShowingSample) return;
  if (page?.grid) act(page);
  else location.hash = "#samples";
}

const changeTheme = setUpTheme(document.getElementById("theme"));
const openHelp = setUpHelp(document.getElementById("help"));

async function begin() {
  try {
    about = await get("/api/about");
  } catch (error) {
    fill(main, h("div", { class: "page" }, h("p", { class: "problem" }, error.message)));
    return;
  }
  tabs = Object.keys(PAGES).filter((name) => about.parts.includes(WITH_SAMPLES.includes(name) ? "samples" : name));
  document.title = `${about.title} – Shoal`;
  document.getElementById("subject").textContent = about.title;
  document.getElementById("subject").title = about.title;
  fill(document.getElementById("tabs"), tabs.map((name) => h("a", { href: `#${name}` }, PAGES[name][0])));
  document.addEventListener("keydown", keys);
  window.addEventListener("hashchange", show);
  await show();
}

begin();
