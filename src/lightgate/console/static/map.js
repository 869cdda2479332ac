// Cost against speed: the map with its edge, a machine of one's own against APIs, the bill of second attempts.

import { DAY_MS, leaveOut, linear, logarithmic, offerNames, onWidth, path, tell, tickText, timeTicks, upAxis } from "./chart.js";
import { NONE, byId, card, cell, dollars, element, interval, money, number, percent, svg, usd, whole, words } from "./draw.js";
import { offerCsv, onKey } from "./shell.js";
import { apiQuery, ask, bindFilters, emptyState, stumble } from "./state.js";

/** @typedef {{v: number|null, lo: number|null, hi: number|null, n: number}} Figure */
/** @typedef {{target: string, model: string, provider: string, n: number, cost_1k: string|null, y: Figure, place: string, beaten_by: string, missing: string, usd_per_hour: string|null, price_source: string, price_as_of: string}} MapPoint */

const OWN = ["machine", "gpu_hour", "tps", "busy", "mtok"];
const ASKED = ["y", "size", "key", "tag", "min_n"];
const HEIGHT = 420;
const PLOT = { left: 64, right: 24, top: 20, bottom: 44 };
const LENGTHS = [34, 22, 14]; // letters of a name, where the longer ones have no room
const SPOTS = [[10, 4], [-10, 4], [8, -10], [-8, -10], [8, 18], [-8, 18], [8, -24], [-8, -24], [8, 32], [-8, 32]]; // of a name beside its point
const FAR = [...SPOTS, [8, -38], [-8, -38], [8, 46], [-8, 46], [8, -52], [-8, -52], [8, 60], [-8, 60]]; // names of the edge are never left out for want of room
const WAIT_MS = 120;
/** @type {any} */
let latest = null;

// The map

/** @param {any} map */
function drawMap(map) {
  latest = map;
  const known = /** @type {MapPoint[]} */ (map.rows.filter((/** @type {MapPoint} */ row) => !row.missing));
  byId("map-title").replaceChildren(`${map.words} (${map.unit}, ${map.larger ? "up is better" : "down is better"}) against dollars per 1,000 requests (left is cheaper)`);
  byId("map-part").hidden = map.rows.length === 0;
  byId("empty").hidden = map.rows.length > 0;
  if (!map.rows.length) emptyState(["model", "provider", ...ASKED.slice(1)].some((name) => new URLSearchParams(location.search).has(name)), map.try_line, "attempt");
  for (const part of [byId("read"), byId("legend")]) part.hidden = !known.length;
  const place = byId("map");
  if (!known.length) {
    place.replaceChildren(element("p", "soft", map.rows.length ? "No target has both a known price and enough samples; the table says what each lacks." : ""));
  } else picture(place, map, known);
  byId("y-head").textContent = `${map.words} ${map.unit}`;
  byId("points").replaceChildren(...map.rows.map((/** @type {MapPoint} */ row) => pointRow(row, map)));
}

/** @param {HTMLElement} place @param {any} map @param {MapPoint[]} known */
function picture(place, map, known) {
  const width = Math.max(place.clientWidth, 280);
  const height = width < 560 ? 340 : HEIGHT;
  const right = width - PLOT.right;
  const costs = known.map((row) => Number(row.cost_1k));
  const ends = known.flatMap((row) => [row.y.lo, row.y.hi].map(Number));
  const x = logarithmic(Math.min(...costs) / 1.4, Math.max(...costs) * 1.4, [PLOT.left, right]);
  const pixels = /** @type {[number, number]} */ ([height - PLOT.bottom, PLOT.top]);
  const spread = Math.max(...ends) / Math.max(Math.min(...ends), 1e-9);
  const y = spread > 8 ? logarithmic(Math.min(...ends) / 1.15, Math.max(...ends) * 1.15, pixels) : linear(Math.max(...ends) * 1.1, pixels, 5);
  const made = svg("svg", { width, height, class: "points", role: "group", "aria-label": byId("map-title").textContent ?? "" });
  made.append(...upAxis(y, [PLOT.left, right]));
  for (const tick of x.ticks) {
    made.append(svg("line", { x1: x.at(tick), x2: x.at(tick), y1: PLOT.top, y2: height - PLOT.bottom, class: "grid" }));
    made.append(svg("text", { x: x.at(tick), y: height - PLOT.bottom + 18, class: "tick middle" }, `$${tickText(tick)}`));
  }
  made.append(svg("text", { x: right, y: height - 6, class: "tick end" }, "dollars per 1,000 requests →"));
  const edge = known.filter((row) => row.place === "edge").sort((a, b) => Number(a.cost_1k) - Number(b.cost_1k));
  /** @type {[number, number][]} */
  const steps = [];
  edge.forEach((row, at) => {
    const [left, up] = [x.at(Number(row.cost_1k)), y.at(Number(row.y.v))];
    if (at > 0) steps.push([left, steps[steps.length - 1][1]]);
    steps.push([left, up]);
  });
  if (steps.length) steps.push([right, steps[steps.length - 1][1]]);
  made.append(svg("path", { d: path(steps), class: "edge" }));
  const order = [...known].sort((a, b) => Number(b.place === "edge") - Number(a.place === "edge"));
  const spots = order.map((row) => /** @type {[number, number]} */ ([x.at(Number(row.cost_1k)), y.at(Number(row.y.v))]));
  const taken = spots.map(([left, up]) => ({ x: left - 6, y: up + 4, w: 12 })); // no label covers a point
  order.forEach((row, at) => {
    if (at === edge.length) taken.push(...along(steps)); // names of the edge lie on it, others beside it
    made.append(pointMark(row, map, spots[at], y, [PLOT.left, right], taken));
  });
  place.replaceChildren(made);
}

/** What a line of steps covers, as places of labels. @param {number[][]} steps */
function along(steps) {
  return steps.slice(1).flatMap(([left, up], at) => {
    const [before, under] = steps[at];
    const rows = Math.max(1, Math.ceil(Math.abs(up - under) / 10));
    return Array.from({ length: rows + 1 }, (_, row) => ({ x: Math.min(before, left) - 2, y: under + ((up - under) * row) / rows + 4, w: Math.abs(left - before) + 4 }));
  });
}

/** @param {MapPoint} row @param {any} map @param {[number, number]} at @param {import("./chart.js").Scale} y @param {[number, number]} sides @param {{x: number, y: number, w: number}[]} taken */
function pointMark(row, map, at, y, sides, taken) {
  const [left, up] = at;
  const mark = svg("a", { href: `/time?${new URLSearchParams({ target: row.target })}`, class: `point ${row.place}` });
  const told = describe(row, map);
  mark.append(svg("line", { x1: left, x2: left, y1: y.at(Number(row.y.lo)), y2: y.at(Number(row.y.hi)), class: "whisker" }));
  if (row.usd_per_hour === null) mark.append(svg("circle", { cx: left, cy: up, r: 5.5 }));
  else mark.append(svg("rect", { x: left - 5, y: up - 5, width: 10, height: 10 }));
  const spot = freeSpot(row, at, sides, taken);
  mark.setAttribute("aria-label", !spot || spot.text === row.target ? told : `${spot.text} ${told}`); // begins with what is seen
  if (spot) {
    taken.push(spot);
    mark.append(svg("text", { x: spot.side ? spot.x + spot.w : spot.x, y: spot.y, class: `label${spot.side}` }, spot.text));
  }
  mark.addEventListener("focus", () => tell("read", told));
  mark.addEventListener("pointerenter", () => tell("read", told));
  return mark;
}

/** Where a point's name has room, cut only as far as it must be. @param {MapPoint} row @param {[number, number]} at @param {[number, number]} sides @param {{x: number, y: number, w: number}[]} taken */
function freeSpot(row, at, sides, taken) {
  const texts = [...new Set(LENGTHS.map((most) => (row.target.length > most ? `${row.target.slice(0, most - 1)}…` : row.target)))];
  for (const text of texts) {
    const w = textWidth(text, row.place === "edge");
    const free = (/** @type {number} */ x, /** @type {number} */ y) => x >= sides[0] && x + w <= sides[1] + PLOT.right && !taken.some((one) => Math.abs(one.y - y) < 14 && x < one.x + one.w + 4 && one.x < x + w + 4);
    for (const [dx, dy] of row.place === "edge" ? FAR : SPOTS) {
      const [x, y] = [dx > 0 ? at[0] + dx : at[0] + dx - w, at[1] + dy];
      if (free(x, y)) return { x, y, w, text, side: dx > 0 ? "" : " end" };
    }
  }
  return null;
}

const pen = document.createElement("canvas").getContext("2d");

/** Pixels of a label. @param {string} text @param {boolean} bold */
function textWidth(text, bold) {
  if (!pen) return text.length * 7;
  pen.font = `${bold ? 600 : 400} 12px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
}

/** @param {MapPoint} row @param {any} map */
function describe(row, map) {
  const place = { edge: "on the edge", behind: `behind ${row.beaten_by}`, open: `behind ${row.beaten_by}, but their intervals overlap` }[row.place] ?? "";
  const own = row.usd_per_hour === null ? "" : `, self-hosted at ${usd(row.usd_per_hour, 2)} an hour`;
  return `${row.target}: ${usd(row.cost_1k, 3)} per 1,000 requests, ${map.words} ${number(row.y.v)} ${map.unit} (${interval(row.y, map.unit)}), ${place}${own}`;
}

/** The cell of a name, which may be cut. @param {Node|string} inner @param {string} name */
function named(inner, name) {
  const made = element("td", "name", inner);
  made.title = name;
  return made;
}

/** @param {MapPoint} row @param {any} map */
function pointRow(row, map) {
  const name = document.createElement("a");
  name.href = `/time?${new URLSearchParams({ target: row.target })}`;
  name.textContent = row.target;
  const place = row.missing ? row.missing : { edge: "on the edge", behind: `behind ${row.beaten_by}`, open: `behind ${row.beaten_by}, intervals overlap` }[row.place] ?? "";
  const price = { hourly: `${usd(row.usd_per_hour ?? "0", 2)} an hour`, override: "own prices", list: "list prices" }[row.price_source] ?? "as billed";
  return element("tr", row.missing ? "none" : "",
    named(name, row.target),
    cell(money(row.cost_1k, 3)),
    cell(number(row.y.v), row.place === "edge" ? "best" : "", interval(row.y, map.unit)),
    cell(row.y.lo === null ? NONE : `${number(row.y.lo)}–${number(row.y.hi)}`),
    cell(whole(row.n)),
    element("td", "left wrap", place),
    element("td", "left", row.price_as_of ? `${price} of ${row.price_as_of}` : price));
}

/** @param {any} map */
function say(map) {
  const edge = map.rows.filter((/** @type {MapPoint} */ row) => row.place === "edge").map((/** @type {MapPoint} */ row) => row.target);
  const parts = [`From ${map.since.slice(0, 16).replace("T", " ")} to ${map.until.slice(0, 16).replace("T", " ")} UTC.`];
  if (edge.length) parts.push(`${edge.length === 1 ? "One target is" : `${edge.length} targets are`} on the edge of ${map.rows.length}.`);
  if (map.from_rows) parts.push("Counted from single requests, the newest of at most a day; the hours of self-hosted providers are not in their cost then.");
  if (map.left_out) parts.push(`${whole(map.left_out)} more targets have fewer attempts and are not shown.`);
  if (map.ignored.length) parts.push(`Ignored: ${map.ignored.join(", ")}.`);
  if (map.rows.some((/** @type {MapPoint} */ row) => row.target.startsWith("sim-"))) parts.push("Providers that begin with sim- are simulated.");
  byId("state").className = "soft";
  tell("state", parts.join(" "));
}

// A machine of one's own

const form = /** @type {HTMLFormElement} */ (byId("own-form"));
/** @param {string} name */
function field(name) {
  return /** @type {HTMLInputElement} */ (form.elements.namedItem(name));
}

/** Tokens of a month by the slider: a tenth of a million to 100,000 millions, in equal ratios. @param {number} at */
function toMtok(at) {
  return Number((0.1 * 10 ** (at / (1000 / 6))).toPrecision(2));
}

/** @param {number} mtok */
function fromMtok(mtok) {
  return Math.round(Math.log10(Math.max(mtok, 0.1) / 0.1) * (1000 / 6));
}

/** @param {number} mtok */
function mtokText(mtok) {
  return mtok >= 1000 ? `${(mtok / 1000).toLocaleString("en", { maximumSignificantDigits: 3 })} billion` : `${mtok.toLocaleString("en", { maximumSignificantDigits: 3 })} million`;
}

function ownQuery() {
  const asked = new URLSearchParams(location.search);
  for (const name of ASKED) asked.delete(name);
  return asked.toString();
}

async function drawOwn() {
  /** @type {any} */
  const told = await ask("/api/break-even", ownQuery());
  /** @type {HTMLAnchorElement} */ (byId("own-csv")).href = `/api/break-even.csv?${ownQuery()}`;
  const machine = told.machine;
  byId("own").hidden = false;
  for (const part of ["own-form", "verdict", "own-note"]) byId(part).hidden = !machine;
  const table = /** @type {HTMLElement} */ (byId("own-rows").closest(".scroll"));
  table.hidden = told.rows.length === 0;
  tell("own-state", told.missing || ownWords(told));
  if (!machine) return;
  const choice = /** @type {HTMLSelectElement} */ (form.elements.namedItem("machine"));
  byId("machine-field").hidden = told.machines.length === 0;
  choice.replaceChildren(...[...told.machines, "own machine"].map((/** @type {string} */ name) => {
    const option = document.createElement("option");
    option.value = name;
    option.textContent = name === "own machine" ? "another, thought up" : name;
    return option;
  }));
  choice.value = machine.in_ledger ? told.machines.find((/** @type {string} */ name) => machine.name.split("/")[0] === name) ?? "" : "own machine";
  for (const [name, value] of [["gpu_hour", money(machine.usd_per_hour, 2)], ["tps", number(machine.tokens_per_s).replaceAll(",", "")]]) {
    if (document.activeElement !== field(name)) field(name).value = value;
  }
  if (document.activeElement !== field("busy")) field("busy").value = String(Math.round(told.fill * 100));
  if (document.activeElement !== field("mtok")) field("mtok").value = String(fromMtok(told.mtok));
  outputs(told.fill, told.mtok);
  verdict(told);
  byId("own-rows").replaceChildren(...told.rows.map((/** @type {any} */ row) => element("tr", "",
    named(row.other_model ? `${row.api} *` : row.api, row.api),
    cell(money(row.api_per_1k, 3)), cell(money(row.own_per_1k, 3)),
    row.cheaper_from === null ? cell("never", "none", row.note) : cell(`${number(row.cheaper_from * 100)} %`),
    cell(row.tokens_per_month === null ? NONE : number(Number(row.tokens_per_month) / 1e6)),
    cell(money(row.api_month_usd, 0)), cell(money(row.own_month_usd, 0)), cell(row.machines === null ? NONE : whole(row.machines), "", row.used === null ? "" : `filled to ${percent(row.used)} %`),
    element("td", "left", element("span", row.cheaper === "own" ? "kind faster" : "", row.cheaper === "unknown" ? NONE : row.cheaper === "own" ? "own machine" : "API")))));
}

/** @param {any} told */
function ownWords(told) {
  const machine = told.machine;
  const lines = machine.in_ledger
    ? [`${machine.name} served ${number(machine.tokens_per_s)} tok/s in its busiest 5 minutes, and was used to ${percent(machine.used)} % of that.`]
    : ["This machine is thought up: set what an hour of it costs and what it can serve. The requests are those that the APIs answered."];
  if (told.rows.some((/** @type {any} */ row) => row.other_model)) lines.push("* another model: its answers may be better or worse.");
  return lines.join(" ");
}

/** @param {any} told */
function verdict(told) {
  const machine = told.machine;
  const billed = told.rows.filter((/** @type {any} */ row) => row.own_month_usd !== null);
  const same = billed.filter((/** @type {any} */ row) => !row.other_model);
  const rival = (same.length ? same : billed).sort((/** @type {any} */ a, /** @type {any} */ b) => Number(a.api_month_usd) - Number(b.api_month_usd))[0];
  if (!rival) {
    byId("verdict").textContent = "";
    return;
  }
  const [own, api] = [Number(rival.own_month_usd), Number(rival.api_month_usd)];
  const less = own < api ? "less" : "more";
  const count = rival.machines === 1 ? "One machine" : `${whole(rival.machines)} machines`;
  const when = rival.cheaper_from === null ? "It would never be cheaper at this price and capacity." : `One is cheaper from ${number(rival.cheaper_from * 100)} % of its capacity on: ${mtokText(Number(rival.tokens_per_month) / 1e6)} tokens a month.`;
  byId("verdict").replaceChildren(
    element("b", own < api ? "kind faster" : "kind", `${count}, ${usd(own, 0)} a month: ${usd(Math.abs(own - api), 0)} ${less} than ${rival.api}, the cheapest API ${machine.in_ledger && same.length ? "with its model" : "here"}.`),
    ` ${when} Filled to ${number(told.fill * 100)} %, 1,000 requests cost ${usd(machine.per_1k, 3)} on it and ${usd(rival.api_per_1k, 3)} there.`);
}

/** @param {number} fill @param {number} mtok */
function outputs(fill, mtok) {
  byId("busy-out").textContent = `${Math.round(fill * 100)} %`;
  byId("mtok-out").textContent = mtokText(mtok);
}

/** Put a field of the machine into the address; a drag leaves one entry behind it. @param {boolean} done */
function ownChanged(/** @type {string} */ name, done = false) {
  const asked = new URLSearchParams(location.search);
  const value = name === "mtok" ? String(toMtok(Number(field("mtok").value))) : field(name).value.trim().replaceAll(",", "");
  asked.delete(name);
  if (name === "machine") for (const other of ["gpu_hour", "tps"]) asked.delete(other);
  if (value) asked.set(name, value);
  history[done ? "pushState" : "replaceState"](null, "", `?${asked}`);
}

function ownAgain() {
  drawOwn().catch((error) => stumble(error, refresh));
}

let waiting = 0;
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", (event) => {
  const name = /** @type {HTMLInputElement} */ (event.target).name;
  if (name !== "busy" && name !== "mtok") return;
  outputs(Number(field("busy").value) / 100, toMtok(Number(field("mtok").value)));
  ownChanged(name);
  clearTimeout(waiting);
  waiting = setTimeout(() => ownAgain(), WAIT_MS);
});
form.addEventListener("change", (event) => {
  ownChanged(/** @type {HTMLInputElement} */ (event.target).name, true);
  clearTimeout(waiting);
  ownAgain();
});

// Races and hedges

function billQuery() {
  const asked = new URLSearchParams(location.search);
  for (const name of [...ASKED, ...OWN]) asked.delete(name);
  return asked.toString();
}

async function drawBill() {
  /** @type {any} */
  const told = await ask("/api/hedges", billQuery());
  /** @type {HTMLAnchorElement} */ (byId("bill-csv")).href = `/api/hedges.csv?${billQuery()}`;
  const total = told.total;
  const fired = total.races + total.hedges;
  byId("bill").hidden = false;
  for (const id of ["bill-cards", "bill-days", "bill-note"]) byId(id).hidden = fired === 0;
  /** @type {HTMLElement} */ (byId("bill-table").closest(".scroll")).hidden = fired === 0;
  byId("bill-state").replaceChildren(...(fired
    ? [`From ${told.since.slice(0, 16).replace("T", " ")} UTC on: ${whole(total.hedges)} hedges and ${whole(total.races)} races; a second attempt won ${whole(total.won)} times (${percent(total.won / fired)} %).`]
    : words("No request of this period had a second attempt beside the first. A model of the configuration is hedged by `hedge = \"auto\"` where it has several targets, and raced by `race = 2`.")));
  if (!fired) return;
  byId("bill-cards").replaceChildren(
    card("requests with a second", whole(fired)), card("won", whole(total.won), ` of ${whole(fired)}`),
    card("seconds bought", number(total.seconds.v), " s"),
    card("paid for losers", dollars(total.losers_usd)), card("premium of winners", dollars(total.premium_usd)),
    card("a second costs", dollars(total.usd_per_s)));
  days = told.days;
  billDays(days);
  byId("bill-rows").replaceChildren(...told.rows.map((/** @type {any} */ row) => element("tr", "",
    named(row.name, row.name), cell(whole(row.races + row.hedges), "", `${whole(row.hedges)} hedges, ${whole(row.races)} races`),
    cell(`${whole(row.won)} (${percent(row.won / (row.races + row.hedges))} %)`),
    element("td", "left wrap", row.winners.map((/** @type {any} */ one) => `${one.target} ${whole(one.won)}`).join(", ") || NONE),
    cell(number(row.seconds.v)), cell(row.seconds.lo === null ? NONE : `${number(row.seconds.lo)}–${number(row.seconds.hi)}`, "", row.seconds.lo === null ? "fewer than 6 won" : ""),
    cell(money(row.losers_usd, 4)), cell(row.premium_usd === null ? NONE : signed(row.premium_usd, 4), "", row.premium_usd === null ? "a price is not known" : ""),
    cell(signed(row.usd_per_s, 4), "", row.usd_per_s !== null && row.usd_per_s < 0 ? "the winners were cheaper by more than the losers cost" : ""))));
}

/** Dollars that may be below zero. @param {string|number|null} amount @param {number} digits */
function signed(amount, digits) {
  if (amount === null) return NONE;
  const text = money(Math.abs(Number(amount)), digits);
  return Number(amount) >= 0 ? text : text.startsWith("<") ? `>−${text.slice(1)}` : `−${text}`;
}

/** Seconds bought and dollars paid by day, as bars above each other. @param {any[]} days */
function billDays(days) {
  const place = byId("bill-days");
  const half = matchMedia("(max-width: 640px)").matches ? place.clientWidth : (place.clientWidth - 24) / 2;
  const width = Math.max(half, 240);
  const [height, left, right] = [112, 52, width - 8];
  const from = Date.parse(days[0].name);
  const to = Date.parse(days[days.length - 1].name) + 86_400_000;
  const x = (/** @type {number} */ at) => left + ((right - left) * (at - from)) / (to - from);
  const chart = (/** @type {string} */ words, /** @type {(day: any) => number} */ value, /** @type {(value: number) => string} */ text, /** @type {string} */ name) => {
    const y = linear(Math.max(...days.map(value), 1e-9) * 1.08, [height - 22, 8], 2);
    const made = svg("svg", { width, height, class: "days", role: "img", "aria-label": `${words} by day` });
    made.append(...upAxis(y, [left, right]));
    for (const tick of timeTicks(from, to - 1, Math.max(2, Math.floor((right - left) / 80)), DAY_MS)) made.append(svg("text", { x: x(tick.at + 43_200_000), y: height - 4, class: "tick middle" }, tick.text));
    for (const day of days) {
      const at = Date.parse(day.name);
      const wide = Math.max(x(at + 86_400_000) - x(at) - 2, 1);
      const bar = svg("rect", { x: x(at) + 1 + Math.max(wide - 40, 0) / 2, width: Math.min(wide, 40), y: y.at(value(day)), height: Math.max(height - 22 - y.at(value(day)), 0), class: name });
      bar.append(svg("title", {}, `${day.name}: ${text(value(day))}, ${whole(day.won)} of ${whole(day.races + day.hedges)} won`));
      made.append(bar);
    }
    return element("figure", "chart", element("figcaption", "", words), made);
  };
  const paid = (/** @type {any} */ day) => Number(day.losers_usd) + Math.max(Number(day.premium_usd ?? 0), 0);
  place.replaceChildren(element("div", "pair",
    chart("Seconds bought by day (UTC)", (day) => day.seconds.v, (value) => `${number(value)} s`, "good"), chart("Dollars paid by day: losers and premiums", paid, dollars, "paid")));
}

async function refresh() {
  offerCsv(`/api/map.csv?${apiQuery(OWN)}`);
  try {
    const map = await ask("/api/map", apiQuery(OWN));
    drawMap(map);
    say(map);
    offerNames("models", map.rows.map((/** @type {MapPoint} */ row) => row.model));
    offerNames("providers", map.rows.map((/** @type {MapPoint} */ row) => row.provider));
    await drawOwn();
    await drawBill();
  } catch (error) {
    stumble(error, refresh);
  }
}

/** @type {any} */
let days = null;
onWidth(byId("map"), () => latest && drawMap(latest));
onWidth(byId("bill"), () => days && billDays(days));
onKey("r", "read the numbers anew", refresh);
leaveOut("from", "-14d");
bindFilters(refresh);
refresh();
