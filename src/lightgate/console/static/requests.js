// The list of requests: a page at a time by cursor, and one request as a waterfall.

import { NONE, byId, cell, element, money, number, whole } from "./draw.js";
import { offerCsv, onKey } from "./shell.js";
import { Live, apiQuery, ask, bindFilters, emptyState, setParameter, stumble } from "./state.js";
import { walkRows } from "./table.js";
import { waterfall } from "./waterfall.js";

const COLUMNS = [
  ["time UTC", "name time"], ["model asked", "name"], ["answered by", "name"], ["outcome", "left"],
  ["attempts", ""], ["TTFT ms", ""], ["total tok/s", ""], ["whole ms", ""], ["tok in", ""], ["tok out", ""],
  ["$", ""], ["key", "left"], ["cache", "left"],
];
/** @type {any} */
let page = null;
let listed = ""; // the query of the list that is shown

byId("heads").replaceChildren(...COLUMNS.map(([text, kind]) => {
  const head = /** @type {HTMLTableCellElement} */ (element("th", kind, text));
  head.scope = "col";
  return head;
}));

/** @param {any} row */
function line(row) {
  const opener = document.createElement("a");
  const asked = new URLSearchParams(location.search);
  asked.set("open", row.id);
  opener.href = `?${asked}`;
  opener.textContent = row.t.slice(0, 10) === new Date().toISOString().slice(0, 10) ? row.t.slice(11, 23) : row.t.slice(0, 23).replace("T", " ");
  opener.addEventListener("click", (event) => {
    event.preventDefault();
    setParameter("open", row.id);
    open();
  });
  const labelled = (/** @type {string} */ label, /** @type {HTMLElement} */ made) => {
    made.dataset.label = label;
    return made;
  };
  const made = element(
    "tr", row.id === new URLSearchParams(location.search).get("open") ? "chosen" : "",
    element("td", "name time", opener),
    cell(row.model_asked, "name model", row.model_asked),
    cell(row.winner ?? NONE, row.winner === row.model_asked ? "name winner same" : "name winner", row.winner ?? ""),
    cell(row.outcome, row.outcome === "ok" ? "left outcome" : "left outcome worse", row.error ?? ""),
    labelled("attempts", cell(whole(row.attempts), "minor")),
    labelled("TTFT ms", cell(number(row.ttft_ms), "")),
    labelled("total tok/s", cell(number(row.speed_total_tps), "")),
    labelled("whole ms", cell(number(row.e2e_ms), "")),
    labelled("tok in", cell(row.tokens_in === null ? NONE : whole(row.tokens_in), "minor")),
    labelled("tok out", cell(row.tokens_out === null ? NONE : whole(row.tokens_out), "minor")),
    labelled("$", cell(money(row.cost_usd, 6), "")),
    cell(row.key ?? row.key_id ?? NONE, "left minor key", row.key ?? row.key_id ?? ""),
    cell(row.cache, "left minor"),
  );
  made.addEventListener("click", (event) => {
    if (!(event.target instanceof HTMLAnchorElement)) opener.click();
  });
  return made;
}

function draw() {
  byId("rows").replaceChildren(...page.rows.map(line));
  byId("table").hidden = page.rows.length === 0;
  byId("empty").hidden = page.rows.length > 0;
  const asked = new URLSearchParams(location.search);
  if (!page.rows.length) emptyState(["model", "target", "key", "tag", "outcome", "ttft_min", "before", "size", "provider"].some((name) => asked.has(name)), page.try_line, "request");
  byId("older").hidden = page.next === null;
  byId("older").textContent = page.complete ? "Older" : "Search on";
  byId("newest").hidden = !asked.has("before");
  byId("searched").textContent = page.complete ? "" : `Searched back to ${page.searched_to.replace("T", " ").replace("Z", "")} UTC, nothing more yet.`;
  const ignored = page.ignored.length ? ` Ignored: ${page.ignored.join(", ")}.` : "";
  byId("state").className = "soft";
  const instant = (/** @type {string} */ time) => time.replace("T", " ").replace("Z", "");
  const period = asked.has("to") ? `from ${instant(page.since)} to ${instant(page.until)} UTC` : `from ${instant(page.since)} UTC on`;
  const unseen = ["provider", "size"].flatMap((name) => asked.getAll(name).map((value) => `, ${name} ${value}`)).join(""); // filters without a field here
  byId("state").textContent = `${whole(page.rows.length)} ${page.rows.length === 1 ? "request" : "requests"}, newest first, ${period}${unseen}.${ignored}`;
}

async function open() {
  const id = new URLSearchParams(location.search).get("open");
  const box = byId("one");
  /** @type {HTMLInputElement} */ (document.querySelector("#filters [name=open]")).value = id ?? "";
  if (!id) box.hidden = true;
  for (const row of byId("rows").children) row.className = "";
  if (!id) return;
  const at = page ? page.rows.findIndex((/** @type {any} */ row) => row.id === id || row.request_id === id) : -1;
  if (at >= 0) byId("rows").children[at].className = "chosen";
  try {
    const told = await ask(`/api/requests/${encodeURIComponent(id)}`, "");
    const close = /** @type {HTMLButtonElement} */ (element("button", "", "Close"));
    close.type = "button";
    close.addEventListener("click", () => {
      setParameter("open", "");
      open();
    });
    box.replaceChildren(waterfall(told, close));
    box.hidden = false;
    box.scrollIntoView({ block: "nearest" });
  } catch (error) {
    box.hidden = false;
    box.replaceChildren(element("p", "stale", error instanceof Error ? error.message : "The console does not answer."));
  }
}

const live = new Live(
  () => `/api/live?topic=requests&after=${page?.newest ?? ""}&${apiQuery(["open", "before"])}`,
  (told) => {
    const button = byId("newer");
    button.hidden = told.newer === 0;
    button.textContent = `${whole(told.newer)}${told.newer >= 200 ? " or more" : ""} newer`;
  },
  (well, why) => {
    byId("live").className = well ? "soft" : "stale";
    byId("live").textContent = well ? "Live: new requests wait behind a button, and the list stays put." : `${why} This list is old.`;
  },
);

/** What is asked for may be the same list and another request of it: the list stays then. */
function changed() {
  if (page && apiQuery(["open"]) === listed) open();
  else refresh();
}

async function refresh() {
  const query = apiQuery(["open"]);
  listed = query;
  offerCsv(`/api/requests.csv?${apiQuery(["open", "before", "limit"])}`, "newest 100,000");
  byId("newer").hidden = true;
  try {
    page = await ask("/api/requests", query);
    draw();
    await open();
    if (new URLSearchParams(location.search).has("before")) live.source?.close();
    else live.restart();
  } catch (error) {
    stumble(error, refresh);
  }
}

byId("older").addEventListener("click", () => {
  setParameter("before", page.next ?? "");
  refresh();
});
for (const id of ["newer", "newest"]) {
  byId(id).addEventListener("click", () => {
    setParameter("before", "");
    refresh();
  });
}
byId("pause").addEventListener("click", () => {
  live.pause(!live.paused);
  byId("pause").textContent = live.paused ? "Go on" : "Pause";
  byId("live").textContent = live.paused ? "Paused." : "";
});
onKey("Escape", "close the request", () => {
  if (!new URLSearchParams(location.search).has("open")) return;
  setParameter("open", "");
  open();
});
onKey("[", "older requests", () => page?.next && byId("older").click());
onKey("]", "the newest requests", () => new URLSearchParams(location.search).has("before") && byId("newest").click());
onKey("p", "pause, and go on", () => byId("pause").click());
walkRows(byId("rows"));
bindFilters(changed);
refresh();
