// What the pages that administer share: who is signed in, orders to the console, dialogs, sizes.

import { byId, element } from "./draw.js";
import { Unanswered, ask, stumble } from "./state.js";
import { signInHelp } from "./work.js";

/** An order that was not carried out; `field` names what was not understood. */
export class Refused extends Error {
  /** @param {string} message @param {string|null} field */
  constructor(message, field) {
    super(message);
    this.field = field;
  }
}

/** Send an order. @param {string} method @param {string} path @param {any} [body] @param {Record<string, string>} [headers] */
export async function order(method, path, body, headers = {}) {
  const answer = await fetch(path, {
    method,
    headers: body === undefined ? headers : { "content-type": "application/json", ...headers },
    body: body === undefined ? undefined : JSON.stringify(body),
    cache: "no-store",
    credentials: "same-origin",
  });
  const told = await answer.text();
  /** @type {any} */
  let read = null;
  try {
    read = JSON.parse(told);
  } catch {
    // a plain sentence
  }
  if (!answer.ok) throw new Refused(read?.message ?? (told.trim() || `status ${answer.status}`), read?.field ?? null);
  return read;
}

/** Ask who is signed in; show how to sign in, or the page. @param {string} what @returns {Promise<boolean>} */
export async function signedIn(what) {
  const told = await ask("/api/session", "");
  byId("body").hidden = !told.signed_in;
  byId("state").className = "soft";
  const box = byId("signin");
  box.hidden = told.signed_in;
  if (told.signed_in) {
    showSession(told);
    return true;
  }
  byId("state").textContent = `${what} can be seen and changed after a sign-in.`;
  box.replaceChildren(...signInHelp(told.line));
  return false;
}

/** @param {{via: string, who: string}} told */
function showSession(told) {
  const parts = [told.via === "session" ? `Signed in: ${told.who}. ` : "Signed in with the secret. "];
  const line = element("p", "soft", ...parts);
  if (told.via === "session") {
    const out = button("Sign out", async () => {
      await order("DELETE", "/api/session");
      location.reload();
    });
    out.className = "plain";
    line.append(out);
  }
  byId("who").replaceChildren(line);
}

/** @param {string} words @param {() => void|Promise<void>} act */
export function button(words, act) {
  const made = /** @type {HTMLButtonElement} */ (element("button", "", words));
  made.type = "button";
  made.addEventListener("click", () => act());
  return made;
}

/** A dialog that is removed when it closes. @param {string} title @param {...Node} inner */
export function dialog(title, ...inner) {
  const box = /** @type {HTMLDialogElement} */ (element("dialog", "dialog"));
  const head = element("h2", "", title);
  head.id = "dialog-title";
  box.setAttribute("aria-labelledby", head.id);
  box.append(head, ...inner);
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  return box;
}

/** Bytes in a unit that fits. @param {number|null} bytes */
export function size(bytes) {
  if (bytes === null) return "·";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let at = 0;
  let value = bytes;
  while (value >= 1000 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  return `${value.toLocaleString("en", { maximumFractionDigits: value < 10 && at ? 1 : 0 })} ${units[at]}`;
}

/** A time as a person reads it, UTC. @param {string|null} time */
export function clock(time) {
  return time ? time.slice(0, 16).replace("T", " ") : "";
}

/** Say that something went wrong, or that the session is over. @param {unknown} error @param {() => void} [again] what is tried again where that may pass */
export async function failed(error, again) {
  stumble(error, again);
  if (!(error instanceof Unanswered) || error.status !== 401 || byId("body").hidden) return;
  await signedIn("").catch(() => {});
  byId("state").className = "stale";
  byId("state").textContent = "The session has ended. Sign in again and load this page anew.";
}
