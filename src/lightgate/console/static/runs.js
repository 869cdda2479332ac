// Benchmark runs: the list, one with its curves, two compared, and one that is started and followed here.

import { NONE, byId, cell, copyLine, element, interval, money, number, percent, svg, whole, words } from "./draw.js";
import { offerCsv, onKey } from "./shell.js";
import { ask, setParameter, stumble } from "./state.js";
import { scrolled, walkRows } from "./table.js";
import { choices, heads, labelled, tell } from "./work.js";

const COLOURS = ["s1", "s2", "s3", "s4"];
const COLUMNS = [["", "left"], ["started UTC", "name time"], ["targets", "name"], ["loads", "left"], ["requests", ""], ["failed", ""], ["TTFT p50 ms", ""], ["TTFT p95 ms", ""], ["tok/s p50", ""], ["verdict", "left"], ["by", "left"], ["state", "left"]];
const WIDTH = 440; // about the width of its place, so that its words have their size
const HEIGHT = 180;
const FIGURES = /** @type {Record<string, string>} */ ({ ttft_ms: "first token ms", ttfa_ms: "first word ms", speed_tps: "speed tok/s", e2e_ms: "whole answer ms", cost_1k: "$ per 1k req", failed: "failed" });

const form = /** @type {HTMLFormElement} */ (byId("order"));
const field = (/** @type {string} */ name) => /** @type {HTMLInputElement} */ (form.elements.namedItem(name));
/** @type {any} */
let terms = null;
/** @type {ReturnType<typeof choices>|null} */
let picker = null;
/** @type {Set<string>} */
const picked = new Set();
/** @type {EventSource|null} */
let following = null;

/** @param {string|null} time */
const shortTime = (time) => (time ? time.slice(0, 16).replace("T", " ") : NONE);

// The list

/** @param {any} row */
function line(row) {
  const box = document.createElement("input");
  box.type = "checkbox";
  box.checked = picked.has(row.id);
  box.setAttribute("aria-label", `choose ${row.id} to compare`);
  box.addEventListener("change", () => {
    if (box.checked) picked.add(row.id);
    else picked.delete(row.id);
    tellPicked();
  });
  const link = document.createElement("a");
  link.href = `?open=${encodeURIComponent(row.id)}`;
  link.textContent = shortTime(row.started);
  link.addEventListener("click", (event) => {
    event.preventDefault();
    setParameter("open", row.id);
    show();
  });
  const names = row.targets.join(", ");
  const tip = row.best ? `${row.best} at ${row.loads[0]}` : "";
  return element(
    "tr", "",
    element("td", "left minor", box),
    element("td", "name time", link),
    cell(names || row.id, "name", names),
    labelled("loads", cell(row.loads.join(" ") || NONE, "left")),
    labelled("requests", cell(row.total !== null && row.state === "running" ? `${whole(row.requests)} of ${whole(row.total)}` : whole(row.requests))),
    labelled("failed", cell(row.failed ? whole(row.failed) : "0", row.failed ? "worse" : "minor")),
    labelled("TTFT p50 ms", cell(number(row.ttft_p50.v), "", `${tip} ${interval(row.ttft_p50, "ms")}`)),
    labelled("TTFT p95 ms", cell(number(row.ttft_p95.v), "", `${tip} ${interval(row.ttft_p95, "ms")}`)),
    labelled("tok/s p50", cell(number(row.speed_p50.v), "", `${tip} ${interval(row.speed_p50, "tok/s")}`)),
    cell(row.verdicts.join(", ") || NONE, "left"),
    cell(row.source, "left minor"),
    cell(row.state, row.state === "failed" ? "left worse" : "left minor", row.problem),
  );
}

function tellPicked() {
  byId("compare").hidden = picked.size !== 2;
  byId("picked").textContent = picked.size === 1 ? "Choose one more run to compare." : picked.size > 2 ? "Two runs are compared; choose fewer." : "";
}

/** @param {any} told */
function drawSchedules(told) {
  const box = byId("schedules");
  if (!told.rows.length) {
    box.replaceChildren(element("p", "soft", ...words("No benchmark is repeated. This adds one, and `lightgate schedule run` carries it out:")), copyLine(told.try_line));
    return;
  }
  const rows = told.rows.map((/** @type {any} */ one) => {
    const last = one.last_run ? Object.assign(document.createElement("a"), { href: `?open=${encodeURIComponent(one.last_run)}`, textContent: shortTime(one.last_started) }) : shortTime(one.last_started);
    return element("tr", "", cell(one.name, "name"), labelled("every", cell(one.every)), labelled("next UTC", cell(shortTime(one.due))), labelled("last UTC", element("td", "", last)), cell(one.last_result || NONE, "left", one.last_result), cell(one.line, "left error", one.line));
  });
  const table = element("table", "board", element("thead", "", heads([["schedule", "name"], ["every", ""], ["next UTC", ""], ["last UTC", ""], ["last result", "left"], ["command", "left"]])), element("tbody", "", ...rows));
  box.replaceChildren(scrolled(table, "Schedules"));
}

async function showList() {
  const [runs, schedules] = await Promise.all([ask("/api/runs", ""), ask("/api/schedules", "")]);
  byId("heads").replaceChildren(...heads(COLUMNS).children);
  byId("rows").replaceChildren(...runs.rows.map(line));
  byId("table").hidden = !runs.rows.length;
  byId("empty").hidden = runs.rows.length > 0 || following !== null;
  if (!runs.rows.length) byId("empty").replaceChildren(element("p", "", "No run yet. Start one here, or on a command line; runs in this folder appear on this page:"), copyLine(runs.try_line));
  drawSchedules(schedules);
  tellPicked();
  offerCsv("/api/runs.csv");
  const under = runs.rows.filter((/** @type {any} */ row) => row.state === "running");
  byId("state").textContent = runs.rows.length ? `${runs.rows.length === 1 ? "One run" : `${whole(runs.rows.length)} runs`}${runs.more ? ", the newest" : ""}. Figures are of the fastest target at the lightest load.${runs.rows.length > 1 ? " Mark two to compare them." : ""}` : "";
  if (under.length) follow(under[0].id);
}

// Curves

/** A round step so that an axis has three to six marks. @param {number} top */
function step(top) {
  const rough = top / 4;
  const unit = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((one) => one * unit).find((one) => one >= rough) ?? rough;
}

/** One metric of every target against the load, with intervals. @param {any[]} cells @param {string} metric @param {string} title @param {string[]} names */
function curve(cells, metric, title, names) {
  const loads = [...new Set(cells.map((one) => one.load))];
  const known = cells.filter((one) => one[metric].v !== null);
  if (!known.length) return element("figure", "", element("figcaption", "", title), element("p", "soft", "Too few requests for it at any load."));
  const top = Math.max(...known.map((one) => one[metric].hi ?? one[metric].v));
  const mark = step(top);
  const end = Math.ceil(top / mark) * mark;
  const x = (/** @type {number} */ at) => 48 + ((WIDTH - 72) * (loads.length > 1 ? at / (loads.length - 1) : 0.5));
  const y = (/** @type {number} */ value) => HEIGHT - 28 - ((HEIGHT - 44) * value) / end;
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "curve", role: "img", "aria-label": `${title} against load` });
  for (let value = 0; value <= end + mark / 1e6; value += mark) {
    picture.append(svg("line", { x1: 48, x2: WIDTH - 16, y1: y(value), y2: y(value), class: "grid" }), svg("text", { x: 40, y: y(value) + 4, class: "end" }, value === 0 ? "0" : number(value)));
  }
  loads.forEach((load, at) => picture.append(svg("text", { x: x(at), y: HEIGHT - 8, class: "mid" }, load)));
  names.forEach((name, place) => {
    const mine = known.filter((one) => one.target === name);
    const colour = COLOURS[place] ?? "s-rest";
    const points = mine.map((one) => `${x(loads.indexOf(one.load)).toFixed(1)},${y(one[metric].v).toFixed(1)}`);
    if (points.length > 1) picture.append(svg("polyline", { points: points.join(" "), class: `stroke ${colour}` }));
    for (const one of mine) {
      const at = x(loads.indexOf(one.load)) + (place - (names.length - 1) / 2) * 3;
      const figure = one[metric];
      if (figure.lo !== null) picture.append(svg("line", { x1: at, x2: at, y1: y(figure.lo), y2: y(figure.hi), class: `stroke thin ${colour}` }));
      picture.append(svg("circle", { cx: at, cy: y(figure.v), r: 3.5, class: `dot ${colour}` }, svg("title", {}, `${name} ${one.load}: ${number(figure.v)} (${interval(figure, "")})`)));
    }
  });
  return element("figure", "", element("figcaption", "", title), picture);
}

/** @param {string[]} names */
function legend(names) {
  return element("p", "legend soft", ...names.map((name, at) => element("span", "", element("i", `fill-${COLOURS[at] ?? "s-rest"}`), name)));
}

// One run

/** @param {any} told */
function drawOne(told) {
  const { row, cells } = told;
  const back = Object.assign(document.createElement("a"), { href: "/runs", textContent: "All runs" });
  const names = [...new Set(cells.map((/** @type {any} */ one) => one.target))].map(String);
  const parts = [
    element("div", "bar", element("h2", "", names.length ? names.join(", ") : row.id), element("p", "tools", ...(row.state === "running" ? [stopButton(row.id)] : []), back)),
    element("p", "soft", `${row.state}, ${shortTime(row.started)} UTC, ${whole(row.requests)} requests. ${row.problem}`),
  ];
  for (const one of told.verdicts) {
    parts.push(element("div", "finding", element("p", "", element("strong", "", one.name), " ", ...words(one.sentence)), ...(one.evidence.length ? [element("ul", "soft", ...one.evidence.map((/** @type {string} */ text) => element("li", "", ...words(text))))] : [])));
  }
  if (cells.length) parts.push(...measured(told, names));
  parts.push(...folded("Questions that people bring to a speed report", told.answers), ...folded("Notes", [...told.notes, ...told.health]));
  if (told.line) parts.push(copyLine(told.line));
  byId("one").replaceChildren(...parts);
}

/** Curves and table of all cells, or of one region where the load came from several. @param {any} told @param {string[]} names */
function measured(told, names) {
  const regions = [...new Set(told.regions.map((/** @type {any} */ one) => one.region))].map(String);
  const box = element("div", "");
  const choice = document.createElement("select");
  choice.name = "region";
  const draw = () => {
    const cells = choice.value ? told.regions.filter((/** @type {any} */ one) => one.region === choice.value) : told.cells;
    box.replaceChildren(element("div", "curves", curve(cells, "ttft_p50", "first token, median, ms", names), curve(cells, "ttft_p95", "first token, p95, ms", names), curve(cells, "speed_p50", "speed, median, tok/s", names)), legend(names), cellTable(cells));
  };
  choice.append(new Option("all regions", ""), ...regions.map((name) => new Option(name, name)));
  const asked = new URLSearchParams(location.search).get("region") ?? "";
  choice.value = regions.includes(asked) ? asked : "";
  choice.addEventListener("change", () => {
    setParameter("region", choice.value);
    draw();
  });
  draw();
  return regions.length ? [element("div", "filters", element("label", "", "load from ", choice)), box] : [box];
}

/** Sentences behind a word. @param {string} title @param {string[]} texts */
function folded(title, texts) {
  return texts.length ? [element("details", "", element("summary", "", title), element("ul", "", ...texts.map((text) => element("li", "", ...words(text)))))] : [];
}

/** @param {any[]} cells */
function cellTable(cells) {
  const figure = (/** @type {any} */ one, /** @type {string} */ unit, /** @type {string} */ label) => labelled(label, cell(number(one.v), "", interval(one, unit)));
  const rows = cells.map((one) => element(
    "tr", "",
    cell(one.target, "name", one.target), labelled("load", cell(one.load, "left")), labelled("requests", cell(whole(one.requests))), labelled("failed", cell(whole(one.failed), one.failed ? "worse" : "minor")),
    figure(one.ttft_p50, "ms", "TTFT p50"), figure(one.ttft_p95, "ms", "TTFT p95"), figure(one.speed_p50, "tok/s", "tok/s p50"), figure(one.speed_p05, "tok/s", "tok/s slow 5 %"), figure(one.e2e_p95, "ms", "whole p95"),
    labelled("all tok/s", cell(number(one.throughput_tps))), labelled("kept %", cell(one.retain === null ? NONE : percent(one.retain))), labelled("$ / 1k", cell(money(one.cost_1k, 4))), cell(one.steady === false ? "not steady" : "", "left", one.note),
  ));
  const table = element("table", "board", element("thead", "", heads([["target", "name"], ["load", "left"], ["requests", ""], ["failed", ""], ["TTFT p50 ms", ""], ["TTFT p95 ms", ""], ["tok/s p50", ""], ["tok/s slow 5 %", ""], ["whole p95 ms", ""], ["all tok/s", ""], ["speed kept %", ""], ["$ / 1k", ""], ["", "left"]])), element("tbody", "", ...rows));
  return scrolled(table, "Targets and loads");
}

/** A figure's name as the other pages write it. @param {string} name */
function figureWords(name) {
  const [first, ...rest] = name.split(" ");
  return [FIGURES[first] ?? first, ...rest].join(" ");
}

/** @param {string} id */
function runLink(id) {
  return Object.assign(document.createElement("a"), { href: `?open=${encodeURIComponent(id)}`, textContent: id });
}

/** @param {any} told */
function drawComparison(told) {
  const back = Object.assign(document.createElement("a"), { href: "/runs", textContent: "All runs" });
  const shown = (/** @type {any} */ one, /** @type {number|null} */ value) => (value === null ? NONE : one.in_points ? `${percent(value)} %` : number(value));
  const by = (/** @type {any} */ one, /** @type {number|null} */ value) => (value === null ? NONE : one.in_points ? `${(value * 100).toFixed(1).replace("-", "−")} pt` : `× ${value.toFixed(2)}`);
  const rows = told.changes.map((/** @type {any} */ one) => element(
    "tr", "",
    cell(one.target, "name", one.target), labelled("load", cell(one.load, "left")), cell(figureWords(one.figure), "left"), labelled("n", cell(`${whole(one.n_old)}, ${whole(one.n_new)}`, "minor")),
    labelled("before", cell(shown(one, one.old))), labelled("now", cell(shown(one, one.new))), labelled("worse by", cell(by(one, one.worse))),
    labelled("95 % interval", cell(one.low === null ? NONE : `${by(one, one.low)} to ${by(one, one.high)}`, "minor")), cell(one.verdict === "tie" ? "no difference shown" : one.verdict, one.verdict === "regression" ? "left worse" : one.verdict === "better" ? "left best" : "left"),
  ));
  const table = element("table", "board", element("thead", "", heads([["target", "name"], ["load", "left"], ["figure", "left"], ["n", ""], ["before", ""], ["now", ""], ["worse by", ""], ["95 % interval", ""], ["verdict", "left"]])), element("tbody", "", ...rows));
  byId("one").replaceChildren(
    element("div", "bar", element("h2", "", "What changed between two runs"), element("p", "tools", back)),
    element("p", "soft", "Before: ", runLink(told.old), ". Now: ", runLink(told.new), "."),
    ...told.warnings.map((/** @type {string} */ text) => element("p", "stale", text)),
    ...(told.differs.length ? [element("p", "soft", `The settings differ. ${told.differs.join("; ")}.`)] : []),
    scrolled(table, "Comparison"),
    element("p", "soft", "× 1.10 is ten percent worse, whatever the figure. The interval holds what varies inside the runs, not what changes between them."),
  );
}

async function show() {
  const asked = new URLSearchParams(location.search);
  const [open, a, b] = [asked.get("open"), asked.get("a"), asked.get("b")];
  byId("one").hidden = !open && !a;
  byId("list").hidden = Boolean(open || a);
  byId("state").className = "soft";
  try {
    if (open) {
      const told = await ask(`/api/runs/${encodeURIComponent(open)}`, "");
      byId("state").textContent = "";
      drawOne(told);
      offerCsv(`/api/runs/${encodeURIComponent(open)}.csv`);
      if (told.row.state === "running") follow(open);
    } else if (a && b) {
      const query = new URLSearchParams({ a, b }).toString();
      byId("state").textContent = "Comparing…";
      drawComparison(await ask("/api/compare", query));
      byId("state").textContent = "";
      offerCsv(`/api/compare.csv?${query}`);
    } else await showList();
  } catch (error) {
    stumble(error, show);
  }
}

// Under way

/** @param {string} id */
function stopButton(id) {
  const button = /** @type {HTMLButtonElement} */ (element("button", "", "Stop"));
  button.type = "button";
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await tell("DELETE", `/api/runs/${encodeURIComponent(id)}`);
    } catch (error) {
      byId("state").className = "stale";
      byId("state").textContent = error instanceof Error ? error.message : "";
    }
  });
  return button;
}

/** @param {string} id */
function follow(id) {
  if (following) return;
  const box = byId("live");
  const title = element("h2", "", "A run is under way");
  const bar = /** @type {HTMLProgressElement} */ (document.createElement("progress"));
  bar.setAttribute("aria-label", "requests that have ended");
  const words = element("p", "soft");
  words.setAttribute("role", "status");
  const rows = element("tbody", "");
  const table = element("table", "board small", element("thead", "", heads([["target", "name"], ["load", "left"], ["ended", ""], ["failed", ""], ["TTFT p50 ms", ""], ["tok/s p50", ""]])), rows);
  box.replaceChildren(element("div", "bar", title, element("p", "tools", stopButton(id))), bar, words, scrolled(table, "Requests of the run that have ended"));
  box.hidden = false;
  following = new EventSource(`/api/run-live?id=${encodeURIComponent(id)}`);
  following.onmessage = (event) => {
    const told = JSON.parse(event.data);
    bar.max = told.total ?? 1;
    bar.value = Math.min(told.done, bar.max);
    words.textContent = `${whole(told.done)} requests have ended${told.failed ? `, ${whole(told.failed)} failed` : ""}${told.total === null ? "" : `; ${whole(told.total)} will count, the others are probes, warm-up and ramps`}.`;
    rows.replaceChildren(...told.rows.map((/** @type {any} */ one) => element("tr", "", cell(one.target, "name"), cell(one.load, "left"), cell(whole(one.n)), cell(whole(one.failed), one.failed ? "worse" : ""), cell(number(one.ttft_p50_ms)), cell(number(one.speed_p50_tps)))));
    if (told.state === "running") return;
    following?.close();
    following = null;
    box.hidden = true;
    setParameter("open", id);
    show();
  };
}

// Starting

function numbers() {
  return field("concurrency").value.split(/[\s,]+/).filter(Boolean).map(Number);
}

/** @type {any} */
let told = null;
let asking = 0;

/** Ask what the run would come to, once the typing rests. */
function estimate() {
  clearTimeout(asking);
  /** @type {HTMLButtonElement} */ (byId("go")).disabled = true;
  asking = window.setTimeout(async () => {
    if (!picker) return;
    const query = new URLSearchParams();
    for (const name of picker.chosen) query.append("target", name);
    for (const load of numbers()) query.append("concurrency", String(load));
    for (const name of ["requests", "prompt_tokens", "max_tokens"]) query.set(name, field(name).value);
    try {
      told = await ask("/api/run-estimate", query.toString());
    } catch (error) {
      told = null;
      byId("estimate").textContent = picker.chosen.size ? (error instanceof Error ? error.message : "") : "Choose a target.";
      return;
    }
    offer();
  }, 200);
}

/** Show what a run comes to, and let it start where that is agreed. */
function offer() {
  if (!told) return;
  const dollars = Number(told.est_usd);
  const dear = dollars > Number(told.ask_above_usd);
  byId("agree").hidden = !dear;
  byId("agree").querySelector("span")?.replaceChildren(`up to $${dollars.toFixed(2)} is fine`);
  byId("estimate").textContent = `${whole(told.requests)} requests are measured. ${told.said}`;
  byId("line").textContent = told.line;
  /** @type {HTMLButtonElement} */ (byId("go")).disabled = dear && !field("agreed").checked;
}

/** @param {boolean} open */
function showForm(open) {
  form.hidden = !open;
  byId("new").hidden = open;
}

async function openForm() {
  showForm(form.hidden);
  if (form.hidden || terms) return;
  terms = await ask("/api/race", "");
  if (terms.problem) {
    byId("state").className = "stale";
    byId("state").textContent = terms.problem;
    showForm(false);
    terms = null;
    return;
  }
  picker = choices(terms, new Set(), estimate);
  const first = terms.choices.find((/** @type {any} */ one) => one.kind === "target");
  if (first) picker.choose(first.name);
  estimate();
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!picker || !told) return;
  try {
    const started = await tell("POST", "/api/runs", {
      targets: [...picker.chosen], concurrency: numbers(), requests: Number(field("requests").value), prompt_tokens: Number(field("prompt_tokens").value), max_tokens: Number(field("max_tokens").value),
      ...(field("agreed").checked ? { agreed_usd: (Number(told.est_usd) + 0.01).toFixed(2) } : {}),
    });
    showForm(false);
    byId("empty").hidden = true;
    byId("state").className = "soft";
    byId("state").textContent = "The run has begun.";
    follow(started.id);
  } catch (error) {
    byId("state").className = "stale";
    byId("state").textContent = error instanceof Error ? error.message : "The console does not answer.";
  }
});
form.addEventListener("input", (event) => (/** @type {HTMLInputElement} */ (event.target).name === "agreed" ? offer() : estimate()));
byId("new").addEventListener("click", openForm);
byId("cancel").addEventListener("click", () => showForm(false));
byId("compare").addEventListener("click", () => {
  const [b, a] = [...picked].sort().reverse();
  history.pushState(null, "", `?${new URLSearchParams({ a, b })}`);
  show();
});
addEventListener("popstate", show);
walkRows(byId("rows"));
onKey("n", "start a run", openForm);
onKey("Escape", "back to the list", () => {
  history.pushState(null, "", location.pathname);
  show();
});
show();
