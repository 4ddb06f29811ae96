// Making elements. What is shown is always text: nothing that comes from a member is ever read as markup.

/** An element: `make("button.main", {type: "button", onclick: go}, "Go", otherElement)`. */
export function make(what, attributes = {}, ...content) {
  const [name, ...classes] = what.split(".");
  const element = document.createElement(name);
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key in element && typeof value !== "string") element[key] = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...content.filter((one) => one !== null && one !== undefined && one !== false));
  return element;
}

export const count = (number) => (number ?? 0).toLocaleString("en");

export function bytes(number) {
  if (number === null || number === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let power = 0;
  while (number >= 1000 && power < units.length - 1) { number /= 1000; power++; }
  return `${power && number < 100 ? number.toFixed(1) : Math.round(number)} ${units[power]}`;
}

export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");
export const card = (figure, name, mood = "") =>
  make(`div.card${mood && `.${mood}`}`, {}, make("b", {}, String(figure)), make("span", {}, name));

/** A table of many rows: filtered, sorted, a page at a time. Columns: {title, value(row), show(row)?, number?, left?}. */
export class Rows {
  constructor({ columns, empty, sort = null, down = false, size = 50, filter = "Filter", caption }) {
    Object.assign(this, { columns, empty, sort, down, size, caption });
    this.rows = [];
    this.page = 0;
    this.search = make("input", { type: "search", placeholder: filter, "aria-label": `${filter}: ${caption}` });
    this.search.addEventListener("input", () => { this.page = 0; this.render(); });
    this.extra = make("span");
    this.head = make("tr");
    this.body = make("tbody");
    this.table = make("table.stacked", { "aria-label": caption }, make("thead", {}, this.head), this.body);
    this.pages = make("div.pages");
    this.none = make("p.empty", { hidden: true });
    this.tools = make("div.tools", {}, this.search, this.extra);
    this.element = make("div", {}, this.tools, make("div.rows", {}, this.table), this.none, this.pages);
    this.back = make("button", { type: "button", onclick: () => this.turn(-1) }, "Back");
    this.next = make("button", { type: "button", onclick: () => this.turn(1) }, "Next");
    this.where = make("span");
    this.pages.append(this.back, this.next, this.where);
    this.heads();
  }

  heads() {
    this.head.replaceChildren(...this.columns.map((column) => {
      const sorted = this.sort === column.title ? (this.down ? "descending" : "ascending") : null;
      const button = make("button", { type: "button", onclick: () => this.by(column) },
        column.title, sorted ? (this.down ? " ↓" : " ↑") : "");
      return make(`th${column.number && !column.left ? ".number" : ""}`, { scope: "col", "aria-sort": sorted }, column.value ? button : column.title);
    }));
  }

  by(column) {
    this.down = this.sort === column.title ? !this.down : Boolean(column.number);
    this.sort = column.title;
    this.page = 0;
    const place = this.columns.indexOf(column);
    const focused = this.head.contains(document.activeElement);
    this.heads();
    if (focused) this.head.children[place].querySelector("button").focus();
    this.render();
  }

  turn(step) {
    this.page += step;
    this.render();
  }

  set(rows) {
    this.rows = rows;
    this.render();
  }

  found() {
    const wanted = this.search.value.trim().toLowerCase();
    let rows = this.rows;
    if (wanted) {
      rows = rows.filter((row) => this.columns.some(({ value }) => value && String(value(row) ?? "").toLowerCase().includes(wanted)));
    }
    const column = this.columns.find((one) => one.title === this.sort);
    if (column) {
      const sign = this.down ? -1 : 1;
      const compare = column.number
        ? (a, b) => (column.value(a) ?? -1) - (column.value(b) ?? -1)
        : (a, b) => { const x = String(column.value(a)), y = String(column.value(b)); return x < y ? -1 : x > y ? 1 : 0; };
      rows = rows.slice().sort((a, b) => sign * compare(a, b));
    }
    return rows;
  }

  render() {
    const rows = this.found();
    const last = Math.max(0, Math.ceil(rows.length / this.size) - 1);
    this.page = Math.max(0, Math.min(this.page, last));
    const begin = this.page * this.size;
    const focused = this.body.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
    this.body.replaceChildren(...rows.slice(begin, begin + this.size).map((row) => make("tr", {}, ...this.columns.map((column) => {
      const shown = column.show ? column.show(row) : String(column.value(row) ?? "–");
      return make(`td${column.number && !column.left ? ".number" : ""}`, { "data-title": column.title }, make("div", {}, shown ?? ""));
    }))));
    if (focused) this.body.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
    this.none.hidden = rows.length > 0;
    this.none.textContent = this.rows.length ? "Nothing fits the filter." : this.empty;
    this.table.hidden = !rows.length;
    this.tools.hidden = (this.search.hidden || !this.rows.length) && !this.extra.childElementCount;
    this.pages.hidden = rows.length <= this.size && this.rows.length <= this.size;
    this.back.disabled = this.page === 0;
    this.next.disabled = this.page === last;
    this.where.textContent = rows.length ? `${count(begin + 1)} to ${count(Math.min(begin + this.size, rows.length))} of ${count(rows.length)}` : "";
  }
}
