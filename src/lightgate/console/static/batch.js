// Batches of the gateway with their progress.

import { NONE, byId, cell, copyLine, element, number, whole } from "./draw.js";
import { offerCsv } from "./shell.js";
import { apiQuery, ask, bindFilters, stumble } from "./state.js";
import { heads, labelled } from "./work.js";

const COLUMNS = [["created UTC", "name time"], ["batch", "name"], ["key", "left"], ["model", "left"], ["progress", "left"], ["done", ""], ["of", ""], ["failed", ""], ["lines/s", ""], ["ends UTC", ""], ["tok in", ""], ["tok out", ""], ["state", "left"]];
const LOOK_MS = 2000;
let timer = 0;

/** @param {string|null} time */
const shortTime = (time) => (time ? time.slice(0, 16).replace("T", " ") : NONE);

/** @param {any} row */
function line(row) {
  const bar = document.createElement("progress");
  bar.max = Math.max(1, row.total);
  bar.value = row.done;
  bar.setAttribute("aria-label", `${row.done} of ${row.total} lines`);
  return element(
    "tr", "",
    cell(shortTime(row.created), "name time"),
    cell(row.id, "name", `${row.kind} ${row.endpoint}`),
    cell(row.key ?? NONE, "left minor"),
    cell(row.model ?? NONE, "left"),
    element("td", "left", bar),
    labelled("done", cell(whole(row.done))),
    labelled("of", cell(row.total ? whole(row.total) : NONE)),
    labelled("failed", cell(whole(row.failed), row.failed ? "worse" : "minor")),
    labelled("lines/s", cell(number(row.rate_per_s))),
    labelled("ends UTC", cell(row.active ? shortTime(row.ends) : shortTime(row.over))),
    labelled("tok in", cell(row.tokens_in === null ? NONE : whole(row.tokens_in), "minor")),
    labelled("tok out", cell(row.tokens_out === null ? NONE : whole(row.tokens_out), "minor")),
    cell(row.state.replaceAll("_", " "), row.state === "failed" || row.state === "expired" ? "left worse" : "left", row.problem),
  );
}

/** @param {any} told */
function drawPast(told) {
  byId("past").hidden = !told.past.length;
  byId("past-heads").replaceChildren(heads([["at UTC", "name time"], ["target", "name"], ["way", "left"], ["lines", ""], ["seconds", ""], ["lines/s", ""]]));
  byId("past-rows").replaceChildren(...told.past.map((/** @type {any} */ one) => element("tr", "", cell(shortTime(one.at), "name time"), cell(one.name, "name"), cell(one.kind === "job" ? "a job of the provider" : "in parallel", "left"), cell(whole(one.lines)), cell(number(one.seconds)), cell(number(one.lines / one.seconds)))));
}

async function refresh() {
  clearTimeout(timer);
  const query = apiQuery([]);
  offerCsv(`/api/batches.csv?${query}`);
  try {
    const told = await ask("/api/batches", query);
    byId("heads").replaceChildren(...heads(COLUMNS).children);
    byId("rows").replaceChildren(...told.rows.map(line));
    byId("table").hidden = !told.rows.length;
    byId("empty").hidden = told.rows.length > 0;
    if (!told.rows.length) {
      const filtered = new URLSearchParams(location.search).has("state");
      byId("empty").replaceChildren(element("p", "", filtered ? "No batch is in this state." : "No batch yet. A file of lines, its upload, and a batch of it:"), ...(filtered ? [] : told.try_lines.map(copyLine)));
    }
    drawPast(told);
    const active = told.rows.filter((/** @type {any} */ row) => row.active).length;
    const ignored = told.ignored.length ? ` Ignored: ${told.ignored.join(", ")}.` : "";
    byId("state").className = "soft";
    byId("state").textContent = told.rows.length ? `${told.rows.length === 1 ? "One batch" : `${whole(told.rows.length)} batches`}, ${whole(active)} under way.${ignored}` : ignored;
    if (active && !document.hidden) timer = window.setTimeout(refresh, LOOK_MS);
  } catch (error) {
    stumble(error, refresh);
  }
}

document.addEventListener("visibilitychange", () => document.hidden || refresh());
bindFilters(refresh);
refresh();
