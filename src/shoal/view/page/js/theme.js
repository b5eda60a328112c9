// Dark and light: what the system says, until somebody says otherwise.

import { fill, sign } from "./dom.js";

const NAME = "shoal-theme";
const dark = window.matchMedia("(prefers-color-scheme: dark)");

function chosen() {
  return localStorage.getItem(NAME) ?? (dark.matches ? "dark" : "light");
}

function show(button) {
  const theme = chosen();
  document.documentElement.dataset.theme = theme;
  fill(button, sign(theme === "dark" ? "sun" : "moon", 18));
}

/** Let a button change it; gives the function that does. */
export function setUpTheme(button) {
  const change = () => {
    localStorage.setItem(NAME, chosen() === "dark" ? "light" : "dark");
    show(button);
  };
  button.addEventListener("click", change);
  dark.addEventListener("change", () => show(button));
  show(button);
  return change;
}
