// The race track: one prompt, several targets, every token at the instant the server stamped it with.

import { NONE, byId, cell, element, money, number, usd, whole } from "./draw.js";
import { offerRows, onKey } from "./shell.js";
import { ask, stumble } from "./state.js";
import { choices, heads, labelled, send } from "./work.js";

const COLOURS = ["--s1", "--s2", "--s3", "--s4"];
const SHEET = ["finish_place", "name", "target", "outcome", "error", "first_place", "ttft_ms", "speed_tps", "speed_total_tps", "e2e_ms", "tokens_out", "cost_usd", "request_id"];
const COLUMNS = [["finish", ""], ["lane", "name"], ["answered by", "name"], ["outcome", "left"], ["first", ""], ["TTFT ms", ""], ["tok/s", ""], ["total tok/s", ""], ["whole ms", ""], ["tok out", ""], ["$", ""], ["request", "left"]];
const PLACES = ["", "1st", "2nd", "3rd"];
const BYTES_PER_TOKEN = 2; // the upper end that the server takes, too

/** @typedef {{t: number, text: string, thought: string, tokens: number}} Burst */
/** @typedef {{name: string, colour: string, sent: number|null, bursts: Burst[], shown: number, end: any, result: any, canvas: HTMLCanvasElement, place: HTMLElement, now: HTMLElement, facts: Record<string, HTMLElement>, text: HTMLElement, course: HTMLElement, card: HTMLElement, drawn: Text|null, thinking: boolean}} Lane */

const form = /** @type {HTMLFormElement} */ (byId("order"));
/** @type {any} */
let terms = null;
/** @type {Lane[]} */
let lanes = [];
/** @type {AbortController|null} */
let running = null;
let clock = { t: 0, at: 0, speed: 0, limit: Infinity };
let over = false;
/** @type {ReturnType<typeof choices>|null} */
let picker = null;
/** @type {Set<string>} */
const chosen = new Set(new URLSearchParams(location.search).getAll("lane"));

const field = (/** @type {string} */ name) => /** @type {HTMLInputElement} */ (form.elements.namedItem(name));
const place = (/** @type {number|null} */ at) => (at === null ? NONE : (PLACES[at] ?? `${at}th`));
const seconds = (/** @type {number} */ ms) => (ms / 1000).toFixed(ms < 100_000 ? 3 : 1);

/** Milliseconds of the race now: the server's, and what has passed here since it said so. */
function now() {
  const passed = (performance.now() - clock.at) * clock.speed;
  return Math.min(clock.limit, clock.t + (running ? Math.min(passed, 1500) : passed));
}

// Choosing

function remember() {
  const asked = new URLSearchParams();
  for (const name of chosen) asked.append("lane", name);
  history.replaceState(null, "", chosen.size ? `?${asked}` : location.pathname);
}

function cost() {
  const tokensIn = Math.floor(new TextEncoder().encode(field("prompt").value).length / BYTES_PER_TOKEN) + 1;
  return picker ? picker.cost(tokensIn, Number(field("max_tokens").value), 1) : { dollars: 0, unknown: [] };
}

function estimate() {
  if (!terms) return;
  const { dollars, unknown } = cost();
  const agree = byId("agree");
  const dear = dollars > Number(terms.ask_above_usd);
  agree.hidden = !dear;
  const digits = dollars < 0.1 ? 4 : 2;
  const most = (Math.ceil(dollars * 10 ** digits) / 10 ** digits).toFixed(digits); // never below the bill
  agree.querySelector("span")?.replaceChildren(`up to $${most} is fine`);
  const priced = unknown.length ? `${chosen.size - unknown.length} of ` : "";
  const said = `At most $${most} for ${priced}${chosen.size} ${chosen.size === 1 ? "lane" : "lanes"}`;
  const open = `the price of ${unknown.join(", ")} is not known`;
  const words = !chosen.size ? "Choose a lane" : !unknown.length ? said : unknown.length === chosen.size ? `T${open.slice(1)}` : `${said}; ${open}`;
  byId("estimate").textContent = `${words}.`;
  /** @type {HTMLButtonElement} */ (byId("go")).disabled = !chosen.size || chosen.size > terms.most_lanes || (dear && !field("agreed").checked) || running !== null;
}

// Drawing

/** @param {string} name @param {number} at @returns {Lane} */
function makeLane(name, at) {
  const colour = COLOURS[at] ?? "--s-rest";
  const canvas = document.createElement("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `tokens of ${name} over time`);
  const mark = element("span", "place", "");
  const moment = element("span", "moment", "");
  const course = element("li", `course lane-${Math.min(at, 4)}`, mark, element("span", "who", name), canvas, moment);
  /** @type {Record<string, HTMLElement>} */
  const facts = {};
  const list = element("dl", "figures");
  for (const [key, words] of [["ttft", "first token"], ["speed", "tok/s"], ["tokens", "tokens"], ["cost", "$"]]) {
    facts[key] = element("dd", "", NONE);
    list.append(element("div", "", element("dt", "", words), facts[key]));
  }
  const text = element("div", "said");
  text.tabIndex = 0;
  text.setAttribute("role", "group");
  text.setAttribute("aria-label", `answer of ${name}`);
  const card = element("article", `answer lane-${Math.min(at, 4)}`, element("h3", "", name), list, text);
  byId("courses").append(course);
  byId("answers").append(card);
  return { name, colour, sent: null, bursts: [], shown: 0, end: null, result: null, canvas, place: mark, now: moment, facts, text, course, card, drawn: null, thinking: false };
}

/** Show what the lane had said by an instant. @param {Lane} lane @param {number} t */
function speak(lane, t) {
  const stuck = lane.text.scrollHeight - lane.text.scrollTop - lane.text.clientHeight < 24;
  let news = false;
  while (lane.shown < lane.bursts.length && lane.bursts[lane.shown].t <= t) {
    const burst = lane.bursts[lane.shown++];
    for (const [words, thinking] of /** @type {[string, boolean][]} */ ([[burst.thought, true], [burst.text, false]])) {
      if (!words) continue;
      if (!lane.drawn || lane.thinking !== thinking) {
        lane.drawn = document.createTextNode("");
        lane.thinking = thinking;
        lane.text.append(element("span", thinking ? "thought" : "", lane.drawn));
      }
      lane.drawn.data += words;
      news = true;
    }
  }
  if (news && stuck) lane.text.scrollTop = lane.text.scrollHeight;
}

/** The numbers of a lane at an instant: the ledger's where they are known. @param {Lane} lane @param {number} t */
function tell(lane, t) {
  const ended = lane.end !== null && lane.end.t_ms <= t;
  const first = lane.bursts[0];
  const sent = lane.sent ?? 0;
  const last = lane.bursts[lane.shown - 1];
  const { ttft, speed, tokens, cost: paid } = lane.facts;
  const result = ended ? lane.result : null;
  ttft.textContent = result?.ttft_ms ? `${number(result.ttft_ms)} ms` : first && first.t <= t ? `${number(first.t - sent)} ms` : NONE;
  const count = result?.tokens_out ?? (ended ? lane.end.tokens : last?.tokens);
  tokens.textContent = count === undefined || !last ? NONE : `${ended ? "" : "≈ "}${whole(count)}`;
  const spent = (ended ? (lane.bursts.at(-1)?.t ?? t) : t) - (first?.t ?? t);
  const rate = result?.speed_tps ?? (last && spent > 50 && count > 1 ? ((count - 1) * 1000) / spent : null);
  speed.textContent = rate === null || rate === undefined ? NONE : `${result ? "" : "≈ "}${number(rate)}`;
  paid.textContent = result ? money(result.cost_usd, 6) : NONE;
  lane.card.classList.toggle("over", ended);
  if (!ended) {
    lane.now.textContent = lane.sent === null ? "" : first && first.t <= t ? "answering" : "waiting";
    lane.place.textContent = "";
    lane.course.classList.remove("first", "lost");
    return;
  }
  const good = lane.end.outcome === "ok";
  const rank = 1 + lanes.filter((one) => one !== lane && one.end?.outcome === "ok" && one.end.t_ms <= t && finish(one) < finish(lane)).length;
  lane.place.textContent = good ? place(lane.result ? lane.result.finish_place : rank) : "✕";
  lane.course.classList.toggle("first", good && (lane.result ? lane.result.finish_place : rank) === 1);
  lane.course.classList.toggle("lost", !good);
  lane.now.textContent = good ? `${seconds(finish(lane))} s` : (lane.result?.outcome ?? lane.end.outcome);
  lane.now.title = lane.end.error ?? "";
  if (!good && lane.end.error && !lane.text.querySelector(".worse")) lane.text.append(element("p", "worse", lane.end.error));
}

/** When a lane ended: by the ledger, as soon as it has said so. @param {Lane} lane */
function finish(lane) {
  return lane.result?.t_last_ms ?? lane.end?.t_ms ?? Infinity;
}

/** How many milliseconds the track has room for. @param {number} t */
function room(t) {
  const needed = Math.max(1000, t, ...(over ? lanes.map((lane) => (Number.isFinite(finish(lane)) ? finish(lane) : 0)) : []));
  return [1, 2, 3, 5, 8, 10, 15, 20, 30, 45, 60, 90, 120, 180].map((one) => one * 1000).find((one) => one >= needed * 1.02) ?? 240_000;
}

/** @param {number} span */
function drawAxis(span) {
  const axis = byId("axis");
  if (axis.dataset.span === String(span)) return;
  axis.dataset.span = String(span);
  const step = [200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000].find((one) => span / one <= 6) ?? 60_000;
  axis.replaceChildren(...Array.from({ length: Math.floor(span / step) + 1 }, (_, at) => {
    const mark = element("span", "", at === 0 ? "0 s" : String((at * step) / 1000));
    mark.style.left = `${(100 * at * step) / span}%`;
    return mark;
  }));
}

/** @param {Lane} lane @param {number} t @param {number} span */
function drawCourse(lane, t, span) {
  const { canvas } = lane;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  if (!pen || !width) return;
  const style = getComputedStyle(document.documentElement);
  const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  const x = (/** @type {number} */ at) => (at / span) * (width - 8);
  const cross = (/** @type {number} */ at) => Math.max(x(at), 5); // whole, also at the very start
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.fillStyle = colour("--line");
  pen.fillRect(0, height / 2 - 0.5, width, 1);
  const first = lane.bursts[0];
  const ended = lane.end !== null && lane.end.t_ms <= t;
  const until = ended ? lane.end.t_ms : t;
  if (lane.sent !== null) {
    pen.fillStyle = colour("--soft");
    pen.fillRect(x(lane.sent), height / 2 - 1.5, Math.max(1, x(first && first.t <= t ? first.t : until) - x(lane.sent)), 3);
  }
  pen.fillStyle = colour(lane.colour);
  for (let at = 0; at < lane.shown; at += 1) pen.fillRect(x(lane.bursts[at].t), at === 0 ? 2 : 7, at === 0 ? 2 : 1, at === 0 ? height - 4 : height - 14);
  if (!ended) return;
  if (lane.end.outcome === "ok") pen.fillRect(x(until) - 1, height / 2 - 5, 10, 10);
  else {
    pen.strokeStyle = colour("--bad");
    pen.lineWidth = 2;
    pen.beginPath();
    pen.moveTo(cross(until) - 4, height / 2 - 4);
    pen.lineTo(cross(until) + 4, height / 2 + 4);
    pen.moveTo(cross(until) + 4, height / 2 - 4);
    pen.lineTo(cross(until) - 4, height / 2 + 4);
    pen.stroke();
  }
}

let awake = false;

function draw() {
  const t = now();
  const span = room(t);
  byId("clock").textContent = seconds(t);
  drawAxis(span);
  for (const lane of lanes) {
    speak(lane, t);
    tell(lane, t);
    drawCourse(lane, t, span);
  }
  awake = clock.speed > 0 && t < clock.limit;
  if (awake) requestAnimationFrame(draw);
}

function wake() {
  if (!awake) {
    awake = true;
    requestAnimationFrame(draw);
  }
}

// Running

/** @param {any} frame */
function take(frame) {
  if (frame.lanes) {
    lanes = frame.lanes.map(makeLane);
    byId("track").hidden = false;
    byId("track").scrollIntoView({ block: "nearest" });
  }
  for (const event of frame.events ?? []) {
    const lane = lanes[event.lane];
    if (event.kind === "sent") lane.sent = event.t_ms;
    else if (event.kind === "burst") lane.bursts.push({ t: event.t_ms, text: event.text ?? "", thought: event.thought ?? "", tokens: event.tokens });
    else lane.end = event;
  }
  if (!over) clock = { t: frame.t_ms, at: performance.now(), speed: 1, limit: Infinity };
  if (lanes.length && lanes.every((lane) => lane.end !== null)) finished();
  if (frame.over) result(frame);
  wake();
}

/** All lanes have ended: the clock stands at the last of them. */
function finished() {
  over = true;
  clock = { t: Math.max(...lanes.map((lane) => lane.end.t_ms)), at: performance.now(), speed: 0, limit: Infinity };
  const sent = lanes.map((lane) => lane.sent).filter((one) => one !== null);
  byId("start").textContent = sent.length > 1 ? `All sent within ${number(Math.max(...sent) - Math.min(...sent))} ms.` : "";
  if (byId("result").hidden) byId("state").textContent = "All lanes have ended; the ledger's numbers come in a moment.";
}

/** @param {any} frame */
function result(frame) {
  for (const one of frame.results ?? []) lanes[one.lane].result = one;
  byId("heads").replaceChildren(...heads(COLUMNS).children);
  const ranked = [...(frame.results ?? [])].sort((a, b) => (a.finish_place ?? 99) - (b.finish_place ?? 99));
  byId("rows").replaceChildren(...ranked.map((one) => {
    const link = document.createElement("a");
    link.href = `/requests?open=${encodeURIComponent(one.request_id)}`;
    link.textContent = "waterfall";
    return element(
      "tr", "",
      labelled("finish", cell(place(one.finish_place), one.finish_place === 1 ? "best" : "")),
      cell(one.name, "name", one.name),
      cell(one.target ?? NONE, one.target === one.name ? "name minor" : "name", one.target ?? ""),
      cell(one.outcome, one.outcome === "ok" ? "left minor" : "left worse", one.error ?? ""),
      labelled("first word", cell(place(one.first_place), one.first_place === 1 ? "best" : "")),
      labelled("TTFT ms", cell(number(one.ttft_ms))),
      labelled("tok/s", cell(number(one.speed_tps))),
      labelled("total tok/s", cell(number(one.speed_total_tps))),
      labelled("whole ms", cell(number(one.e2e_ms))),
      labelled("tok out", cell(one.tokens_out === null ? NONE : whole(one.tokens_out))),
      labelled("$", cell(money(one.cost_usd, 6))),
      element("td", "left", link),
    );
  }));
  byId("result").hidden = !ranked.length;
  offerRows([SHEET, ...ranked.map((one) => SHEET.map((name) => one[name]))]);
  byId("replays").hidden = false;
  const winner = ranked.find((one) => one.finish_place === 1);
  const spent = ranked.reduce((sum, one) => sum + Number(one.cost_usd ?? 0) + Number(one.loser_cost_usd ?? 0), 0);
  byId("verdict").textContent = `${frame.missing ?? ""} One race is no verdict: n is 1. A benchmark on the page Runs measures many.`.trim();
  byId("state").textContent = winner ? `${winner.name} finished first after ${seconds(winner.t_last_ms)} s. The race cost ${cost().unknown.some((name) => lanes.some((lane) => lane.name === name && lane.end?.outcome === "ok")) ? "at least " : ""}${usd(spent, 5)}.` : "No lane gave a whole answer.";
  wake();
}

function clear() {
  lanes = [];
  over = false;
  clock = { t: 0, at: performance.now(), speed: 0, limit: Infinity };
  for (const id of ["courses", "answers", "rows"]) byId(id).replaceChildren();
  for (const id of ["result", "replays", "csv"]) byId(id).hidden = true;
  byId("start").textContent = "";
}

async function race() {
  if (running || !terms) return;
  clear();
  running = new AbortController();
  byId("stop").hidden = false;
  byId("state").className = "soft";
  byId("state").textContent = "The race is on.";
  estimate();
  const { dollars } = cost();
  const temperature = field("temperature").value;
  try {
    await send("/api/races", {
      prompt: field("prompt").value,
      lanes: [...chosen],
      max_tokens: Number(field("max_tokens").value),
      temperature: temperature === "" ? null : Number(temperature),
      ...(field("agreed").checked ? { agreed_usd: (dollars * 1.001 + 0.01).toFixed(2) } : {}),
    }, take, running.signal);
  } catch (error) {
    const stopped = running.signal.aborted;
    byId("state").className = stopped ? "soft" : "stale";
    byId("state").textContent = stopped ? "Stopped: what was under way is cancelled, and the ledger has what it cost." : error instanceof Error ? error.message : "The console does not answer.";
    clock = { ...clock, t: now(), speed: 0 };
  }
  running = null;
  byId("stop").hidden = true;
  estimate();
}

/** @param {number} speed */
function replay(speed) {
  for (const lane of lanes) {
    lane.shown = 0;
    lane.drawn = null;
    lane.text.replaceChildren();
  }
  const end = Math.max(...lanes.map((lane) => lane.end?.t_ms ?? 0));
  clock = { t: 0, at: performance.now(), speed, limit: end };
  wake();
}

async function begin() {
  try {
    terms = await ask("/api/race", "");
  } catch (error) {
    stumble(error, begin);
    return;
  }
  form.hidden = Boolean(terms.problem);
  byId("state").className = "soft";
  byId("state").textContent = terms.problem ? "" : `One prompt, up to ${terms.most_lanes} lanes, all at once.`;
  byId("empty").hidden = !terms.problem;
  byId("empty").replaceChildren(element("p", "", terms.problem));
  if (terms.problem) return;
  if (!chosen.size) for (const one of terms.choices.filter((/** @type {any} */ each) => each.kind === "target").slice(0, 4)) chosen.add(one.name);
  const prompt = new URLSearchParams(location.search).get("prompt");
  if (prompt) field("prompt").value = prompt;
  picker = choices(terms, chosen, () => {
    remember();
    estimate();
  });
  estimate();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  race();
});
form.addEventListener("input", estimate);
field("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    form.requestSubmit();
  }
});
byId("stop").addEventListener("click", () => running?.abort());
for (const button of byId("replays").querySelectorAll("button")) button.addEventListener("click", () => replay(Number(button.dataset.speed)));
addEventListener("resize", wake);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", wake);
onKey("/", "to the prompt (Ctrl+Enter starts)", () => field("prompt").focus());
onKey("s", "start the race", () => form.requestSubmit());
onKey("x", "stop the race", () => running?.abort());
onKey("r", "replay", () => lanes.length && over && replay(1));
begin();
