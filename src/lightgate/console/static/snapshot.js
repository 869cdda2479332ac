// A view as a file: one HTML page without scripts, or a picture of it. Both are made of what is on the screen.

const SCALE = 2;
const POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/** What is shown now, as a copy that needs nothing else: no scripts, no fields, no links to this host. */
async function frozen() {
  const main = /** @type {HTMLElement} */ (document.querySelector("main"));
  const copy = /** @type {HTMLElement} */ (main.cloneNode(true));
  const was = [...main.querySelectorAll("canvas")];
  [...copy.querySelectorAll("canvas")].forEach((one, at) => {
    const picture = document.createElement("img");
    picture.src = was[at].toDataURL();
    picture.width = was[at].clientWidth;
    picture.height = was[at].clientHeight;
    picture.alt = was[at].getAttribute("aria-label") ?? "";
    one.replaceWith(picture);
  });
  for (const one of copy.querySelectorAll("[hidden], script, link, noscript, dialog, datalist, .filters, .tools, form, #live")) one.remove();
  for (const link of copy.querySelectorAll("a, button")) {
    const plain = link instanceof SVGElement ? document.createElementNS(link.namespaceURI ?? "", "g") : document.createElement("span"); // a span would end the picture
    plain.setAttribute("class", link.getAttribute("class") ?? "");
    plain.append(...link.childNodes);
    link.replaceWith(plain);
  }
  const note = document.createElement("p");
  note.className = "soft";
  note.textContent = [`Lightgate, saved at ${new Date().toISOString().slice(0, 19).replace("T", " ")} UTC`, ...filters()].join(" · ");
  copy.querySelector(".head")?.after(note);
  const sheets = [...document.querySelectorAll("link[rel=stylesheet]")].map((one) => /** @type {HTMLLinkElement} */ (one).href);
  const texts = await Promise.all(sheets.map(async (one) => (await fetch(one, { credentials: "same-origin" })).text()));
  return { copy, css: texts.join("\n") };
}

/** The filters in force, in words. */
function filters() {
  const form = /** @type {HTMLFormElement|null} */ (document.getElementById("filters"));
  if (!form) return [];
  return [...form.querySelectorAll("label")].flatMap((label) => {
    const field = label.querySelector("input, select");
    const name = [...label.childNodes].filter((one) => one instanceof Text).map((one) => one.textContent?.trim()).join("");
    if (field instanceof HTMLSelectElement) return [`${name} ${field.selectedOptions[0]?.textContent ?? ""}`];
    if (field instanceof HTMLInputElement && field.type === "checkbox") return field.checked ? [name] : [];
    if (field instanceof HTMLInputElement && field.type === "radio") return field.checked && field.value ? [`${label.closest("fieldset")?.querySelector("legend")?.textContent ?? ""} ${name}`] : [];
    const values = field ? new URLSearchParams(location.search).getAll(field.name).filter(Boolean) : []; // a name may be given several times
    return values.length ? [`${name} ${values.join(", ")}`] : [];
  });
}

/** Rows as CSV; a text that a spreadsheet would take for a formula has an apostrophe before it. @param {(string|number|null|undefined)[][]} rows */
export function sheet(rows) {
  const cell = (/** @type {string|number|null|undefined} */ value) => {
    const text = String(value ?? "");
    const inert = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(inert) ? `"${inert.replaceAll('"', '""')}"` : inert;
  };
  return rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

/** @param {string} kind */
export function fileName(kind) {
  const page = location.pathname.replaceAll("/", "-").replace(/^-+/, "") || "board";
  return `lightgate-${page}-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.${kind}`;
}

/** @param {Blob} blob @param {string} name */
function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export async function exportHtml() {
  const { copy, css } = await frozen();
  const box = document.createElement("div");
  box.append(copy);
  const head = [
    '<meta charset="utf-8">', `<meta http-equiv="content-security-policy" content="${POLICY}">`,
    '<meta name="viewport" content="width=device-width, initial-scale=1">', '<meta name="color-scheme" content="light dark">',
    `<title>${document.title}</title>`, `<style>${css}</style>`,
  ];
  const text = `<!doctype html>\n<html lang="en"><head>${head.join("\n")}</head><body class="${document.body.className}">${box.getHTML()}</body></html>\n`;
  save(new Blob([text], { type: "text/html" }), fileName("html"));
}

export async function exportPng() {
  const main = /** @type {HTMLElement} */ (document.querySelector("main"));
  const { copy, css } = await frozen();
  const width = main.clientWidth;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const body = document.createElement("div");
  body.className = `snapshot ${document.body.className}`;
  body.append(copy);
  document.body.append(body);
  const height = Math.ceil(body.getBoundingClientRect().height);
  body.remove();
  const inner = `<style xmlns="http://www.w3.org/1999/xhtml"><![CDATA[${css}]]></style>${new XMLSerializer().serializeToString(body)}`;
  const source = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" color-scheme="${dark ? "dark" : "light"}"><foreignObject width="100%" height="100%">${inner}</foreignObject></svg>`;
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(source)}`;
  await picture.decode();
  const canvas = document.createElement("canvas");
  canvas.width = width * SCALE;
  canvas.height = height * SCALE;
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  pen.fillStyle = getComputedStyle(document.body).backgroundColor;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.scale(SCALE, SCALE);
  pen.drawImage(picture, 0, 0);
  canvas.toBlob((blob) => blob && save(blob, fileName("png")), "image/png");
}
