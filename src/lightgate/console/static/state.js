// The address is the state: every filter is in it, and a page that is opened by it shows the same.

import { byId, copyLine, element } from "./draw.js";
import { carry, onKey } from "./shell.js";

const AGAIN_MS = 5000; // after an answer that is none
const FOLDED = 3; // fields, above which a phone shows the first things only

/** The query without the parameters that only this page reads. @param {string[]} own */
export function apiQuery(own) {
  const asked = new URLSearchParams(location.search);
  for (const name of own) asked.delete(name);
  return asked.toString();
}

/** Put a value into the address, as one step of the history, or none where nothing changes. @param {string} name @param {string} value @param {...string} dropped parameters that mean nothing with the new value */
export function setParameter(name, value, ...dropped) {
  const asked = new URLSearchParams(location.search);
  const before = asked.toString();
  for (const one of [name, ...dropped]) asked.delete(one);
  if (value) asked.set(name, value);
  const query = asked.toString();
  if (query === before) return;
  history.pushState(null, "", query ? `?${query}` : location.pathname);
  carry();
}

/** Bind the fields of a form to the address. @param {() => void} changed */
export function bindFilters(changed) {
  const form = /** @type {HTMLFormElement} */ (byId("filters"));
  const fields = /** @type {(HTMLInputElement|HTMLSelectElement)[]} */ ([...form.querySelectorAll("input, select")]);
  const fill = () => {
    const asked = new URLSearchParams(location.search);
    for (const field of fields) {
      const value = asked.get(field.name) ?? "";
      if (field instanceof HTMLInputElement && (field.type === "checkbox" || field.type === "radio")) field.checked = value === field.value;
      else {
        if (field instanceof HTMLSelectElement && ![...field.options].some((one) => one.value === value)) {
          const other = document.createElement("option");
          other.value = other.textContent = value;
          field.append(other);
        }
        field.value = value;
      }
    }
  };
  const unfold = foldFilters(form, fields);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", (event) => {
    const field = /** @type {HTMLInputElement} */ (event.target);
    setParameter(field.name, field.type === "checkbox" && !field.checked ? "" : field.value.trim(), "before");
    unfold.tell();
    changed();
  });
  addEventListener("popstate", () => {
    fill();
    unfold.tell();
    changed();
  });
  fill();
  unfold.tell();
  onKey("/", "to the filters", () => {
    unfold.open();
    fields[0].focus();
  });
}

/** Put a button before many filters, with which a phone shows them; it says how many are set. @param {HTMLFormElement} form @param {(HTMLInputElement|HTMLSelectElement)[]} fields */
function foldFilters(form, fields) {
  const button = /** @type {HTMLButtonElement} */ (element("button", "fold"));
  button.type = "button";
  button.setAttribute("aria-controls", form.id);
  const open = (/** @type {boolean} */ now) => button.setAttribute("aria-expanded", String(now));
  open(false);
  button.addEventListener("click", () => open(button.getAttribute("aria-expanded") !== "true"));
  if (new Set(fields.map((field) => field.name)).size > FOLDED) form.before(button);
  return {
    open: () => open(true),
    tell: () => {
      const asked = new URLSearchParams(location.search);
      const set = new Set(fields.map((field) => field.name).filter((name) => asked.get(name) && !["use", "from", "sort", "open"].includes(name))).size;
      button.textContent = set ? `Filters, ${set} set` : "Filters";
    },
  };
}

/** A question without an answer; its status is 0 where the console was not reached. */
export class Unanswered extends Error {
  /** @param {string} message @param {number} status */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** @param {string} path @param {string} query */
export async function ask(path, query) {
  const asked = fetch(query ? `${path}?${query}` : path, { cache: "no-store", credentials: "same-origin" });
  const answer = await asked.catch(() => {
    throw new Unanswered("The console does not answer.", 0);
  });
  if (!answer.ok) throw new Unanswered((await answer.text()).trim() || `status ${answer.status}`, answer.status);
  return answer.json();
}

let waiting = 0;

/** Say what went wrong, and ask again soon where that may pass by itself. @param {unknown} error @param {() => void} [again] */
export function stumble(error, again) {
  const passing = again && error instanceof Unanswered && (error.status === 0 || error.status >= 500);
  const state = byId("state");
  state.className = "stale";
  state.textContent = `${error instanceof Error ? error.message : String(error)}${passing ? " This page tries again every 5 s." : ""}`;
  clearTimeout(waiting);
  if (passing) waiting = window.setTimeout(() => state.className === "stale" && again(), AGAIN_MS);
}

/** One stream of changes, closed while the page is hidden or paused. */
export class Live {
  /** @param {() => string} address @param {(data: any) => void} take @param {(live: boolean, why: string) => void} told why: what is wrong */
  constructor(address, take, told) {
    this.address = address;
    this.take = take;
    this.told = told;
    /** @type {EventSource|null} */
    this.source = null;
    this.paused = false;
    document.addEventListener("visibilitychange", () => this.restart());
  }

  restart() {
    this.source?.close();
    this.source = null;
    if (this.paused || document.hidden) return;
    const source = new EventSource(this.address());
    this.source = source;
    source.onmessage = (event) => {
      this.told(true, "");
      this.take(JSON.parse(event.data));
    };
    source.addEventListener("trouble", (event) => this.told(false, JSON.parse(event.data)));
    source.onerror = () => {
      this.told(false, "The console does not answer.");
      if (source.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      setTimeout(() => this.source === source && this.restart(), AGAIN_MS);
    };
  }

  /** @param {boolean} paused */
  pause(paused) {
    this.paused = paused;
    this.restart();
  }
}

/** Say that there is nothing, and how to make something. @param {boolean} filtered @param {string} line @param {string} what */
export function emptyState(filtered, line, what) {
  const box = byId("empty");
  const parts = [];
  if (filtered) {
    const clear = document.createElement("a");
    clear.href = location.pathname;
    clear.textContent = "Clear the filters";
    parts.push(element("p", "", `No ${what} matches these filters. `, clear, "."));
  } else {
    const how = line ? "Send a request, and it appears here:" : "No gateway runs on this folder.";
    parts.push(element("p", "", `No ${what} in this period. ${how}`));
    if (line) parts.push(copyLine(line));
  }
  box.replaceChildren(...parts);
}
