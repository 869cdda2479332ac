// Health: workers, breakers, lags, processes, the configuration in force, and the log of changes.

import { clock, failed, signedIn, size } from "./admin.js";
import { NONE, byId, cell, element, number, whole } from "./draw.js";
import { offerCsv } from "./shell.js";
import { ask, bindFilters } from "./state.js";
import { scrolled } from "./table.js";

const LOOK_MS = 5000;
const BREAKERS = /** @type {Record<string, string>} */ ({ closed: "closed: requests go there", open: "open: no request goes there", half_open: "half open: a few requests try it", held: "held: the provider asked to wait" });
const PAGE = 20; // changes at a time
const USUAL = /** @type {Record<string, any>} */ ({ budget_period: "total", max_fanout: 2 }); // of a new key
/** @type {any[]} */
let changes = [];
/** @type {string|null} */
let next = null;
let last = "";

/** @param {[string, string][]} heads words, and a class for text @param {HTMLElement[][]} rows @param {string} label */
function table(heads, rows, label) {
  const head = element("tr", "", ...heads.map(([words, kind]) => {
    const made = /** @type {HTMLTableCellElement} */ (element("th", kind, words));
    made.scope = "col";
    return made;
  }));
  return scrolled(element("table", "board small", element("thead", "", head), element("tbody", "", ...rows.map((cells) => element("tr", "", ...cells)))), label);
}

/** @param {string} words @param {string} value @param {string} unit @param {string} title */
function card(words, value, unit, title) {
  const made = element("div", "card", element("p", "soft", words), element("p", "big", value, " ", element("span", "unit", unit)));
  made.title = title;
  return made;
}

/** @param {number|null} share milliseconds of a lag; null: beyond every bound */
function lag(share) {
  return share === null ? NONE : number(share);
}

/** @param {any} told */
function draw(told) {
  const state = byId("state");
  state.className = told.well ? "soft" : "stale";
  state.textContent = told.well ? `All is well. Version ${told.version}, up since ${clock(told.started)} UTC.` : "This needs a look:";
  byId("problems").replaceChildren(...told.problems.map((/** @type {string} */ one) => element("li", "", one)));
  const inFlight = told.workers.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one.in_flight, 0);
  const lags = told.workers.map((/** @type {any} */ one) => one.lag_p99_ms).filter((/** @type {any} */ one) => one !== null);
  byId("cards").replaceChildren(
    card("in flight", whole(inFlight), "requests", "requests of clients that are being answered now"),
    card("lag of the loop", lags.length ? number(Math.max(...lags)) : NONE, " ms p99", "99 of 100 beats of the slowest worker's loop were no later, since it started"),
    card("lag of the journals", told.journal.lag_s === null ? NONE : number(told.journal.lag_s), "s", "since all that workers had written was in the ledger"),
    card("not in the ledger yet", size(told.journal.waiting_bytes), "", "notes of workers that wait"),
    card("ledger", size(told.ledger.bytes), told.ledger.free_bytes === null ? "" : `${size(told.ledger.free_bytes)} free`, "the file of the ledger, and the room on its disk"),
  );
  byId("workers").replaceChildren(table(
    [["worker", "left"], ["pid", ""], ["in flight", ""], ["attempts", ""], ["clients", ""], ["to providers", ""], ["lag p99 ms", ""], ["lag mean ms", ""], ["memory", ""], ["open files", ""], ["turned away", ""]],
    told.workers.map((/** @type {any} */ one) => [
      cell(String(one.worker), "left"), cell(String(one.pid)), cell(whole(one.in_flight)), cell(whole(one.attempts)), cell(whole(one.connections)), cell(whole(one.provider_connections)),
      cell(lag(one.lag_p99_ms)), cell(lag(one.lag_mean_ms)), cell(size(one.resident_bytes)), cell(one.open_files === null ? NONE : `${whole(one.open_files)} of ${whole(one.most_files)}`),
      cell(whole(Object.values(one.refused).reduce((a, b) => a + Number(b), 0)), "", Object.entries(one.refused).map(([code, count]) => `${code} ${count}`).join(", ")),
    ]), "Workers",
  ));
  byId("targets").replaceChildren(told.targets.length ? table(
    [["target", "left"], ["breaker", "left"], ["workers where it is open", ""], ["in flight", ""]],
    told.targets.map((/** @type {any} */ one) => [
      cell(one.target, "left"), element("td", "left", element("span", one.breaker === "closed" ? "" : "state-word bad", BREAKERS[one.breaker] ?? one.breaker)),
      cell(whole(one.workers_open)), cell(whole(one.in_flight)),
    ]), "Targets",
  ) : element("p", "soft", "No target was asked yet."));
  byId("processes").replaceChildren(table(
    [["process", "left"], ["pid", ""], ["state", "left"], ["restarts", ""], ["memory", ""]],
    told.processes.map((/** @type {any} */ one) => [
      cell(one.name, "left"), cell(one.pid === null ? NONE : String(one.pid)), element("td", "left", element("span", one.ready ? "" : "state-word bad", one.ready ? "serves" : "does not serve")),
      cell(whole(one.restarts)), cell(size(one.resident_bytes)),
    ]), "Processes",
  ));
}

async function look() {
  try {
    const told = await ask("/api/health", "");
    const shown = JSON.stringify({ ...told, as_of: "" });
    if (shown !== last) draw(told);
    last = shown;
  } catch (error) {
    last = "";
    failed(error);
  }
}

async function config() {
  const only = new URLSearchParams(location.search).get("only") ?? "";
  const query = only === "all" ? "" : "only=changed";
  /** @type {HTMLAnchorElement} */ (byId("config-csv")).href = `/api/config.csv?${query}`;
  try {
    const told = await ask("/api/config", query);
    const whole = told.rows.length || !query ? told : await ask("/api/config", "");
    const said = `${whole.file ? `From ${whole.file}` : "No file: flags and defaults"}, taken over at ${clock(whole.as_of)} UTC. ${told.rows.length ? "A key is shown by the name of its variable." : "Every value is its default."}`;
    byId("config-note").textContent = whole.rows.length ? said : "The gateway has not written its configuration down.";
    byId("config").replaceChildren(table(
      [["key", "left"], ["value", "left"], ["from", "left"]],
      told.rows.map((/** @type {any} */ one) => [cell(one.key, "left"), cell(one.value ?? "none", one.value === null ? "wide none" : "wide"), cell(one.source, "wide")]), "Configuration",
    ));
  } catch (error) {
    failed(error, config);
  }
}

/** A value in words. @param {any} value */
function words(value) {
  if (value === null || value === undefined) return "none";
  if (Array.isArray(value)) return value.join(", ") || "none";
  if (typeof value === "object") return Object.entries(value).map(([name, one]) => `${name}=${one}`).join(", ") || "none";
  return String(value);
}

/** @param {any} entry */
function differs(entry) {
  const after = entry.after ?? {};
  if (entry.before === null) {
    const set = Object.entries(after).filter(([name, value]) => !["id", "name", "created", "prefix"].includes(name) && words(value) !== "none" && value !== false && USUAL[name] !== value);
    return set.map(([name, value]) => `${name} ${words(value)}`).join("; ");
  }
  return Object.entries(after).map(([name, value]) => `${name} ${words(entry.before[name])} → ${words(value)}`).join("; ");
}

async function audit() {
  try {
    const told = await ask("/api/audit", `limit=${PAGE}${next ? `&before=${encodeURIComponent(next)}` : ""}`);
    changes = [...changes, ...told.rows];
    next = told.next;
    byId("older").hidden = !next;
    byId("audit").replaceChildren(changes.length ? table(
      [["when UTC", "left"], ["action", "left"], ["of", "left"], ["change", "left"], ["who", "left"], ["from", "left"]],
      changes.map((one) => [cell(one.at.slice(0, 19).replace("T", " "), "left"), cell(one.action, "left"), cell(one.name, "wide"), cell(differs(one), "wide change"), cell(one.who, "wide"), cell(one.address || "command line", "wide")]), "Changes",
    ) : element("p", "soft", "Nothing was changed yet."));
  } catch (error) {
    failed(error, audit);
  }
}

async function begin() {
  try {
    if (!(await signedIn("The state of the gateway"))) return;
  } catch (error) {
    failed(error, begin);
    return;
  }
  offerCsv("/api/health.csv");
  bindFilters(config);
  byId("older").addEventListener("click", audit);
  await Promise.all([look(), config(), audit()]);
  setInterval(() => {
    if (!document.hidden) look();
  }, LOOK_MS);
}

begin();
