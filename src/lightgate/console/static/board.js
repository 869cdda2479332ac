// The speed board: one call fills it, one stream keeps its numbers fresh, and its order stays put.

import { NONE, ago, byId, card, cell, dollars, element, gradeMark, interval, money, number, percent, settle, spark, usd, whole } from "./draw.js";
import { drawGrades } from "./grades.js";
import { hasPage, offerCsv, onKey } from "./shell.js";
import { Live, apiQuery, ask, bindFilters, emptyState, setParameter, stumble } from "./state.js";
import { sortHeads, walkRows } from "./table.js";

/** @typedef {{v: number|null, lo: number|null, hi: number|null, n: number}} Figure */

const COLUMNS = [
  { name: "rank", text: "#", title: "Place for the chosen use", lower: true },
  { name: "target", text: "target", title: "Provider and model", kind: "name", lower: true },
  { name: "n", text: "n", title: "Attempts at this target in the period, failovers and losers of races too" },
  { name: "ok", text: "ok %", title: "Share that ended well, of those that the gateway did not end itself" },
  { name: "ttft_p50", text: "TTFT p50", unit: "ms", title: "Time to the first token, median", lower: true },
  { name: "ttft_p95", text: "TTFT p95", unit: "ms", title: "Time to the first token: 95 of 100 were faster", lower: true },
  { name: "speed_p50", text: "speed p50", unit: "tok/s", title: "Tokens per second while decoding, median" },
  { name: "speed_p05", text: "slow 5 %", unit: "tok/s", title: "Tokens per second while decoding: 95 of 100 were faster" },
  { name: "speed_total", text: "total p50", unit: "tok/s", title: "Tokens per second over the whole request, median: what the grade is of" },
  { name: "", text: "grade", title: "1 is fastest: from 100, 70, 50, 30 tok/s in total; two where the interval cannot decide" },
  { name: "cost_1k", text: "cost", unit: "$ per 1k req", title: "Dollars per 1,000 requests of this traffic; of a self-hosted provider its hours, idle ones too", lower: true },
  { name: "", text: "TTFT", unit: "24 h", title: "First token, median by hour, over the last 24 hours", kind: "picture" },
  { name: "", text: "last error", title: "The newest failure in the period", kind: "error" },
];
/** @type {Map<string, HTMLTableRowElement>} */
const shown = new Map();
let orderedAt = 0;
/** @type {string[]} */
let order = [];
/** @type {any} */
let latest = null;

function sorted() {
  const asked = new URLSearchParams(location.search);
  return asked.get("sort") || (asked.get("use") ? "rank" : "ttft_p50");
}

/** @param {Figure} figure @param {string} unit @param {string} label @param {string} [className] */
function figureCell(figure, unit, label, className = "") {
  const made = cell(number(figure.v), className, interval(figure, unit));
  made.dataset.label = label;
  return made;
}

/** @param {string} path @param {string} text @param {Record<string, string>} query */
function link(path, text, query) {
  const made = document.createElement("a");
  made.href = `${path}?${new URLSearchParams(query)}`;
  made.textContent = text;
  return made;
}

/** @param {any} row @param {any} board @param {{ttft: number, speed: number}} best @param {boolean} heading whether it is the first of its model */
function fill(row, board, best, heading) {
  const line = shown.get(row.target) ?? document.createElement("tr");
  const asked = new URLSearchParams(location.search);
  const period = asked.get("from") ? { from: String(asked.get("from")) } : {};
  const [grouped, timed] = [asked.get("group") === "model", hasPage("/time")];
  const name = element("td", "name");
  if (grouped && heading) name.append(element("span", "group", row.model));
  name.append(link(timed ? "/time" : "/requests", grouped ? row.provider : row.target, { target: row.target, ...period }));
  name.title = row.why || row.target;
  if (row.why) name.append(element("span", row.fits === false ? "why unfit" : "why", row.why));
  const ok = cell(percent(row.ok.v), row.ok.hi !== null && row.ok.hi < 0.99 ? "worse" : "",
    row.ok.v === null ? "" : `${percent(row.ok.lo)}–${percent(row.ok.hi)} % (95 %), n ${whole(row.ok.n)}`);
  ok.dataset.label = "ok %";
  const error = element("td", row.last_error ? "error" : "error none");
  if (row.last_error) {
    const text = `${row.last_error.outcome} ${ago(row.last_error.at, board.as_of)}`;
    error.append(link("/requests", text, { outcome: "bad", ...period }));
    error.title = row.last_error.error ?? "";
  } else error.append(NONE);
  const cost = cell(money(row.cost_1k, 3), "", row.usd_per_hour === null ? "" : `self-hosted at ${usd(row.usd_per_hour, 2)} an hour`);
  cost.dataset.label = "$ per 1k req";
  const grade = element("td", "mark", gradeMark(row.grade));
  const count = element("td", "count", link("/requests", whole(row.n), { target: row.target, ...period }));
  count.dataset.label = "n";
  count.title = "to its requests";
  line.className = grouped && heading ? "first" : "";
  settle(line, [
    cell(row.rank === null ? NONE : String(row.rank), "rank"),
    name,
    count,
    ok,
    figureCell(row.ttft_p50, "ms", "TTFT p50 ms", row.ttft_p50.v !== null && row.ttft_p50.v === best.ttft ? "best" : ""),
    figureCell(row.ttft_p95, "ms", "TTFT p95 ms"),
    figureCell(row.speed_p50, "tok/s", "speed p50 tok/s", row.speed_p50.v !== null && row.speed_p50.v === best.speed ? "best" : ""),
    figureCell(row.speed_p05, "tok/s", "slow 5 % tok/s", "minor"),
    figureCell(row.speed_total, "tok/s", "total p50 tok/s", "minor"),
    grade,
    cost,
    element("td", "picture", spark(row.spark)),
    error,
  ]);
  shown.set(row.target, line);
  return line;
}

/** @param {any} totals */
function cards(totals) {
  settle(byId("totals"), [
    card("attempts", whole(totals.n)),
    card("ended well", percent(totals.ok.v), " %"),
    card("tokens out", whole(totals.tokens_out)),
    card("overhead p50", number(totals.overhead_p50.v), " ms"),
    card("cost", dollars(totals.cost_usd)),
  ]);
}

/** @param {any} board @param {boolean} reorder */
function draw(board, reorder) {
  latest = board;
  const known = (/** @type {string} */ key) => board.rows.map((/** @type {any} */ row) => row[key].v)
    .filter((/** @type {number|null} */ value) => value !== null);
  const best = { ttft: Math.min(...known("ttft_p50")), speed: Math.max(...known("speed_p50"), 0) };
  const body = byId("rows");
  const before = new Set(shown.keys());
  if (reorder) order = board.rows.map((/** @type {any} */ row) => row.target);
  const place = new Map(order.map((target, at) => [target, at]));
  const here = [...board.rows].sort((/** @type {any} */ a, /** @type {any} */ b) => (place.get(a.target) ?? Infinity) - (place.get(b.target) ?? Infinity));
  const models = new Set();
  const headings = new Set(here.filter((row) => !models.has(row.model) && models.add(row.model)).map((row) => row.target));
  const lines = board.rows.map((/** @type {any} */ row) => fill(row, board, best, headings.has(row.target)));
  const now = new Set(board.rows.map((/** @type {any} */ row) => row.target));
  if (reorder) {
    body.replaceChildren(...lines);
    orderedAt = Date.now();
  } else {
    board.rows.forEach((/** @type {any} */ row, /** @type {number} */ at) => {
      if (!before.has(row.target)) body.append(lines[at]);
    });
  }
  for (const target of before) {
    if (!now.has(target)) {
      shown.get(target)?.remove();
      shown.delete(target);
    }
  }
  document.body.classList.toggle("ranked", board.ranked !== "");
  document.body.classList.toggle("grouped", new URLSearchParams(location.search).get("group") === "model");
  byId("ranked").textContent = board.ranked;
  byId("ranked").hidden = board.ranked === "";
  cards(board.totals);
  byId("chart").hidden = !drawGrades(byId("grades"), here);
  byId("table").hidden = board.rows.length === 0;
  byId("empty").hidden = board.rows.length > 0;
  if (!board.rows.length) emptyState(["model", "provider", "key", "tag", "size", "min_n"].some((name) => new URLSearchParams(location.search).has(name)), board.try_line, "attempt");
  options("models", board.rows.map((/** @type {any} */ row) => row.model));
  options("providers", board.rows.map((/** @type {any} */ row) => row.provider));
  say(board);
}

/** @param {string} id @param {string[]} names */
function options(id, names) {
  const list = byId(id);
  const all = [...new Set([...[...list.children].map((one) => /** @type {HTMLOptionElement} */ (one).value), ...names])].sort();
  if (all.length === list.children.length) return;
  list.replaceChildren(...all.map((name) => {
    const option = document.createElement("option");
    option.value = name;
    return option;
  }));
}

/** @param {any} board */
function say(board) {
  const parts = [`From ${board.since.replace("T", " ").replace("Z", "")} to ${board.until.replace("T", " ").replace("Z", "")} UTC.`];
  if (board.from_rows) parts.push("Counted from single requests, the newest of at most a day.");
  if (board.left_out) parts.push(`${whole(board.left_out)} more targets have fewer attempts and are not shown.`);
  if (board.ignored.length) parts.push(`Ignored: ${board.ignored.join(", ")}.`);
  if (board.rows.some((/** @type {any} */ row) => row.target.startsWith("sim-"))) parts.push("This is the demo: providers that begin with sim- are simulated, and its own light traffic asks them.");
  const state = byId("state");
  state.className = "soft";
  const text = parts.join(" ");
  if (state.textContent !== text) state.textContent = text;
}

function sortAge() {
  const seconds = Math.round((Date.now() - orderedAt) / 1000);
  const want = latest ? latest.rows.map((/** @type {any} */ row) => row.target) : [];
  const have = [...byId("rows").children].map((line) => [...shown].find(([, one]) => one === line)?.[0]);
  const stale = want.join("\n") !== have.join("\n");
  byId("resort").hidden = !stale;
  return stale ? ` · order is ${seconds} s old` : "";
}

const live = new Live(
  () => `/api/live?topic=board&${apiQuery([])}`,
  (board) => draw(board, shown.size === 0),
  (well, why) => {
    const line = byId("live");
    line.className = well ? "soft" : "stale";
    line.textContent = well ? `Live, every 2 s${sortAge()}` : `${why} These numbers are old.`;
  },
);

async function refresh() {
  sortHeads(byId("heads"), COLUMNS, sorted(), (sort) => {
    setParameter("sort", sort);
    refresh();
  });
  offerCsv(`/api/board.csv?${apiQuery([])}`);
  try {
    const board = await ask("/api/board", apiQuery([]));
    shown.clear();
    draw(board, true);
    byId("resort").hidden = true;
    live.restart();
  } catch (error) {
    stumble(error, refresh);
  }
}

byId("resort").addEventListener("click", () => {
  if (latest) draw(latest, true);
  byId("resort").hidden = true;
});
byId("pause").addEventListener("click", () => {
  live.pause(!live.paused);
  byId("pause").textContent = live.paused ? "Go on" : "Pause";
  byId("live").textContent = live.paused ? "Paused: these numbers stay as they are." : "Live, every 2 s";
});
onKey("s", "sort again by the numbers of now", () => byId("resort").click());
onKey("p", "pause, and go on", () => byId("pause").click());
walkRows(byId("rows"));
const sorts = COLUMNS.filter((one) => one.name).map((one) => new Option(`${one.text}${one.lower ? ", least first" : ""}`, `${one.lower ? "" : "-"}${one.name}`));
document.querySelector("select[name=sort]")?.append(new Option("usual order", ""), ...sorts); // a phone has no heads to click
bindFilters(refresh);
refresh();
