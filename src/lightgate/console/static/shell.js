// What every page has: the menu of a phone, its keys with their list, and its exports.

import { byId, element } from "./draw.js";
import { exportHtml, exportPng, fileName, sheet } from "./snapshot.js";

/** @type {Map<string, {words: string, act: () => void}>} */
const keys = new Map();
const GO_MS = 1500;
/** What is asked for on one page and means the same on another: the links between them carry it. @type {Record<string, string[]>} */
const CARRIED = {
  "/": ["from", "model", "provider", "size", "key", "tag"],
  "/time": ["from", "target", "model", "provider"],
  "/map": ["from", "model", "provider", "size", "key", "tag"],
  "/requests": ["from", "target", "key", "tag"], // its models are those that clients asked for
};
let goUntil = 0;

/** Bind a key outside of fields; the list of keys shows its words. @param {string} key @param {string} words @param {() => void} act */
export function onKey(key, words, act) {
  keys.set(key, { words, act });
}

/** Offer the rows of the page as CSV. @param {string} address @param {string} [limit] what is left out, where something is @param {string} [file] its name, where the page itself made it */
export function offerCsv(address, limit = "", file = "") {
  const link = /** @type {HTMLAnchorElement} */ (byId("csv"));
  if (file) link.download = file;
  link.textContent = limit ? `CSV (${limit})` : "CSV";
  link.href = address;
  link.hidden = false;
}

/** Offer rows that only this page has as CSV. @param {(string|number|null|undefined)[][]} rows */
export function offerRows(rows) {
  const link = /** @type {HTMLAnchorElement} */ (byId("csv"));
  if (link.href.startsWith("blob:")) URL.revokeObjectURL(link.href);
  offerCsv(URL.createObjectURL(new Blob([sheet(rows)], { type: "text/csv" })), "", fileName("csv"));
}

/** Whether the console has a page. @param {string} path */
export function hasPage(path) {
  return pages().some((one) => one.pathname === path);
}

/** Whether an event belongs to a field that is typed into. @param {Event} event */
function typed(event) {
  return event.target instanceof HTMLElement && event.target.matches("input, select, textarea, [contenteditable]");
}

/** @returns {HTMLAnchorElement[]} */
function pages() {
  return [...document.querySelectorAll("#pages a")].map((one) => /** @type {HTMLAnchorElement} */ (one));
}

/** Let the links to other pages carry the filters that these know too. */
export function carry() {
  const here = CARRIED[location.pathname] ?? [];
  const asked = new URLSearchParams(location.search);
  for (const link of pages()) {
    const path = link.pathname;
    const kept = new URLSearchParams([...asked].filter(([name, value]) => value && here.includes(name) && CARRIED[path]?.includes(name)));
    link.href = kept.size ? `${path}?${kept}` : path;
  }
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (typed(event)) {
    if (event.key === "Escape") /** @type {HTMLElement} */ (event.target).blur();
    return;
  }
  if (goUntil > event.timeStamp) {
    goUntil = 0;
    const page = pages().find((one) => one.dataset.key === event.key);
    if (page) {
      event.preventDefault();
      location.assign(page.href);
    }
    return;
  }
  if (event.key === "g") goUntil = event.timeStamp + GO_MS;
  const known = keys.get(event.key);
  if (!known) return;
  event.preventDefault();
  known.act();
}

function showKeys() {
  const box = /** @type {HTMLDialogElement} */ (document.createElement("dialog"));
  box.className = "keys";
  box.setAttribute("aria-labelledby", "keys-title");
  const row = (/** @type {string} */ key, /** @type {string} */ words) => element("div", "", element("dt", "", ...key.split(" ").map((one) => element("kbd", "", one))), element("dd", "", words));
  const title = element("h2", "", "Keys");
  title.id = "keys-title";
  const close = /** @type {HTMLButtonElement} */ (element("button", "", "Close"));
  close.type = "button";
  close.addEventListener("click", () => box.close());
  box.addEventListener("close", () => box.remove());
  box.append(
    element("div", "bar", title, close),
    element("dl", "", ...[...keys].map(([key, one]) => row(key, one.words))),
    element("h3", "", "Go to"),
    element("dl", "", ...pages().map((page) => row(`g ${page.dataset.key}`, page.textContent ?? ""))),
  );
  document.body.append(box);
  box.showModal();
}

const menu = byId("menu");
menu.addEventListener("click", () => menu.setAttribute("aria-expanded", String(menu.getAttribute("aria-expanded") !== "true")));
byId("help").addEventListener("click", showKeys);
byId("png").addEventListener("click", exportPng);
byId("html").addEventListener("click", exportHtml);
onKey("?", "show this list", showKeys);
onKey("e", "save this view as one HTML file", exportHtml);
document.addEventListener("keydown", pressed);
addEventListener("popstate", carry);
carry();
