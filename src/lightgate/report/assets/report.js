// Tooltips only: the page is complete without this. Pointing at a number shows what stands behind
// it; in a table or chart that has the focus, the arrow keys go from number to number.
(() => {
  const tip = document.getElementById("tip");
  const told = new WeakMap();
  let shown = null;

  for (const node of document.querySelectorAll("[title]")) {
    told.set(node, node.getAttribute("title"));
    node.removeAttribute("title");
    node.dataset.told = "";
  }
  for (const title of document.querySelectorAll("svg title")) {
    const node = title.parentElement;
    told.set(node, title.textContent);
    node.setAttribute("aria-label", title.textContent);
    node.dataset.told = "";
    title.remove();
  }

  function hide() {
    if (shown) shown.classList.remove("shown");
    shown = null;
    tip.hidden = true;
  }

  function show(node, mark) {
    hide();
    shown = node;
    if (mark) node.classList.add("shown");
    tip.textContent = told.get(node);
    tip.hidden = false;
    const box = node.getBoundingClientRect();
    const left = Math.min(Math.max(8, box.left + box.width / 2 - tip.offsetWidth / 2), innerWidth - tip.offsetWidth - 8);
    const above = box.top - tip.offsetHeight - 8;
    tip.style.left = `${left}px`;
    tip.style.top = `${above < 8 ? box.bottom + 8 : above}px`;
  }

  document.addEventListener("pointerover", (event) => {
    const node = event.target.closest("[data-told]");
    if (node) show(node, false);
    else hide();
  });
  // What is folded up opens where a link leads into it, and all of it for printing.
  function unfold() {
    const place = location.hash && document.getElementById(location.hash.slice(1));
    if (place) for (const folded of place.querySelectorAll("details.part")) folded.open = true;
  }
  addEventListener("hashchange", unfold);
  unfold();
  addEventListener("beforeprint", () => {
    for (const folded of document.querySelectorAll("details")) folded.open = true;
  });
  document.addEventListener("scroll", hide, { passive: true });
  document.addEventListener("focusout", hide);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hide();
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const place = document.activeElement?.closest(".tips");
    if (!step || !place) return;
    const nodes = [...place.querySelectorAll("[data-told]")];
    if (!nodes.length) return;
    event.preventDefault();
    const at = nodes.indexOf(shown);
    const next = nodes[at < 0 ? (step > 0 ? 0 : nodes.length - 1) : (at + step + nodes.length) % nodes.length];
    next.scrollIntoView({ block: "nearest", inline: "nearest" });
    show(next, true);
  });
})();
