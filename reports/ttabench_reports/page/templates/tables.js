// Tables that sort and filter. Without this script they are plain tables, complete and in order.
"use strict";

const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];

// What the page holds packed: gzip in base64.
const unpacked = async (text) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
};

// ---- sorting: within each group of rows, by the number in data-v (data-i for increases), else by the text

function valueOf(row, column, kind) {
  const cell = row.children[column];
  if (kind === "text") return cell.textContent.trim();
  const increase = row.closest("table").dataset.shows === "increase" && "v" in cell.dataset;
  const text = increase ? (cell.dataset.i ?? "").replace("−", "-") : cell.dataset.v ?? cell.textContent;
  return text.trim() === "" ? NaN : Number(text);
}

function sortBy(head) {
  const table = head.closest("table");
  const column = [...head.parentNode.children].indexOf(head);
  const kind = head.dataset.sort;
  const first = kind === "number" ? "descending" : "ascending";
  const other = first === "ascending" ? "descending" : "ascending";
  const order = head.getAttribute("aria-sort") === first ? other : first;
  for (const each of all("th[aria-sort]", table)) each.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const words = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  for (const body of table.tBodies) {
    const rows = [...body.rows].filter((row) => !row.classList.contains("group"));
    const keyed = rows.map((row, at) => [valueOf(row, column, kind), at, row]);
    keyed.sort(([a, i], [b, j]) => {
      if (kind === "text") return sign * words.compare(a, b) || i - j;
      if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b) || i - j; // last
      return sign * (a - b) || i - j;
    });
    body.append(...keyed.map(([, , row]) => row));
  }
}

document.addEventListener("click", (event) => {
  const head = event.target.closest("th[data-sort]");
  if (head) sortBy(head);
});

// ---- filters: a row shows if it, its group or its section has each chosen value

const form = document.getElementById("filters");

function filter() {
  const values = Object.fromEntries([...new FormData(form)].map(([k, v]) => [k, v.trim().toLowerCase()]));
  const asked = Object.entries(values).filter(([, value]) => value);
  let shown = 0;
  let total = 0;
  for (const table of all("table.sortable")) {
    const section = table.closest("section");
    let left = 0;
    for (const body of table.tBodies) {
      let here = 0;
      for (const row of body.rows) {
        if (row.classList.contains("group")) continue;
        const about = { ...section.dataset, ...body.dataset, ...row.dataset };
        const reference = row.classList.contains("reference");
        row.hidden = !asked.every(([name, value]) => passes(about, name, value, reference));
        here += !row.hidden;
        total += table.matches(".means");
        shown += table.matches(".means") && !row.hidden;
      }
      body.hidden = !here;
      left += here;
    }
    if (section.classList.contains("one")) section.hidden = !left;
    table.dispatchEvent(new Event("filtered"));
  }
  for (const card of all("details.card")) {
    card.hidden = Boolean(values.text) && !card.dataset.text.toLowerCase().includes(values.text);
  }
  document.getElementById("shown").textContent = `${shown.toLocaleString("en")} of ${total.toLocaleString("en")} rows`;
}

function passes(about, name, value, reference) {
  const kept = reference && ["text", "mode", "source", "cost"].includes(name);
  const own = about[name];
  if (kept || own === undefined) return true;
  if (name === "text") return own.toLowerCase().includes(value);
  if (name === "cost") return own !== "" && Number(own) <= Number(value);
  return own.toLowerCase() === value;
}

// ---- blocks: the dataset, the network and the protocol of a row; one block is shown at first

const CHOICES = ["table", "arch", "protocol"].map((name) => form?.elements[name]).filter(Boolean);
const blocks = all(".means tr[data-r]").map((row) => ({ ...row.closest("tbody").dataset, ...row.dataset }));
const has = (block, choices) => choices.every(({ name, value }) => !value || block[name] === value);

// A choice that no row has together with the one just made gives way to one that there is.
function agree(changed) {
  if (!CHOICES.includes(changed) || blocks.some((block) => has(block, CHOICES))) return;
  const found = blocks.find((block) => has(block, [changed]));
  for (const choice of CHOICES) if (choice !== changed && choice.value) choice.value = found[choice.name];
}

// What a reader on paper, who sees no controls, has to know.
function say() {
  const chosen = CHOICES.filter(({ value }) => value);
  for (const place of all(".means .choice")) {
    const words = chosen.map((choice) => choice.selectedOptions[0].text);
    place.textContent = words.length ? `: ${words.join("; ")}` : "";
  }
  const single = ["table", "arch"].every((name) => !form.elements[name] || form.elements[name].value);
  for (const table of all(".means:not(.leaderboard)")) table.classList.toggle("single", single);
}

function refresh(event) {
  agree(event?.target);
  filter();
  say();
}

if (form) {
  form.hidden = false;
  form.addEventListener("input", refresh);
  form.addEventListener("change", refresh);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(refresh));
  refresh();
}

// ---- plots

for (const figure of all("figure[data-drawing]")) {
  unpacked(figure.dataset.drawing).then((drawing) => {
    const image = new Image();
    image.alt = figure.dataset.title;
    image.src = `data:image/svg+xml,${encodeURIComponent(drawing)}`;
    figure.prepend(image);
  });
}

// ---- accuracy or increase, shades, light or dark

for (const panel of all(".switches")) {
  panel.hidden = false;
  panel.addEventListener("change", (event) => {
    const { name, value, checked } = event.target;
    for (const table of all("table.corruptions")) {
      if (name === "shade") table.classList.toggle("shaded", checked);
      if (name === "shows") show(table, value);
    }
  });
}

function show(table, what) {
  table.dataset.shows = what;
  for (const cell of all("td[data-v]:not([data-v=''])", table)) {
    const text = cell.firstChild;
    cell.dataset.a ??= text.data;
    text.data = what === "increase" ? cell.dataset.i ?? "–" : cell.dataset.a; // Source has no increase
  }
}

const theme = document.getElementById("theme");
theme.hidden = false;
theme.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

// ---- a card that is linked to opens

function openTarget() {
  const card = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (card && card.matches("details")) {
    card.hidden = false;
    card.open = true;
    card.scrollIntoView();
  }
}
addEventListener("hashchange", openTarget);
openTarget();
