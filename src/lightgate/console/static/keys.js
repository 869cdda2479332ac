// Keys: who may send, what each has spent, and the life of a key from its making to its end.

import { Refused, button, clock, dialog, failed, order, signedIn } from "./admin.js";
import { DAY_MS, linear, onWidth, timeTicks, upAxis } from "./chart.js";
import { NONE, ago, byId, cell, dollars, element, money, svg, usd, whole } from "./draw.js";
import { offerCsv, onKey } from "./shell.js";
import { ask, bindFilters, setParameter } from "./state.js";
import { scrolled, walkRows } from "./table.js";

/** @typedef {{id: string, name: string, prefix: string, state: string, version: string, expires: string|null, models: string[], budget_usd: string|null, budget_period: string, spent_usd: string, rpm: number|null, tpm: number|null, max_tokens: number|null, may_race: boolean, max_fanout: number, tags: Record<string, string>, last_used: string|null, days: string[]}} Key */

const PERIODS = /** @type {Record<string, string>} */ ({ total: "in all", day: "a day", month: "a month" });
const HEADS = [
  ["key", "name"], ["state", "left"], ["spent of its budget, $", ""], ["14\u00a0days,\u00a0$", "left"], ["requests a minute", ""],
  ["tokens a minute", ""], ["longest answer", ""], ["models", "left"], ["races", "left"], ["last used", "left"], ["ends (UTC)", "left"], ["", ""],
];
const MOST_MODELS = 2; // that a row names
const PLOT = { left: 64, top: 8, bottom: 24, height: 184 };
/** @type {{open: boolean, as_of: string, rows: Key[]}|null} */
let list = null;

function parameters() {
  return new URLSearchParams(location.search);
}

/** @param {string[]} names */
function picked(...names) {
  const asked = new URLSearchParams();
  for (const [name, value] of parameters()) if (names.includes(name)) asked.append(name, value);
  return asked.toString();
}

/** @param {Key} key */
function budget(key) {
  const spent = Number(key.spent_usd);
  const made = element("td", "");
  made.dataset.label = "spent, $";
  if (key.budget_usd === null) {
    made.append(money(spent, 4));
    made.title = "no budget";
    return made;
  }
  const all = Number(key.budget_usd);
  const share = all > 0 ? Math.min(1, spent / all) : 1;
  const words = `${money(spent, 4)} of ${money(all, 2)} dollars ${PERIODS[key.budget_period]}`;
  const bar = svg("svg", { viewBox: "0 0 64 8", class: "budget", role: "img" }, svg("title", {}, words));
  bar.append(svg("rect", { class: "all", width: 64, height: 8, rx: 3 }), svg("rect", { class: share >= 1 ? "full" : "spent", width: (64 * share).toFixed(1), height: 8, rx: 3 }));
  made.append(bar, `${money(spent, 4)} / ${money(all, 2)} ${key.budget_period === "total" ? "" : PERIODS[key.budget_period]}`.trim());
  made.title = words;
  return made;
}

/** @param {string[]} days */
function week(days) {
  const values = days.map(Number);
  const most = Math.max(...values, 0);
  if (!most) return element("span", "none", NONE);
  const words = `dollars by day, the last ${values.length} days: up to ${money(most, 4)}`;
  const picture = svg("svg", { viewBox: "0 0 96 20", class: "spark", role: "img" }, svg("title", {}, words));
  values.forEach((value, at) => {
    const high = (18 * value) / most;
    picture.append(svg("rect", { class: "s0", x: 2 + at * 6.6, y: (19 - high).toFixed(1), width: 5, height: high.toFixed(1) }));
  });
  return picture;
}

/** @param {string} text @param {string} label @param {string} [kind] */
function labelled(text, label, kind = "") {
  const made = cell(text, kind);
  made.dataset.label = label;
  return made;
}

/** @param {Key} key @param {string} now */
function row(key, now) {
  const name = element("td", "name");
  const link = /** @type {HTMLAnchorElement} */ (element("a", "", key.name));
  const asked = parameters();
  asked.set("key", key.id);
  asked.set("by", "model");
  link.href = `?${asked}`;
  link.title = "spend of this key";
  name.append(link, element("span", "why", `${key.prefix}…${Object.entries(key.tags).map(([tag, value]) => ` ${tag}=${value}`).join("")}`));
  const state = element("td", "left mark", element("span", key.state === "in use" ? "state-word" : "state-word over", key.state));
  const days = element("td", "left picture", week(key.days));
  const models = key.models.length > MOST_MODELS ? `${key.models.slice(0, MOST_MODELS).join(", ")} and ${key.models.length - MOST_MODELS} more` : key.models.join(", ");
  const named = labelled(models || "all", "models", "left error");
  named.title = key.models.join(", ");
  const acts = element("td", "acts");
  if (key.state !== "revoked") {
    const change = button("Change", () => edit(key));
    change.setAttribute("aria-label", `Change ${key.name}`);
    const revoke = button("Revoke", () => end(key));
    revoke.className = "danger";
    revoke.setAttribute("aria-label", `Revoke ${key.name}`);
    acts.append(change, revoke);
  }
  const limit = (/** @type {number|null} */ value) => (value === null ? "no limit" : whole(value));
  return element(
    "tr", "", name, state, budget(key), days, labelled(limit(key.rpm), "requests a minute"), labelled(limit(key.tpm), "tokens a minute"),
    labelled(limit(key.max_tokens), "longest answer"), named, labelled(key.may_race ? `${key.max_fanout} lanes` : "no", "races", "left"),
    labelled(key.last_used ? ago(key.last_used, now) : "never", "last used", "left"), labelled(key.expires ? clock(key.expires) : "never", "ends (UTC)", "left"), acts,
  );
}

function draw() {
  if (!list) return;
  byId("heads").replaceChildren(...HEADS.map(([words, kind]) => {
    const head = /** @type {HTMLTableCellElement} */ (element(words ? "th" : "td", kind, words));
    if (words) head.scope = "col";
    return head;
  }));
  const now = list.as_of;
  byId("rows").replaceChildren(...list.rows.map((key) => row(key, now)));
  byId("table").hidden = !list.rows.length;
  const empty = byId("empty");
  empty.hidden = list.rows.length > 0;
  empty.replaceChildren(element("p", "", list.open ? "There is no key: the gateway asks for none, and listens on this machine only. The first key closes it to requests without one." : "No key is in this state."));
  const used = list.rows.filter((key) => key.state === "in use").length;
  byId("state").className = "soft";
  byId("state").textContent = `${whole(list.rows.length)} ${list.rows.length === 1 ? "key" : "keys"}, ${whole(used)} in use.`;
  byId("note").textContent = "A change reaches the gateway within a second. Spent is what the ledger knows: the last seconds may be missing.";
}

// The form of a key

/** @type {[string, string, string, string][]} */
const FIELDS = [
  ["name", "name", "broad", "what lists and reports call it"],
  ["budget_usd", "budget in dollars", "", "none"],
  ["budget_period", "which begins again", "", ""],
  ["rpm", "requests in a minute", "", "no limit"],
  ["tpm", "tokens in a minute", "", "no limit"],
  ["max_tokens", "longest answer in tokens", "", "no limit"],
  ["expires", "ends", "", "never; such as 90d or 2027-01-31"],
  ["models", "models, with commas", "broad", "all"],
  ["tags", "tags, as name=value with commas", "broad", "none"],
  ["max_fanout", "targets at once", "", ""],
  ["may_race", "may have targets race", "check", ""],
];

/** What a field of the form shows of a key. @param {Key|null} key @param {string} name */
function shown(key, name) {
  if (name === "budget_period") return key?.budget_period ?? "total";
  if (name === "max_fanout") return String(key?.max_fanout ?? 2);
  if (!key) return "";
  if (name === "models") return key.models.join(", ");
  if (name === "tags") return Object.entries(key.tags).map(([tag, value]) => `${tag}=${value}`).join(", ");
  const value = /** @type {any} */ (key)[name];
  return value === null ? "" : String(value);
}

/** What is sent for a field. @param {string} name @param {string} text */
function meant(name, text) {
  const value = text.trim();
  if (name === "models") return value ? value.split(",").map((one) => one.trim()) : [];
  if (name === "tags") {
    return Object.fromEntries(value.split(",").filter((one) => one.trim()).map((one) => {
      const [tag, ...rest] = one.trim().split("=");
      if (!tag || !rest.length) throw new Refused("tags are name=value, with commas between them.", "tags");
      return [tag, rest.join("=")];
    }));
  }
  if (["rpm", "tpm", "max_tokens", "max_fanout"].includes(name)) {
    if (!value) return null;
    if (!/^\d+$/.test(value)) throw new Refused(`${name} is a whole number.`, name);
    return Number(value);
  }
  if (name === "name" && !value) throw new Refused("A key needs a name.", name);
  if (name === "budget_usd" && value && !/^\d+(\.\d{1,9})?$/.test(value)) throw new Refused("A budget is an amount of dollars such as 25 or 0.50.", name);
  if (name === "name" || name === "budget_period") return value;
  return value || null;
}

/** @param {string} name @param {string} words @param {string} kind @param {string} hint @param {Key|null} key */
function field(name, words, kind, hint, key) {
  /** @type {HTMLInputElement|HTMLSelectElement} */
  let input;
  if (name === "budget_period") {
    input = document.createElement("select");
    for (const [value, text] of [["total", "never"], ["day", "every day"], ["month", "every month"]]) input.append(new Option(text, value));
    input.value = shown(key, name);
  } else {
    input = document.createElement("input");
    if (name === "may_race") {
      input.type = "checkbox";
      input.checked = key?.may_race ?? false;
    } else {
      input.value = shown(key, name);
      input.placeholder = hint;
      input.autocomplete = "off";
      if (["rpm", "tpm", "max_tokens", "max_fanout"].includes(name)) input.inputMode = "numeric";
      if (name === "name") input.required = true;
    }
  }
  input.name = name;
  const wrong = element("span", "wrong");
  wrong.id = `wrong-${name}`;
  input.setAttribute("aria-describedby", wrong.id);
  return kind === "check" ? element("label", kind, input, words, wrong) : element("label", kind, words, input, wrong);
}

/** Make a key, or change one. @param {Key|null} key */
function edit(key) {
  const form = /** @type {HTMLFormElement} */ (element("form", ""));
  form.noValidate = true;
  const fields = element("div", "fields", ...FIELDS.map(([name, words, kind, hint]) => field(name, words, kind, hint, key)));
  const save = /** @type {HTMLButtonElement} */ (element("button", "primary", key ? "Save" : "Make the key"));
  save.type = "submit";
  const wrong = element("p", "wrong");
  wrong.setAttribute("role", "alert");
  const box = dialog(key ? `Change ${key.name}` : "New key", form);
  if (!key && list?.open) form.append(element("p", "", "This is the first key: from then on the gateway answers only requests with a key."));
  form.append(fields, wrong, element("div", "ends", button("Cancel", () => box.close()), save));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    save.disabled = true;
    try {
      await send(key, form);
      box.close();
      await refresh();
    } catch (error) {
      complain(form, wrong, error);
    } finally {
      save.disabled = false;
    }
  });
  /** @type {HTMLElement} */ (form.elements[0]).focus();
}

/** @param {Key|null} key @param {HTMLFormElement} form */
async function send(key, form) {
  /** @type {Record<string, any>} */
  const wish = {};
  for (const [name] of FIELDS) {
    const input = /** @type {HTMLInputElement|HTMLSelectElement} */ (form.elements.namedItem(name));
    if (input instanceof HTMLInputElement && input.type === "checkbox") {
      if (input.checked !== (key?.may_race ?? false)) wish[name] = input.checked;
    } else if (input.value !== shown(key, name) || (!key && name === "name")) wish[name] = meant(name, input.value);
  }
  if (key) {
    await order("PATCH", `/api/keys/${encodeURIComponent(key.id)}`, wish, { "if-match": key.version });
    return;
  }
  const made = await order("POST", "/api/keys", wish);
  showSecret(made.secret, made.key.name);
}

/** @param {HTMLFormElement} form @param {HTMLElement} wrong @param {unknown} error */
function complain(form, wrong, error) {
  for (const one of form.querySelectorAll("[aria-invalid]")) one.removeAttribute("aria-invalid");
  for (const one of form.querySelectorAll("label .wrong")) one.textContent = "";
  const words = error instanceof Error && error.message ? error.message : "The console does not answer.";
  const input = error instanceof Refused && error.field ? form.elements.namedItem(error.field) : null;
  wrong.textContent = input ? "" : words;
  if (input instanceof HTMLElement && error instanceof Refused) {
    byId(`wrong-${error.field}`).textContent = words;
    input.setAttribute("aria-invalid", "true");
    input.focus();
  }
}

/** Show a new key, this once. @param {string} secret @param {string} name */
function showSecret(secret, name) {
  const text = element("code", "secret", secret);
  const copy = button("Copy", async () => {
    await navigator.clipboard.writeText(secret);
    copy.textContent = "Copied";
  });
  const done = button("I have stored it", () => box.close());
  done.className = "primary";
  const box = dialog(`The key of ${name}`, element("p", "", "This is the only time that it is shown: only its hash is kept."), text, element("div", "ends", copy, done));
  box.addEventListener("cancel", (event) => event.preventDefault());
  box.addEventListener("close", () => text.replaceChildren());
}

/** @param {Key} key */
function end(key) {
  const form = /** @type {HTMLFormElement} */ (element("form", ""));
  const typed = document.createElement("input");
  typed.autocomplete = "off";
  typed.setAttribute("aria-label", "The name of the key");
  const revoke = /** @type {HTMLButtonElement} */ (element("button", "danger", "Revoke for good"));
  revoke.type = "submit";
  revoke.disabled = true;
  typed.addEventListener("input", () => {
    revoke.disabled = typed.value !== key.name;
  });
  const wrong = element("p", "wrong");
  wrong.setAttribute("role", "alert");
  const box = dialog(`Revoke ${key.name}?`, form);
  form.append(
    element("p", "", "Its requests are refused from then on, and it cannot be brought back. Its records stay. Type its name to revoke it:"),
    element("pre", "", key.name), typed, wrong, element("div", "ends", button("Cancel", () => box.close()), revoke),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (revoke.disabled) return;
    try {
      await order("POST", `/api/keys/${encodeURIComponent(key.id)}/revoke`);
      box.close();
      await refresh();
    } catch (error) {
      wrong.textContent = error instanceof Error ? error.message : "The console does not answer.";
    }
  });
  typed.focus();
}

// Spend

/** @param {any} told */
function drawSpend(told) {
  /** @type {Map<string, number>} */
  const totals = new Map();
  for (const one of told.rows) totals.set(one.group, (totals.get(one.group) ?? 0) + Number(one.cost_usd) + Number(one.loser_cost_usd));
  const groups = [...totals].sort((a, b) => b[1] - a[1]).map(([group]) => group);
  const first = Date.parse(told.since);
  const count = Math.max(1, Math.ceil((Date.parse(told.until) - first) / 86_400_000));
  const days = Array.from({ length: count }, (_, at) => new Date(first + at * 86_400_000).toISOString().slice(0, 10));
  const lost = told.rows.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + Number(one.loser_cost_usd), 0);
  const only = told.budgets[0];
  const of = only ? ` of ${only.name}` : "";
  const bound = told.searched_to ? ` Counted from single requests back to ${clock(told.searched_to)} UTC.` : "";
  byId("spend-title").textContent = `Spend by day and ${told.by}${of}`;
  const note = byId("spend-note");
  note.replaceChildren(`${dollars(told.total_usd)} in ${whole(count)} days (UTC), ${dollars(lost)} of it for losers of races and hedges.${bound}${told.by === "tag" ? " A request with several tags counts for each." : ""} `);
  if (only) {
    const all = /** @type {HTMLAnchorElement} */ (element("a", "", "All keys"));
    all.href = location.pathname;
    note.append(all);
  }
  const box = byId("spend");
  if (!told.rows.length) {
    box.replaceChildren(element("p", "soft", "Nothing was spent in this time."));
    return;
  }
  box.replaceChildren(bars(told, days, groups, only), legend(groups, totals), table(told));
}

/** @param {any} told @param {string[]} days @param {string[]} groups @param {any} only */
function bars(told, days, groups, only) {
  const stacks = new Map(days.map((day) => [day, /** @type {number[]} */ ([0, 0, 0, 0, 0])]));
  for (const one of told.rows) {
    const stack = stacks.get(one.day);
    if (stack) stack[Math.min(4, groups.indexOf(one.group))] += Number(one.cost_usd) + Number(one.loser_cost_usd);
  }
  const limit = only?.budget_usd && only.budget_period === "day" ? Number(only.budget_usd) : 0;
  const most = Math.max(limit, ...[...stacks.values()].map((stack) => stack.reduce((a, b) => a + b, 0))) || 1;
  const words = `Spend by day from ${days[0]} to ${days.at(-1)}, up to ${money(most, 4)} dollars; the table below has the numbers.`;
  const place = element("div", "");
  const draw = () => {
    const right = Math.max(place.clientWidth, 240);
    const [from, foot] = [Date.parse(days[0]), PLOT.height - PLOT.bottom];
    const y = linear(most * 1.06, [foot, PLOT.top], 4);
    const step = (right - PLOT.left) / days.length;
    const x = (/** @type {number} */ time) => PLOT.left + (step * (time - from)) / DAY_MS;
    const picture = svg("svg", { width: right, height: PLOT.height, class: "days", role: "img" }, svg("title", {}, words), ...upAxis(y, [PLOT.left, right], dollars));
    for (const tick of timeTicks(from, from + days.length * DAY_MS - 1, Math.max(2, Math.floor((right - PLOT.left) / 64)), DAY_MS)) picture.append(svg("text", { x: x(tick.at + DAY_MS / 2), y: PLOT.height - 6, class: "tick middle" }, tick.text));
    for (const day of days) {
      let below = 0;
      stacks.get(day)?.forEach((value, series) => {
        if (value <= 0) return;
        const name = series < 4 ? groups[series] : "others";
        picture.append(svg("rect", { class: `s${series}`, x: x(Date.parse(day)) + step * 0.1, y: y.at(below + value), width: step * 0.8, height: y.at(below) - y.at(below + value) }, svg("title", {}, `${day} ${name}: ${dollars(value)}`)));
        below += value;
      });
    }
    if (limit) picture.append(svg("line", { class: "limit", x1: PLOT.left, x2: right, y1: y.at(limit), y2: y.at(limit) }, svg("title", {}, `budget: ${usd(limit, 2)} a day`)));
    place.replaceChildren(picture);
  };
  onWidth(place, draw);
  return element("div", "", ...(limit ? [element("p", "soft", `The dashed line is the budget, ${usd(limit, 2)} a day.`)] : []), place);
}

/** @param {string[]} groups @param {Map<string, number>} totals */
function legend(groups, totals) {
  const shownGroups = groups.slice(0, 4).map((group, at) => [group, totals.get(group) ?? 0, at]);
  const rest = groups.slice(4).reduce((sum, group) => sum + (totals.get(group) ?? 0), 0);
  if (groups.length > 4) shownGroups.push([`${groups.length - 4} others`, rest, 4]);
  return element("ul", "key-list", ...shownGroups.map(([group, spent, at]) => element("li", "", svg("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" }, svg("rect", { class: `s${at}`, width: 12, height: 12, rx: 2 })), `${group} ${dollars(Number(spent))}`)));
}

/** @param {any} told */
function table(told) {
  const heads = ["day (UTC)", told.by, "requests", "dollars", "for losers"].map((words, at) => {
    const head = /** @type {HTMLTableCellElement} */ (element("th", at < 2 ? "left" : "", words));
    head.scope = "col";
    return head;
  });
  const rows = told.rows.map((/** @type {any} */ one) => element("tr", "", cell(one.day, "left"), cell(one.group, "left error", one.group), cell(whole(one.requests)), cell(money(one.cost_usd, 6)), cell(money(one.loser_cost_usd, 6))));
  const made = element("table", "board small", element("thead", "", element("tr", "", ...heads)), element("tbody", "", ...rows.reverse()));
  return element("details", "words", element("summary", "", "As a table"), scrolled(made, "Spend by day"));
}

async function refresh() {
  offerCsv(`/api/keys.csv?${picked("state")}`);
  const spend = picked("from", "to", "key", "by");
  /** @type {HTMLAnchorElement} */ (byId("spend-csv")).href = `/api/spend.csv?${spend}`;
  try {
    const [keys, days] = await Promise.all([ask("/api/keys", picked("state")), ask("/api/spend", spend)]);
    list = keys;
    draw();
    drawSpend(days);
  } catch (error) {
    failed(error, refresh);
  }
}

async function begin() {
  try {
    if (!(await signedIn("Keys and what they spend"))) return;
  } catch (error) {
    failed(error, begin);
    return;
  }
  byId("new").addEventListener("click", () => edit(null));
  onKey("n", "make a key", () => edit(null));
  onKey("x", "spend of all keys", () => {
    setParameter("key", "");
    refresh();
  });
  walkRows(byId("rows"));
  bindFilters(refresh);
  await refresh();
}

begin();
