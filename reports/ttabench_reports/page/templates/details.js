// What stands behind a number: shown when it is pointed at or focused, kept open by a click or Enter.

const panel = document.getElementById("detail");
let data = null;
let wanted = null; // what is to be shown as soon as the data are there
let kept = null;

const ready = unpacked(document.getElementById("data").textContent).then((text) => {
  data = JSON.parse(text);
  if (wanted) open(...wanted);
});
const fixed = (value, digits = 1) => (value == null ? "" : value.toFixed(digits).replace("-", "−"));
const signed = (value) => (value == null ? "" : (value > 0 ? "+" : "") + fixed(value));
const day = (seconds) => (seconds == null ? "" : `${new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC`);
const level = (p) => (p == null ? "" : p < 0.001 ? "<0.001" : p.toFixed(3));

// Elements are made with textContent only: nothing of the results is ever read as HTML.
function make(tag, text = "", className = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

function pairs(entries) {
  const list = make("dl");
  for (const [name, value, className] of entries) {
    if (value === "" || value == null) continue;
    list.append(make("dt", name), make("dd", value, className));
  }
  return list;
}

function target(element) {
  const cell = element.closest?.("td");
  const row = cell?.closest("tr[data-r]");
  const table = row?.closest("table[data-detail]");
  if (!table) return null;
  if (table.dataset.detail === "mean") return { cell, row, column: "mean" };
  const at = cell.cellIndex - 2; // after the names of the method and of what it was given
  return at < 0 ? null : { cell, row, column: JSON.parse(table.dataset.columns)[at] };
}

function describe({ cell, row, column }) {
  const { rows, texts, columns } = data;
  const about = rows[Number(row.dataset.r)];
  const fact = (name) => texts[about.facts[name]];
  const cells = about.cells[column] ?? [];
  panel.replaceChildren(make("h4", texts[about.name]));
  panel.append(make("p", `${texts[about.arch]} · ${texts[about.table]} · ${columns[column] ?? column}`, "where"));
  if (column in about.values) panel.append(...mean(about, column));
  if (cells.length === 1) panel.append(...measured(cells[0], texts));
  if (cells.length > 1) panel.append(...seeds(cells, about.sd[column], Number(cell.dataset.v || NaN), texts));
  panel.append(make("hr"), pairs([
    ["Protocol", fact("protocol")],
    ["Settings", settings(fact("config"))],
    ["Source data", fact("source")],
    ["Cost (medians)", fact("cost")],
    ["Images", fact("images")],
    ["Weights", fact("weights"), "hash"],
    ["Data", fact("data"), "hash"],
  ]));
  const link = make("a", "Protocol card");
  link.href = `${about.page}#${texts[about.card]}`;
  panel.append(link);
}

function mean(about, column) {
  const value = about.values[column];
  const big = make("div", value == null ? "no mean" : `${fixed(value, 2)} %`, "big");
  if (column !== "mean") return [big];
  const { interval, rise_interval: rise, wins, ties, losses, p_source, p_best, rank } = about.mean;
  if (interval[0] != null) big.append(make("small", `  95 % [${fixed(interval[0], 2)}, ${fixed(interval[1], 2)}]`));
  return [big, pairs([
    ["Over Source", rise[0] == null ? "" : `95 % [${signed(rise[0])}, ${signed(rise[1])}] points, p ${level(p_source)}`],
    ["Corruptions", wins + ties + losses ? `${wins} won, ${ties} tied, ${losses} lost against Source` : ""],
    ["Against best of its mode", p_best == null ? "" : `p ${level(p_best)}`],
    ["Mean rank", rank == null ? "" : `${fixed(rank)} (descriptive)`],
  ])];
}

const percent = (accuracy) => (accuracy == null ? "no number" : `${fixed(accuracy, 2)} %`);
const between = (low, high) => (low == null ? "" : `[${fixed(low, 2)}, ${fixed(high, 2)}]`);

function measured([seed, accuracy, low, high, seconds, id, when, machine, code, why], texts) {
  const big = make("div", percent(accuracy), "big");
  if (low != null) big.append(make("small", `  95 % ${between(low, high)}`));
  return [big, pairs([
    [accuracy == null ? "Why" : "Note", texts[why], "why"],
    ["Seed", String(seed)],
    ["Seconds", fixed(seconds, 2)],
    ["Stored", day(when)],
    ["Cell", id, "hash"],
    ["Code", texts[code], "hash"],
    ["Machine", texts[machine]],
  ])];
}

// Several seeds: their mean, a line for each, and once what they have in common.
function seeds(cells, sd, mean, texts) {
  const big = make("div", Number.isNaN(mean) ? "no number" : percent(mean), "big");
  if (sd != null) big.append(make("small", `  ± ${fixed(sd, 2)} over seeds`));
  const distinct = (at) => [...new Set(cells.map((cell) => texts[cell[at]]))].join(" / ");
  const lines = cells.flatMap(([seed, accuracy, low, high, seconds, id, when, , , why]) => [
    [`Seed ${seed}`, `${[percent(accuracy), between(low, high)].filter(Boolean).join(" ")}, ${fixed(seconds, 2)} s, ${day(when)}`],
    ["", id, "hash"],
    ["", texts[why], "why"],
  ]);
  return [big, pairs([...lines, ["Code", distinct(8), "hash"], ["Machine", distinct(7)]])];
}

function settings(text) {
  try {
    return Object.entries(JSON.parse(text || "{}")).map(([name, value]) => `${name}=${value}`).join(", ");
  } catch {
    return text;
  }
}

// Beside the cell, so that its row and column stay in sight; narrow screens have it at the bottom, see the style.
function place(cell) {
  const box = cell.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = panel;
  const right = box.right + 10;
  const left = right + width <= innerWidth ? right : Math.max(4, box.left - width - 10);
  panel.style.left = `${left}px`;
  panel.style.top = `${Math.max(4, Math.min(box.top - 20, innerHeight - height - 6))}px`;
}

function open(found, keep = false) {
  close();
  if (!data) return void (wanted = [found, keep]);
  describe(found);
  panel.hidden = false;
  panel.classList.toggle("open", keep);
  found.cell.setAttribute("aria-describedby", "detail");
  if (keep) {
    kept = found.cell;
    kept.classList.add("kept");
    const button = make("button", "✕", "plain close");
    button.type = "button";
    button.setAttribute("aria-label", "Close");
    panel.append(button);
  }
  place(found.cell);
}

function close() {
  panel.hidden = true;
  wanted = null;
  for (const cell of all("[aria-describedby='detail']")) cell.removeAttribute("aria-describedby");
  kept?.classList.remove("kept");
  kept = null;
}

document.addEventListener("mouseover", (event) => {
  if (kept || panel.contains(event.target)) return;
  const found = target(event.target);
  if (found) open(found);
  else if (!target(document.activeElement)) close();
});
document.addEventListener("focusin", (event) => {
  const found = target(event.target);
  if (found && found.cell !== kept) open(found);
});
document.addEventListener("focusout", (event) => {
  if (!kept && target(event.target)) close();
});
document.addEventListener("click", (event) => {
  if (event.target.closest(".close, .detail a")) return close();
  if (panel.contains(event.target)) return;
  const found = event.target.closest("a, button") ? null : target(event.target);
  if (!found) return kept && close();
  if (found.cell === kept) return close();
  enter(found.cell);
  open(found, true);
});
addEventListener("resize", () => kept && place(kept));
addEventListener("scroll", () => !panel.hidden && kept && place(kept), { passive: true, capture: true });

// ---- keyboard: one number of each table can be reached with Tab; arrow keys, Home and End move on from it

const cellsOf = (row) => [...row.cells].filter((cell) => cell.tagName === "TD" && cell.offsetParent && target(cell));

function enter(cell) {
  const table = cell.closest("table");
  for (const other of all("td[tabindex='0']", table)) other.tabIndex = -1;
  cell.tabIndex = 0;
}

// The number that Tab reaches stays in a row that is shown.
function reachable(table) {
  const current = table.querySelector("td[tabindex='0']");
  if (current?.offsetParent) return;
  const rows = all("tbody:not([hidden]) tr[data-r]:not([hidden])", table);
  const first = rows.map((row) => cellsOf(row)[0]).find(Boolean);
  if (first) enter(first);
}

for (const table of all("table[data-detail]")) {
  reachable(table);
  table.addEventListener("filtered", () => reachable(table));
}

function neighbour(cell, key) {
  const row = cell.parentNode;
  const within = cellsOf(row);
  const at = within.indexOf(cell);
  if (key === "Home") return within[0];
  if (key === "End") return within.at(-1);
  if (key === "ArrowLeft") return within[at - 1];
  if (key === "ArrowRight") return within[at + 1];
  const rows = all("tbody:not([hidden]) tr[data-r]:not([hidden])", row.closest("table"));
  const next = rows[rows.indexOf(row) + (key === "ArrowDown" ? 1 : -1)];
  return next && cellsOf(next)[at];
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !panel.hidden) return close();
  const found = target(event.target);
  if (!found || event.target !== found.cell) return;
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    if (kept === found.cell) close();
    else open(found, true);
  } else if (/^(Arrow|Home$|End$)/.test(event.key)) {
    const next = neighbour(found.cell, event.key);
    event.preventDefault();
    if (!next) return;
    close();
    enter(next);
    next.focus();
  }
});
