// One request on one axis of time: the gateway's own steps, then each attempt as a lane.

import { NONE, element, money, number, step, svg, usd, whole } from "./draw.js";

const WIDTH = 1000;
const LANE = 32;
const TOP = 24;
const STALL_MS = 100;
const STALL_TIMES = 8; // of the usual gap

/** @param {Node} parent @param {number} from @param {number} to @param {number} y @param {string} kind @param {string} title @param {(t: number) => number} x */
function bar(parent, from, to, y, kind, title, x) {
  const thin = kind === "wait" || kind === "connect";
  const made = svg("rect", {
    x: x(from).toFixed(1), y: y + (thin ? 10 : 4), width: Math.max(1, x(to) - x(from)).toFixed(1), height: thin ? 4 : 16, rx: thin ? 2 : 3, class: kind,
  }, svg("title", {}, title));
  parent.appendChild(made);
}

/** A tick for every read that brought tokens, one for all that share a pixel, and a line over a stall. @param {any} lane @param {number} y @param {Node} picture @param {(t: number) => number} x */
function drawTicks(lane, y, picture, x) {
  /** @type {number[]} */
  const ticks = lane.ticks_ms;
  const places = new Set(ticks.map((t) => Math.round(x(t) * 2) / 2));
  const kind = lane.won === false ? "ticks lost" : "ticks";
  const gaps = ticks.slice(1).map((t, at) => t - ticks[at]);
  const usual = [...gaps].sort((a, b) => a - b)[Math.floor(gaps.length / 2)] ?? 0;
  const words = `${whole(lane.bursts ?? ticks.length)} reads with tokens, ${number(usual)} ms apart at the median`;
  picture.appendChild(svg("rect", { x: x(ticks[0]).toFixed(1), y: y + 4, width: Math.max(1, x(ticks[ticks.length - 1]) - x(ticks[0])).toFixed(1), height: 16, class: "under" }, svg("title", {}, words)));
  picture.appendChild(svg("path", { d: [...places].map((at) => `M${at} ${y + 4}v16`).join(""), class: kind }));
  gaps.forEach((gap, at) => {
    if (gap < STALL_MS || gap < STALL_TIMES * usual) return;
    const [from, to] = [x(ticks[at]), x(ticks[at + 1])];
    picture.appendChild(svg("path", { d: `M${from} ${y + 12}H${to}`, class: "stall" }, svg("title", {}, `stall: no token for ${number(gap)} ms`)));
  });
}

/** @param {any} lane @param {number} y @param {Node} picture @param {(t: number) => number} x */
function drawLane(lane, y, picture, x) {
  const t = lane.t_ms;
  const connect = ["pool_wait_ms", "dns_ms", "tcp_ms", "tls_ms"].reduce((sum, name) => sum + (lane[name] ?? 0), 0);
  const ms = (/** @type {number} */ value) => `${number(value)} ms`;
  if (t.plan !== null && t.send !== null) bar(picture, t.plan, t.send, y, "connect", `waited and connected: ${ms(t.send - t.plan)}, of it pool, DNS, TCP, TLS ${ms(connect)}`, x);
  const end = t.end ?? t.last ?? t.first ?? t.headers;
  if (t.send !== null) {
    const until = t.first ?? end;
    if (until !== null) bar(picture, t.send, until, y, "wait", t.first === null ? `no token came in ${ms(until - t.send)}` : `sent, first token after ${ms(t.first - t.send)}`, x);
  }
  if (t.first !== null && t.last !== null && lane.ticks_ms) drawTicks(lane, y, picture, x);
  else if (t.first !== null && t.last !== null) {
    bar(picture, t.first, t.last, y, lane.won === false ? "lost" : "tokens", `tokens for ${ms(t.last - t.first)} in ${whole(lane.bursts ?? 0)} reads, longest gap ${lane.stall_ms === null ? NONE : ms(lane.stall_ms)}`, x);
  }
  for (const [name, words] of [["headers", "status line"], ["first", "first token"], ["answer", "first token of the answer"]]) {
    if (t[name] !== null) {
      picture.appendChild(svg("line", { x1: x(t[name]).toFixed(1), x2: x(t[name]).toFixed(1), y1: y + 2, y2: y + 22, class: `flag ${name}` }, svg("title", {}, `${words} at ${ms(t[name])}`)));
    }
  }
  if (lane.outcome !== "ok" && end !== null) picture.appendChild(svg("path", { d: `M${x(end) - 4} ${y + 8}l8 8m0 -8l-8 8`, class: "cross" }, svg("title", {}, `${lane.outcome} at ${ms(end)}`)));
}

/** @param {any} told @param {HTMLElement} close */
export function waterfall(told, close) {
  const { exchange, attempts } = told;
  const instants = [told.t_ms, ...attempts.map((/** @type {any} */ lane) => lane.t_ms)]
    .flatMap((/** @type {Record<string, number|null>} */ some) => Object.entries(some).filter(([name]) => name !== "accepted").map(([, value]) => value))
    .filter((value) => value !== null);
  const end = Math.max(1, ...instants);
  const x = (/** @type {number} */ t) => (WIDTH * Math.max(0, t)) / end;
  const height = TOP + LANE * (attempts.length + 1);
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, height, class: "waterfall", preserveAspectRatio: "none", role: "img" }, svg("title", {}, "The request over time"));
  const axis = element("div", "axis");
  for (let t = 0; t <= end; t += step(end)) {
    picture.append(svg("line", { x1: x(t), x2: x(t), y1: TOP - 6, y2: height, class: "grid" }));
    const mark = element("span", "", t === 0 ? "0 ms" : number(t));
    mark.style.left = `${(100 * x(t)) / WIDTH}%`;
    axis.append(mark);
  }
  const g = told.t_ms;
  if (g.received !== null && g.first_byte !== null) bar(picture, g.first_byte, g.received, TOP, "connect", `request came in: ${number(g.received - g.first_byte)} ms`, x);
  if (g.received !== null && g.sent !== null) bar(picture, g.received, g.sent, TOP, "gateway", `gateway until it was sent: ${number(g.sent - g.received)} ms`, x);
  if (g.first_out !== null && g.last_out !== null) bar(picture, g.first_out, g.last_out, TOP, "handed", `handed to the client for ${number(g.last_out - g.first_out)} ms`, x);
  const labels = element("div", "labels", element("span", "", "gateway"));
  attempts.forEach((/** @type {any} */ lane, /** @type {number} */ at) => {
    drawLane(lane, TOP + LANE * (at + 1), picture, x);
    const label = element("span", lane.won === false ? "soft" : "", `${at + 1} ${lane.target}`);
    label.title = `${lane.target}, ${lane.role}`;
    labels.append(label);
  });
  const ticked = attempts.some((/** @type {any} */ lane) => lane.ticks_ms);
  const fact = (/** @type {string} */ name, /** @type {string} */ value) => element("div", "", element("dt", "", name), element("dd", "", value));
  const facts = element(
    "dl", "facts",
    fact("outcome", exchange.outcome),
    fact("answered by", exchange.winner ?? NONE),
    fact("TTFT", `${number(exchange.ttft_ms)} ms`),
    fact("whole", `${number(exchange.e2e_ms)} ms`),
    fact("overhead", `${number(exchange.overhead_ms)} ms`),
    fact("tokens in, out", `${exchange.tokens_in ?? NONE}, ${exchange.tokens_out ?? NONE}`),
    fact("cost", exchange.cost_usd === null ? NONE : `${usd(exchange.cost_usd, 6)}`),
    fact("policy", exchange.policy),
  );
  return element(
    "div", "",
    element("div", "bar", element("h2", "", `${exchange.model_asked}, ${exchange.wall_time.slice(0, 23).replace("T", " ")} UTC`), element("p", "tools", close)),
    facts,
    element("div", "fall", element("div", "spacer"), axis, labels, picture),
    legend(ticked),
    ticked ? "" : element("p", "soft", "Single ticks are kept for the newest requests only."),
    lanes(attempts),
    why(told),
    element("p", "soft", `Request ${exchange.request_id}`),
  );
}

/** @param {boolean} ticked */
function legend(ticked) {
  const one = (/** @type {string} */ kind, /** @type {string} */ text) => element("span", "", element("i", kind), text);
  return element("p", "legend soft", one("connect", "waits and connects"), one("wait", "waits for the first token"), one("tokens", ticked ? "a read with tokens" : "tokens of the winner"), one("lost", "tokens of a loser"), one("handed", "handed to the client"));
}

/** @param {any[]} attempts */
function lanes(attempts) {
  const heads = ["#", "target", "role", "outcome", "TTFT ms", "speed tok/s", "gap ms", "reads", "tok out", "$", "provider's id"];
  const left = new Set([1, 2, 3, 10]);
  const head = element("tr", "", ...heads.map((text, at) => {
    const made = /** @type {HTMLTableCellElement} */ (element("th", left.has(at) ? "left" : "", text));
    made.scope = "col";
    return made;
  }));
  const rows = attempts.map((lane, at) => element(
    "tr", "", ...[
      String(at + 1), lane.target, lane.won === true ? `${lane.role}, won` : lane.role, lane.error ? `${lane.outcome}: ${lane.error}` : lane.outcome,
      number(lane.ttft_ms), number(lane.speed_tps), number(lane.stall_ms), lane.bursts === null ? NONE : whole(lane.bursts),
      lane.tokens_out === null ? NONE : whole(lane.tokens_out), money(lane.cost_usd, 6), lane.provider_request_id ?? NONE,
    ].map((text, column) => element("td", left.has(column) ? "left" : "", text)),
  ));
  return element("div", "scroll", element("table", "board small", element("thead", "", head), element("tbody", "", ...rows)));
}

/** @param {any} told */
function why(told) {
  const box = element("div", "why-box", element("h3", "", "Why it went there"));
  if (told.why) box.append(element("p", "soft", told.why));
  if (!told.candidates.length) return box;
  const heads = ["target", "first token ms", "end ms", "samples", "in flight", "fails %", "$", "why"];
  const head = element("tr", "", ...heads.map((text, at) => {
    const made = /** @type {HTMLTableCellElement} */ (element("th", at === 0 || at === 7 ? "left" : "", text));
    made.scope = "col";
    return made;
  }));
  const rows = told.candidates.map((/** @type {any} */ one) => element(
    "tr", "", ...[one.target, number(one.ttft_ms), number(one.end_ms), whole(one.samples), whole(one.in_flight), number(100 * one.failures), money(one.cost_usd, 6), one.why]
      .map((text, at) => element("td", at === 0 || at === 7 ? "left" : "", text)),
  ));
  box.append(element("div", "scroll", element("table", "board small", element("thead", "", head), element("tbody", "", ...rows))));
  return box;
}
