// The ranked list of advice, each with its evidence, what gets worse, and how to do and check it.

import { byId, copyLine, element, whole, words } from "./draw.js";
import { offerCsv } from "./shell.js";
import { apiQuery, ask, bindFilters, stumble } from "./state.js";

/** @param {string} name @param {...(Node|string)} inner */
function fact(name, ...inner) {
  return element("div", "", element("dt", "", name), element("dd", "", ...inner));
}

/** @param {any} row */
function requests(row) {
  const links = row.ids.slice(0, 3).map((/** @type {string} */ id, /** @type {number} */ at) => {
    const link = document.createElement("a");
    link.href = `/requests?open=${encodeURIComponent(id)}`;
    link.textContent = `request ${at + 1}`;
    return link;
  });
  return links.flatMap((/** @type {Node} */ link) => [" ", link]);
}

/** The advice that touches the same requests, by its place in the list. @param {any} row @param {any[]} rows */
function others(row, rows) {
  const places = row.excludes.map((/** @type {string} */ id) => 1 + rows.findIndex((one) => one.id === id));
  return [places.map((/** @type {number} */ at, /** @type {number} */ index) => (at ? `advice ${at}` : row.excludes[index])).join(", "), ": they touch the same requests, so what they save cannot be added"];
}

/** @param {any} row @param {any[]} rows all that is offered */
function card(row, rows) {
  const offered = row.state === "advised";
  const made = element("li", "one", element("h2", "", `${row.kind}: ${row.model}`), element("p", "", ...words(row.finding)));
  if (!offered) {
    made.append(element("p", "soft", ...words(`${row.state === "refused" ? "Not offered: " : ""}${row.because}.`)));
    return made;
  }
  const figures = row.figures;
  made.append(
    element("dl", "facts", fact("saves a request", figures["seconds a request"]), fact("saves", figures.dollars.replaceAll("-$", "−$")), fact("effort", row.effort), fact("found by", figures.method), fact("n", whole(row.n))),
    element("dl", "reasons", fact("what gets worse", ...words(row.worse || "nothing that was seen")), ...(row.rehearsed ? [fact("rehearsed", ...words(row.rehearsed))] : []), fact("check it", ...words(`${row.verify}: ${row.expect}`)), fact("evidence", `${whole(row.n)} requests from ${row.since.slice(0, 10)} to ${row.until.slice(0, 10)}, ${row.query}.`, ...requests(row)), ...(row.excludes.length ? [fact("not with", ...others(row, rows))] : [])),
    copyLine(row.apply.trimEnd()),
  );
  return made;
}

async function refresh() {
  const query = apiQuery([]);
  byId("state").className = "soft";
  byId("state").textContent = "Reading the ledger; this takes some seconds…";
  byId("rows").setAttribute("aria-busy", "true");
  try {
    const told = await ask("/api/advice", query);
    offerCsv(`/api/advice.csv?${query}`);
    const ignored = told.ignored.length ? ` Ignored: ${told.ignored.join(", ")}.` : "";
    byId("state").textContent = `${told.title.replaceAll(/(\d)T(\d\d:\d\d)Z/g, "$1 $2")} Times are UTC.${ignored}`;
    byId("rows").replaceChildren(...told.rows.map((/** @type {any} */ row) => card(row, told.rows)));
    byId("means").replaceChildren(...words(told.rows.length ? told.means : ""));
    byId("empty").hidden = told.rows.length > 0;
    const why = told.requests ? "Nothing would surely save 5 % of the seconds or dollars of a model. What was looked at, and why it is not offered, is below." : "There are no requests in this period yet. Advice needs at least 30 of a kind; the command line looks the same way:";
    byId("empty").replaceChildren(element("p", "", why), ...(told.requests ? [] : [copyLine("lightgate advise --last 14d --all")]));
    const others = byId("others");
    others.hidden = !told.others.length;
    others.querySelector("summary")?.replaceChildren(`${whole(told.others.length)} other changes were looked at`);
    others.querySelector("ol")?.replaceChildren(...told.others.map((/** @type {any} */ row) => card(row, told.rows)));
  } catch (error) {
    stumble(error, refresh);
  }
  byId("rows").removeAttribute("aria-busy");
}

bindFilters(refresh);
refresh();
