// Targets over time: a row of charts for each, all of one metric on the same scale, and a week's hours.

import { amount, area, leaveOut, linear, logarithmic, offerNames, onWidth, path, stretches, tell, timeTicks, upAxis } from "./chart.js";
import { byId, cell, element, number, svg, whole } from "./draw.js";
import { offerCsv, onKey } from "./shell.js";
import { apiQuery, ask, bindFilters, emptyState, stumble } from "./state.js";

/** @typedef {{t: string, p05: number|null, p25: number|null, p50: number|null, p75: number|null, p95: number|null, n: number, ok: number|null}} Point */
/** @typedef {{kind: string, target: string, t: string, until: string, change: number|null, text: string}} Mark */
/** @typedef {{t: string, target: string, schedule: string, load: string, p50: number, n: number}} RunPoint */
/** @typedef {{target: string, points: Point[]}} Row */
/** @typedef {{metric: string, since: string, until: string, bucket_s: number, rows: Row[], marks: Mark[], runs: RunPoint[], left_out: number, ignored: string[], try_line: string}} Series */

/** @type {[string, number][]} */
const SHORT = [["-1h", 3600], ["-6h", 6 * 3600], ["-24h", 24 * 3600]];
/** @type {Record<string, [string, string, boolean]>} words, unit, whether more is better */
const METRICS = {
  ttft: ["First token", "ms", false],
  ttfa: ["Answer's first word", "ms", false],
  speed: ["Speed while decoding", "tok/s", true],
  speed_total: ["Total speed", "tok/s", true],
  e2e: ["Whole answer", "ms", false],
  overhead: ["Gateway's overhead", "ms", false],
};
const HEIGHT = 164;
const PLOT = { left: 52, right: 8, top: 18, bottom: 24 };
const STEPS = 8;
const LEAST = 6; // samples of a median
const DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
/** @type {Series[]} */
let shown = [];
/** @type {{draw: () => void, at: (time: number|null) => void}[]} */
let figures = [];

/** The lowest and the highest value that the charts of a metric show; a few very late ones do not flatten all others. @param {Series} series @returns {[number, number]|null} null: there is none */
function reach(series) {
  const points = series.rows.flatMap((row) => row.points);
  const known = (/** @type {(number|null)[]} */ values) => /** @type {number[]} */ (values.filter((value) => value !== null && value > 0)).sort((a, b) => a - b);
  const tops = known(points.map((point) => point.p95 ?? point.p75 ?? point.p50));
  const feet = known(points.map((point) => point.p05 ?? point.p25 ?? point.p50));
  if (!tops.length) return null;
  const high = tops[Math.floor((tops.length - 1) * 0.995)];
  const low = feet[Math.ceil((feet.length - 1) * 0.005)];
  return [low / 1.1, high * 1.1];
}

function isLinear() {
  return new URLSearchParams(location.search).get("scale") === "linear";
}

/** @param {string} time */
function shortTime(time) {
  return time.slice(0, 16).replace("T", " ");
}

/** One chart: a focusable figure that arrows walk through. @param {Series} series @param {Row} row @param {[number, number]|null} ends of the scale */
function figureOf(series, row, ends) {
  const [words, unit, more] = METRICS[series.metric];
  const figure = element("figure", "chart");
  const caption = element("figcaption", "", words, element("span", "unit", ` ${unit}`));
  const place = element("div", "plot");
  place.tabIndex = 0;
  place.setAttribute("role", "application");
  place.setAttribute("aria-label", `${words} of ${row.target} over time. Arrow keys read its points, Enter opens their requests.`);
  figure.append(caption, place);
  const runs = series.runs.filter((run) => run.target === row.target);
  if (!ends || !(runs.length || row.points.some((point) => point.p50 !== null))) {
    place.replaceWith(element("p", "soft", `n too small: a point needs ${LEAST} answers, and none here has as many.`));
    return figure;
  }
  const marks = series.marks.filter((mark) => mark.target === row.target);
  const from = Date.parse(series.since);
  const to = Date.parse(series.until);
  const half = (series.bucket_s * 1000) / 2;
  const middle = (/** @type {Point} */ point) => Math.min(Math.max(Date.parse(point.t) + half, from), to);
  let x = (/** @type {number} */ time) => time;
  let y = (/** @type {number} */ value) => value;
  const line = svg("line", { class: "cursor", y1: PLOT.top, y2: HEIGHT - PLOT.bottom, visibility: "hidden" });
  const dot = svg("circle", { class: "cursor-dot", r: 3.5, visibility: "hidden" });
  let chosen = -1;

  const draw = () => {
    const width = Math.max(place.clientWidth, 200);
    const right = width - PLOT.right;
    const scale = isLinear() ? linear(ends[1], [HEIGHT - PLOT.bottom, PLOT.top], 3) : logarithmic(ends[0], ends[1], [HEIGHT - PLOT.bottom, PLOT.top]);
    x = (time) => PLOT.left + ((right - PLOT.left) * (time - from)) / Math.max(to - from, 1);
    y = (value) => Math.min(Math.max(scale.at(value), PLOT.top - 2), HEIGHT - PLOT.bottom + 2);
    const picture = svg("svg", { width, height: HEIGHT, class: "time", "aria-hidden": "true" });
    for (const mark of marks) {
      const [left, end] = [x(Math.max(Date.parse(mark.t), from)), x(Math.min(Date.parse(mark.until), to))];
      const shape = svg("rect", { x: left, width: Math.max(end - left, 3), y: PLOT.top, height: HEIGHT - PLOT.bottom - PLOT.top, class: `mark ${mark.kind}` });
      shape.append(svg("title", {}, `${mark.kind}: ${mark.text}`));
      picture.append(shape);
      if (mark.kind !== "outage") picture.append(svg("text", { x: left, y: PLOT.top - 5, class: `tick ${mark.kind}` }, mark.kind === "slower" ? "▲ slower" : "▼ faster"));
      else picture.append(svg("rect", { x: left, width: Math.max(end - left, 3), y: HEIGHT - PLOT.bottom - 4, height: 4, class: "outage-foot" }));
    }
    picture.append(...upAxis(scale, [PLOT.left, right]), svg("line", { x1: PLOT.left, x2: right, y1: HEIGHT - PLOT.bottom, y2: HEIGHT - PLOT.bottom, class: "ground" }));
    for (const tick of timeTicks(from, to, Math.max(2, Math.floor((right - PLOT.left) / 72)))) {
      picture.append(svg("line", { x1: x(tick.at), x2: x(tick.at), y1: HEIGHT - PLOT.bottom, y2: HEIGHT - PLOT.bottom + 4, class: "grid" }));
      picture.append(svg("text", { x: x(tick.at), y: HEIGHT - 6, class: "tick middle" }, tick.text));
    }
    const joined = (/** @type {Point} */ before, /** @type {Point} */ after) => Date.parse(after.t) - Date.parse(before.t) <= series.bucket_s * 1000;
    const place_ = (/** @type {"p05"|"p25"|"p50"|"p75"|"p95"} */ key) => (/** @type {Point} */ point) => /** @type {[number, number]} */ ([x(middle(point)), y(/** @type {number} */ (point[key]))]);
    for (const some of stretches(row.points, (point) => point.p05 !== null && point.p95 !== null, joined)) {
      if (some.length > 1) picture.append(svg("path", { d: area(some.map(place_("p95")), some.map(place_("p05"))), class: "band90" }));
    }
    for (const some of stretches(row.points, (point) => point.p25 !== null && point.p75 !== null, joined)) {
      if (some.length > 1) picture.append(svg("path", { d: area(some.map(place_("p75")), some.map(place_("p25"))), class: "band50" }));
    }
    for (const [key, name] of /** @type {["p05"|"p95"|"p50", string][]} */ ([[more ? "p05" : "p95", "line95"], ["p50", "line50"]])) {
      for (const some of stretches(row.points, (point) => point[key] !== null, joined)) {
        if (some.length > 1) picture.append(svg("path", { d: path(some.map(place_(key))), class: name }));
        else picture.append(svg("circle", { cx: place_(key)(some[0])[0], cy: place_(key)(some[0])[1], r: 1.6, class: `${name} lone` }));
      }
    }
    for (const run of runs) {
      const [left, up] = [x(Date.parse(run.t)), y(run.p50)];
      const shape = svg("path", { d: `M${left} ${up - 4}l4 4l-4 4l-4 -4Z`, class: "run" });
      shape.append(svg("title", {}, `${run.schedule} at ${run.load}: median ${number(run.p50)} ${unit}, n ${whole(run.n)}, ${shortTime(run.t)}`));
      picture.append(shape);
    }
    picture.append(line, dot);
    place.replaceChildren(picture);
    if (chosen >= 0) at(middle(row.points[chosen]));
  };

  const at = (/** @type {number|null} */ time) => {
    const known = time === null ? -1 : nearest(row.points.map(middle), time);
    const point = known < 0 ? null : row.points[known];
    for (const part of [line, dot]) part.setAttribute("visibility", "hidden");
    if (!point) return;
    const left = x(middle(point)).toFixed(1);
    line.setAttribute("x1", left);
    line.setAttribute("x2", left);
    line.setAttribute("visibility", "visible");
    if (point.p50 === null) return;
    dot.setAttribute("cx", left);
    dot.setAttribute("cy", y(point.p50).toFixed(1));
    dot.setAttribute("visibility", "visible");
  };

  const choose = (/** @type {number} */ index) => {
    chosen = index;
    const point = row.points[index];
    for (const one of figures) one.at(middle(point));
    const runsHere = runs.filter((run) => Math.abs(Date.parse(run.t) - middle(point)) <= half).map((run) => `${run.schedule} at ${run.load}: ${amount(run.p50, unit)}`);
    const here = marks.filter((mark) => Date.parse(mark.t) <= middle(point) && middle(point) < Date.parse(mark.until)).map((mark) => `${mark.kind}: ${mark.text}`);
    const tail = more ? `slow 5 % ${amount(point.p05, unit)}` : `p95 ${amount(point.p95, unit)}`;
    tell("read", [`${row.target}, ${shortTime(point.t)} UTC`, `${words.toLowerCase()}: median ${amount(point.p50, unit)}`, tail, `n ${whole(point.n)}`, ...here, ...runsHere].join(" · "));
  };
  const time = (/** @type {PointerEvent|MouseEvent} */ event) => {
    const box = place.getBoundingClientRect();
    return from + ((to - from) * (event.clientX - box.left - PLOT.left)) / Math.max(box.width - PLOT.left - PLOT.right, 1);
  };
  const open = (/** @type {number} */ index) => {
    const start = Date.parse(row.points[index].t);
    const stamp = (/** @type {number} */ value) => new Date(value).toISOString().slice(0, 19) + "Z";
    location.assign(`/requests?${new URLSearchParams({ target: row.target, from: stamp(start), to: stamp(start + series.bucket_s * 1000 - 1000) })}`);
  };
  const far = row.points.length - 1;
  place.addEventListener("pointermove", (event) => far >= 0 && choose(nearest(row.points.map(middle), time(event))));
  place.addEventListener("pointerleave", () => figures.forEach((one) => one.at(null)));
  place.addEventListener("dblclick", (event) => far >= 0 && open(nearest(row.points.map(middle), time(event))));
  place.addEventListener("focus", () => far >= 0 && choose(chosen < 0 ? far : chosen));
  place.addEventListener("blur", () => figures.forEach((one) => one.at(null)));
  place.addEventListener("keydown", (event) => {
    const go = { ArrowLeft: chosen - 1, ArrowRight: chosen + 1, Home: 0, End: far }[event.key];
    if (go !== undefined && far >= 0) {
      event.preventDefault();
      choose(Math.min(far, Math.max(0, go)));
    } else if (event.key === "Enter" && chosen >= 0) open(chosen);
  });
  figures.push({ draw, at });
  onWidth(place, draw);
  return figure;
}

/** The place of the value that is closest. @param {number[]} values @param {number} wanted */
function nearest(values, wanted) {
  let best = 0;
  values.forEach((value, at) => {
    if (Math.abs(value - wanted) < Math.abs(values[best] - wanted)) best = at;
  });
  return best;
}

/** @param {Series[]} all */
function draw(all) {
  shown = all;
  figures = [];
  const [first] = all;
  const reaches = all.map(reach);
  const rows = first.rows.map((row, at) => {
    const name = document.createElement("a");
    name.href = `/requests?${new URLSearchParams({ target: row.target })}`;
    name.textContent = row.target;
    const asked = row.points.reduce((sum, point) => sum + point.n, 0);
    const charts = all.map((series, which) => figureOf(series, series.rows[at] ?? { target: row.target, points: [] }, reaches[which]));
    const made = element("section", all.length > 1 ? "multiple two" : "multiple", element("h2", "", name, element("span", "unit", ` ${whole(asked)} ${asked === 1 ? "attempt" : "attempts"}`)), ...charts);
    made.setAttribute("aria-label", row.target);
    return made;
  });
  byId("charts").replaceChildren(...rows);
  byId("legend").hidden = figures.length === 0;
  byId("empty").hidden = rows.length > 0;
  if (!rows.length) emptyState(["target", "model", "provider"].some((name) => new URLSearchParams(location.search).has(name)), first.try_line, "attempt");
  happened(all);
  offerNames("targets", first.rows.map((row) => row.target));
  offerNames("models", first.rows.map((row) => row.target.slice(row.target.indexOf("/") + 1)));
  offerNames("providers", first.rows.map((row) => row.target.split("/")[0]));
  say(first);
}

/** @param {Series[]} all */
function happened(all) {
  const rows = all.flatMap((series) => series.marks.map((mark) => ({ mark, seen: mark.kind === "outage" ? "attempts" : METRICS[series.metric][0].toLowerCase() })));
  const once = rows.filter((row, at) => row.mark.kind !== "outage" || rows.findIndex((other) => other.mark.kind === "outage" && other.mark.target === row.mark.target && other.mark.t === row.mark.t) === at);
  once.sort((a, b) => (a.mark.t < b.mark.t ? 1 : -1));
  byId("marks").replaceChildren(...once.map(({ mark, seen }) => element("tr", "",
    cell(mark.target, "left"),
    element("td", "left", element("span", `kind ${mark.kind}`, mark.kind), ` ${mark.text}`),
    cell(shortTime(mark.t), "left"), cell(shortTime(mark.until), "left"), cell(seen, "left"))));
  byId("happened").hidden = once.length === 0;
}

/** @param {Series} series */
function say(series) {
  const width = { 300: "5 minutes", 3600: "an hour", 21600: "6 hours", 86400: "a day" }[series.bucket_s] ?? `${series.bucket_s} s`;
  const parts = [`From ${shortTime(series.since)} to ${shortTime(series.until)} UTC, a point is ${width}.`];
  if (series.rows.length > 1) parts.push("Charts of one metric have the same scale.");
  if (series.left_out) parts.push(`${whole(series.left_out)} more targets have fewer attempts and are not shown.`);
  if (series.ignored.length) parts.push(`Ignored: ${series.ignored.join(", ")}.`);
  if (series.rows.some((row) => row.target.startsWith("sim-"))) parts.push("Providers that begin with sim- are simulated.");
  byId("state").className = "soft";
  tell("state", parts.join(" "));
}

// The week

/** @param {Series} series */
async function week(series) {
  byId("week").hidden = series.rows.length === 0;
  if (!series.rows.length) return;
  const of = /** @type {HTMLSelectElement} */ (byId("heat-of"));
  const before = of.value;
  of.replaceChildren(...series.rows.map((row) => {
    const option = document.createElement("option");
    option.textContent = option.value = row.target;
    return option;
  }));
  const busiest = series.rows.reduce((best, row) => (asked(row) > asked(best) ? row : best));
  of.value = series.rows.some((row) => row.target === before) ? before : busiest.target;
  await heat();
}

/** @param {Row} row */
function asked(row) {
  return row.points.reduce((sum, point) => sum + point.n, 0);
}

async function heat() {
  const of = /** @type {HTMLSelectElement} */ (byId("heat-of")).value;
  const metric = /** @type {HTMLSelectElement} */ (byId("heat-metric")).value;
  const from = new URLSearchParams(location.search).get("from") ?? "";
  const zone = new URLSearchParams(location.search).get("tz") ?? Intl.DateTimeFormat().resolvedOptions().timeZone ?? "UTC";
  const query = new URLSearchParams({ target: of, metric, tz: zone, from: ["-14d", "-30d", "-90d"].includes(from) ? from : "-14d" });
  /** @type {HTMLAnchorElement} */ (byId("heat-csv")).href = `/api/heat.csv?${query}`;
  const told = await ask("/api/heat", query.toString());
  /** @type {Map<string, {v: number|null, n: number}>} */
  const cells = new Map(told.rows.map((/** @type {any} */ row) => [`${row.dow} ${row.hour}`, row.p50]));
  const known = told.rows.map((/** @type {any} */ row) => row.p50.v).filter((/** @type {number|null} */ value) => value !== null);
  const [low, high] = span(known);
  const [words, unit, more] = METRICS[metric];
  const step = (/** @type {number} */ value) => (high > low ? Math.max(0, Math.min(STEPS - 1, Math.floor((STEPS * Math.log(value / low)) / Math.log(high / low)))) : 0);
  const hours = Array.from({ length: 24 }, (_, hour) => hour);
  const phone = matchMedia("(max-width: 640px)").matches;
  const one = (/** @type {number} */ day, /** @type {number} */ hour) => {
    const found = cells.get(`${day} ${hour}`);
    const where = `${DAYS[day]} ${String(hour).padStart(2, "0")}:00`;
    if (!found || !found.n) return cell("", "no", `${where}: no sample`);
    if (found.v === null) return cell("·", "few", `${where}: too few samples, n ${found.n}`);
    const level = more ? STEPS - 1 - step(found.v) : step(found.v);
    return cell(compact(found.v), `h h${level}`, `${where}: median ${number(found.v)} ${unit}, n ${whole(found.n)}`);
  };
  const head = (/** @type {string} */ text, /** @type {string} */ scope) => {
    const made = /** @type {HTMLTableCellElement} */ (element("th", "", text));
    made.scope = scope;
    return made;
  };
  const hourText = (/** @type {number} */ hour) => String(hour).padStart(2, "0");
  const lines = phone
    ? [element("tr", "", head("", "col"), ...DAYS.map((day) => head(day, "col"))), ...hours.map((hour) => element("tr", "", head(hourText(hour), "row"), ...DAYS.map((_, day) => one(day, hour))))]
    : [element("tr", "", head("", "col"), ...hours.map((hour) => head(hourText(hour), "col"))), ...DAYS.map((day, at) => element("tr", "", head(day, "row"), ...hours.map((hour) => one(at, hour))))];
  byId("heat").replaceChildren(element("thead", "", lines[0]), element("tbody", "", ...lines.slice(1)));
  tell("heat-state", `${words}, median in ${unit}, from ${shortTime(told.since)} to ${shortTime(told.until)} UTC; the hours are those of ${told.tz}. ${sentence(told.rows, words, unit, more)}`);
  const swatches = Array.from({ length: STEPS }, (_, at) => element("i", `h h${at}`));
  const ends = more ? [high, low] : [low, high];
  byId("heat-legend").replaceChildren(
    ...(known.length ? [element("span", "", `fast ${number(ends[0])} `, ...swatches, ` slow ${number(ends[1])} ${unit}`)] : []),
    element("span", "", element("i", "few"), `fewer than ${LEAST} samples`), element("span", "", element("i", "no"), "no sample"),
  );
}

/** The ends of the colours: at least a factor of two, so that chance does not look like a pattern. @param {number[]} known @returns {[number, number]} */
function span(known) {
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const wide = Math.SQRT2 / Math.sqrt(Math.max(high / low, 1));
  return wide > 1 ? [low / wide, high * wide] : [low, high];
}

/** The slowest day in words, where it is slow. @param {any[]} rows @param {string} words @param {string} unit @param {boolean} more */
function sentence(rows, words, unit, more) {
  const days = DAYS.map((_, day) => {
    const values = rows.filter((row) => row.dow === day && row.p50.v !== null).map((row) => row.p50.v).sort((a, b) => a - b);
    return values.length >= 12 ? values[Math.floor(values.length / 2)] : null;
  });
  const known = /** @type {number[]} */ (days.filter((value) => value !== null));
  if (known.length < 5) return "";
  const worst = more ? Math.min(...known) : Math.max(...known);
  const usual = [...known].sort((a, b) => a - b)[Math.floor(known.length / 2)];
  const ratio = more ? usual / worst : worst / usual;
  if (ratio < 1.1) return "No day of the week stands out.";
  return `${DAYS[days.indexOf(worst)]} is the slowest day: ${number(worst)} ${unit} in its middle hour, ${number(usual)} on a usual day.`;
}

/** A number that fits into a cell. @param {number} value */
function compact(value) {
  if (value >= 10_000) return `${Math.round(value / 1000)}k`;
  if (value >= 1000) return `${(value / 1000).toFixed(1)}k`;
  return value >= 10 ? String(Math.round(value)) : value.toFixed(1);
}

/** The shortest period that holds all there is, where seven days would show points at their end only. @param {any} series */
function period(series) {
  const first = Math.min(...series.rows.map((/** @type {any} */ row) => Date.parse(row.points[0]?.t ?? "")).filter(Number.isFinite));
  if (!Number.isFinite(first)) return "";
  const age_s = (Date.parse(series.as_of) - first) / 1000 - series.bucket_s / 2; // it began within its bucket
  return SHORT.find(([, seconds]) => age_s <= seconds)?.[0] ?? "";
}

async function refresh() {
  const query = new URLSearchParams(apiQuery(["scale", "tz"]));
  const metrics = query.get("metric") ? [String(query.get("metric"))] : ["ttft", "speed"];
  query.delete("metric");
  const asks = () => metrics.map((metric) => new URLSearchParams([...query, ["metric", metric]]).toString());
  const answers = () => Promise.all(asks().map((one) => ask("/api/series", one)));
  try {
    let all = await answers();
    const fitting = query.has("from") || query.has("to") ? "" : period(all[0]);
    if (fitting) {
      query.set("from", fitting);
      all = await answers();
    }
    offerCsv(`/api/series.csv?${asks()[0]}`);
    draw(all);
    await week(all[0]);
  } catch (error) {
    stumble(error, refresh);
  }
}

byId("heat-of").addEventListener("change", heat);
byId("heat-metric").addEventListener("change", heat);
matchMedia("(max-width: 640px)").addEventListener("change", () => shown.length && heat());
onKey("r", "read the numbers anew", refresh);
leaveOut("from", "-7d");
bindFilters(refresh);
refresh();
