// Pictures of who owns which partition, now and over time; shared by the console and the report of the demo.
// Nothing here knows where its data is from: a story is {base, changes, members, begin, end, marks}.

const COLOURS = 12;
const FONT = '12px system-ui, "Segoe UI", "Helvetica Neue", Arial, "Liberation Sans", sans-serif';

/** The colour of a member, by its place among the members; -1 is nobody. */
export const colourName = (place) => (place < 0 ? "--nobody" : `--m${place % COLOURS}`);

/** For each partition, its owners one after the other: [{owner, begin, end}]. */
export function stretches(base, changes, begin, end) {
  const lines = base.map((row) => [{ owner: row[0] ?? -1, begin, end }]);
  for (const [at, partition, row] of changes) {
    const line = lines[partition];
    const last = line[line.length - 1];
    const owner = row[0] ?? -1;
    if (owner === last.owner) continue;
    const when = Math.min(Math.max(at, begin), end);
    last.end = when;
    line.push({ owner, begin: when, end });
  }
  return lines;
}

/** The rows of the table as they were at a time. */
export function rowsAt(base, changes, at) {
  const rows = base.slice();
  for (const [when, partition, row] of changes) {
    if (when > at) break;
    rows[partition] = row;
  }
  return rows;
}

/** Lines with the same story lie together: by owners, then by times. */
export function order(lines) {
  const places = lines.map((_, partition) => partition);
  const compare = (a, b) => {
    const most = Math.min(a.length, b.length);
    for (let i = 0; i < most; i++) if (a[i].owner !== b[i].owner) return a[i].owner - b[i].owner;
    if (a.length !== b.length) return a.length - b.length;
    for (let i = 0; i < most; i++) if (a[i].begin !== b[i].begin) return a[i].begin - b[i].begin;
    return 0;
  };
  return places.sort((a, b) => compare(lines[a], lines[b]) || a - b);
}

/** A canvas that keeps sharp at every width, follows light and dark, and shows a word where the pointer is. */
export class Picture {
  constructor(host, { height, label, draw, hover = () => null, keys = null }) {
    Object.assign(this, { host, height, draw, hover, keys });
    host.classList.add("picture");
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", label);
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    this.probe = document.createElement("span");
    this.probe.hidden = true;
    host.append(this.canvas, this.tip, this.probe);
    this.canvas.addEventListener("pointermove", (event) => this.point(event.offsetX, event.offsetY));
    this.canvas.addEventListener("pointerdown", (event) => this.point(event.offsetX, event.offsetY));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    if (keys) this.listen();
    this.redraw = this.redraw.bind(this);
    new ResizeObserver(this.redraw).observe(host);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", this.redraw);
    addEventListener("holdfast-theme", this.redraw);
  }

  listen() {
    this.canvas.tabIndex = 0;
    this.tip.setAttribute("aria-live", "polite");
    this.canvas.addEventListener("keydown", (event) => {
      const spot = this.keys(event.key);
      if (!spot) return;
      event.preventDefault();
      this.point(spot.x, spot.y);
    });
    this.canvas.addEventListener("blur", () => this.leave());
  }

  colour(name) {
    this.known ??= new Map();
    if (!this.known.has(name)) {
      this.probe.style.color = `var(${name})`;
      this.known.set(name, getComputedStyle(this.probe).color);
    }
    return this.known.get(name);
  }

  redraw() {
    const width = this.host.clientWidth;
    if (!width) return;
    const height = typeof this.height === "function" ? this.height(width) : this.height;
    const ratio = devicePixelRatio || 1;
    this.known = new Map();
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = FONT;
    this.draw(pen, width, height, (name) => this.colour(name));
  }

  point(x, y) {
    const words = this.hover(x, y);
    this.tip.hidden = !words;
    if (!words) return;
    this.tip.textContent = words;
    const room = this.host.clientWidth - this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(room, x + 14))}px`;
    this.tip.style.top = `${y + 16}px`;
  }

  leave() {
    this.tip.hidden = true;
  }
}

const LEFT = 54;
const RIGHT = 8;
const MARK_ROWS = 3;
const STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800];

/** Where times are, between the two edges of a picture. */
export class TimeScale {
  constructor(begin, end, width, left = LEFT) {
    Object.assign(this, { begin, end: Math.max(end, begin + 1), left, width: width - left - RIGHT });
  }
  x(at) {
    return this.left + (Math.min(Math.max(at, this.begin), this.end) - this.begin) / (this.end - this.begin) * this.width;
  }
  at(x) {
    return this.begin + (x - this.left) / this.width * (this.end - this.begin);
  }
  ticks() {
    const span = (this.end - this.begin) / 1000;
    const most = Math.max(2, this.width / 90);
    const step = STEPS.find((size) => span / size <= most) ?? span;
    const found = [];
    for (let at = 0; at <= span; at += step) found.push([this.begin + at * 1000, step]);
    return found;
  }
}

/** A time span in words: `12 s`, `3 min`, `2 h`. */
export function span(ms) {
  const seconds = ms / 1000;
  if (seconds < 1 && seconds > 0) return `${Math.round(ms)} ms`;
  if (seconds < 120) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 7200) return `${Number((seconds / 60).toFixed(1))} min`;
  return `${Number((seconds / 3600).toFixed(1))} h`;
}

function axis(pen, scale, bottom, colour, words) {
  pen.fillStyle = colour("--quiet");
  pen.strokeStyle = colour("--line");
  pen.textAlign = "center";
  let last = -Infinity;
  for (const [at] of scale.ticks()) {
    const x = scale.x(at);
    pen.beginPath();
    pen.moveTo(x, bottom);
    pen.lineTo(x, bottom + 5);
    pen.stroke();
    const text = words(at);
    const half = pen.measureText(text).width / 2;
    const middle = Math.min(Math.max(x, half), scale.left + scale.width + RIGHT - half);
    if (middle - half < last + 8) continue;
    pen.fillText(text, middle, bottom + 18);
    last = middle + half;
  }
}

function rotated(pen, text, x, middle, colour) {
  pen.save();
  pen.translate(x, middle);
  pen.rotate(-Math.PI / 2);
  pen.textAlign = "center";
  pen.fillStyle = colour("--quiet");
  pen.fillText(text, 0, 0);
  pen.restore();
}

/** Where the words of marks are: each in the lowest line that is free; for those that find none there are none. */
function placeMarks(pen, scale, marks) {
  const ends = [];
  const placed = [];
  for (const mark of marks) {
    if (mark.at < scale.begin || mark.at > scale.end) continue;
    const wide = pen.measureText(mark.text).width;
    const left = Math.max(0, Math.min(scale.x(mark.at) + 3, scale.left + scale.width + RIGHT - wide));
    let row = ends.findIndex((end) => left > end + 8);
    if (row < 0 && ends.length < MARK_ROWS) row = ends.push(-Infinity) - 1;
    if (row >= 0) ends[row] = left + wide;
    placed.push({ mark, left, row });
  }
  return { placed, rows: ends.length };
}

/** Draw what happened to the cluster, as lines from top to bottom with words above. */
function drawMarks(pen, scale, placed, top, bottom, colour) {
  pen.textAlign = "left";
  for (const { mark, left, row } of placed) {
    const x = scale.x(mark.at);
    pen.strokeStyle = pen.fillStyle = colour(mark.alarm ? "--bad" : "--ink");
    pen.setLineDash([4, 3]);
    pen.beginPath();
    pen.moveTo(x, top - 4);
    pen.lineTo(x, bottom);
    pen.stroke();
    pen.setLineDash([]);
    if (row >= 0) pen.fillText(mark.text, left, top - 8 - row * 15);
  }
}

/** Who owned which partition over time: a line for each, in the colour of its owner. */
export class OwnershipOverTime {
  constructor(host, { height = 380, clock = (at, begin) => span(at - begin) } = {}) {
    this.clock = clock;
    this.story = null;
    this.cursor = null;
    this.picture = new Picture(host, {
      height: (width) => (width < 500 ? Math.min(height, 300) : height),
      label: "Owners of the partitions over time",
      draw: (pen, width, high, colour) => this.draw(pen, width, high, colour),
      hover: (x, y) => this.words(x, y),
    });
  }

  show(story) {
    this.story = story;
    this.lines = stretches(story.base, story.changes, story.begin, story.end);
    this.order = order(this.lines);
    this.picture.redraw();
  }

  at(time) {
    this.cursor = time;
    this.picture.redraw();
  }

  draw(pen, width, height, colour) {
    if (!this.story) return;
    const { story, lines } = this;
    this.scale = new TimeScale(story.begin, story.end, width);
    const { placed, rows } = placeMarks(pen, this.scale, story.marks ?? []);
    this.top = 8 + rows * 15;
    this.bottom = height - 26;
    const step = (this.bottom - this.top) / Math.max(1, lines.length);
    this.step = step;
    const paths = new Map();
    this.order.forEach((partition, place) => {
      for (const part of lines[partition]) {
        const left = this.scale.x(part.begin);
        const wide = this.scale.x(part.end) - left;
        if (wide <= 0) continue;
        if (!paths.has(part.owner)) paths.set(part.owner, new Path2D());
        paths.get(part.owner).rect(left, this.top + place * step, wide, Math.max(step, 0.6) + 0.15);
      }
    });
    for (const [owner, path] of paths) {
      pen.fillStyle = colour(colourName(owner));
      pen.fill(path);
    }
    pen.strokeStyle = colour("--line");
    pen.strokeRect(LEFT, this.top, this.scale.width, this.bottom - this.top);
    rotated(pen, `${lines.length} partitions`, LEFT - 14, (this.top + this.bottom) / 2, colour);
    axis(pen, this.scale, this.bottom, colour, (at) => this.clock(at, story.begin));
    drawMarks(pen, this.scale, placed, this.top, this.bottom, colour);
    if (this.cursor !== null) {
      const x = this.scale.x(this.cursor);
      pen.fillStyle = colour("--ink");
      pen.fillRect(x - 1, this.top - 4, 2, this.bottom - this.top + 8);
    }
  }

  words(x, y) {
    if (!this.story || !this.scale || y < this.top || y >= this.bottom || x < LEFT || x > LEFT + this.scale.width) return null;
    const partition = this.order[Math.floor((y - this.top) / this.step)];
    const at = this.scale.at(x);
    const part = this.lines[partition]?.findLast((one) => one.begin <= at);
    if (!part) return null;
    const { members, begin } = this.story;
    const who = part.owner < 0 ? "nobody" : members[part.owner].name;
    const from = this.clock(part.begin, begin);
    return `partition ${partition}: ${who}\nfrom ${from} to ${this.clock(part.end, begin)}`;
  }
}

/** Who owns which partition at one time: a square for each. */
export class OwnershipNow {
  constructor(host) {
    this.rows = [];
    this.chosen = -1;
    this.picture = new Picture(host, {
      height: (width) => this.measure(width),
      label: "Owners of the partitions; arrow keys go from one to the next",
      draw: (pen, width, height, colour) => this.draw(pen, width, height, colour),
      hover: (x, y) => this.words(this.find(x, y)),
      keys: (key) => this.go(key),
    });
  }

  show(rows, members, only = -1) {
    Object.assign(this, { rows, members, only });
    this.picture.redraw();
  }

  measure(width) {
    const count = Math.max(1, this.rows.length);
    this.size = Math.max(3, Math.min(22, Math.floor(Math.sqrt(width * 240 / count))));
    this.columns = Math.max(1, Math.floor(width / this.size));
    this.size = width / this.columns;
    return Math.ceil(Math.ceil(count / this.columns) * this.size);
  }

  draw(pen, width, height, colour) {
    const gap = this.size > 7 ? 2 : this.size > 4 ? 1 : 0;
    this.rows.forEach((row, partition) => {
      const place = this.only < 0 ? 0 : row.indexOf(this.only);
      const x = Math.round((partition % this.columns) * this.size);
      const y = Math.round(Math.floor(partition / this.columns) * this.size);
      const side = Math.floor(this.size) - gap;
      pen.globalAlpha = this.only < 0 || place === 0 ? 1 : place > 0 ? 0.45 : 0.1;
      pen.fillStyle = colour(colourName(this.only < 0 ? row[0] ?? -1 : place < 0 ? row[0] ?? -1 : this.only));
      pen.fillRect(x, y, side, side);
      if ((row[0] ?? -1) < 0) {
        pen.globalAlpha = 1;
        pen.strokeStyle = colour("--bad");
        pen.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
      }
      pen.globalAlpha = 1;
      if (partition === this.chosen) {
        pen.strokeStyle = colour("--ink");
        pen.lineWidth = 2;
        pen.strokeRect(x + 1, y + 1, side - 2, side - 2);
        pen.lineWidth = 1;
      }
    });
  }

  find(x, y) {
    const column = Math.floor(x / this.size);
    const partition = Math.floor(y / this.size) * this.columns + column;
    return column < this.columns && partition < this.rows.length ? partition : -1;
  }

  go(key) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns };
    if (!(key in steps) || !this.rows.length) return null;
    this.chosen = Math.max(0, Math.min(this.rows.length - 1, this.chosen < 0 ? 0 : this.chosen + steps[key]));
    this.picture.redraw();
    return {
      x: (this.chosen % this.columns) * this.size + this.size / 2,
      y: Math.floor(this.chosen / this.columns) * this.size + this.size / 2,
    };
  }

  words(partition) {
    if (partition < 0) return null;
    const name = (place) => (place < 0 ? "nobody" : this.members[place].name);
    const [owner = -1, ...backups] = this.rows[partition];
    const rest = backups.map((place, index) => `\nbackup ${index + 1}: ${name(place)}`).join("");
    return `partition ${partition}\nowner: ${name(owner)}${rest}`;
  }
}

/** A strip under the picture of ownership, on the same scale of time: an area of counts, or bars on a logarithmic scale. */
export class Strip {
  constructor(host, { label, points, begin, end, kind, words, height = 104, marks = [] }) {
    Object.assign(this, { label, points, begin, end, kind, say: words, marks });
    this.picture = new Picture(host, {
      height,
      label,
      draw: (pen, width, high, colour) => this.draw(pen, width, high, colour),
      hover: (x, y) => this.words(x, y),
    });
  }

  draw(pen, width, height, colour) {
    const top = 8;
    const bottom = height - 26;
    this.scale = new TimeScale(this.begin, this.end, width);
    const most = Math.max(1, ...this.points.map(([, value]) => value));
    const shown = this.points.filter(([at]) => at >= this.begin && at <= this.end);
    if (this.kind === "area") {
      pen.fillStyle = colour("--copies");
      pen.beginPath();
      pen.moveTo(this.scale.x(shown[0]?.[0] ?? this.begin), bottom);
      for (const [at, value] of shown) pen.lineTo(this.scale.x(at), bottom - (value / most) * (bottom - top));
      pen.lineTo(this.scale.x(shown.at(-1)?.[0] ?? this.end), bottom);
      pen.fill();
    } else {
      const decades = Math.max(1, Math.log10(most * 1.2));
      pen.textAlign = "right";
      for (let power = 1; power <= decades; power++) {
        const y = bottom - (power / decades) * (bottom - top);
        pen.fillStyle = colour("--faint");
        pen.fillRect(LEFT, y, this.scale.width, 1);
        pen.fillStyle = colour("--quiet");
        pen.fillText(span(10 ** power), LEFT - 4, y + 4);
      }
      pen.fillStyle = colour("--bar");
      for (const [at, value] of shown) {
        const tall = Math.log10(Math.max(1, value)) / decades * (bottom - top);
        pen.fillRect(this.scale.x(at) - 1.2, bottom - tall, 2.4, tall);
      }
    }
    pen.strokeStyle = colour("--line");
    pen.strokeRect(LEFT, top, this.scale.width, bottom - top);
    axis(pen, this.scale, bottom, colour, (at) => span(at - this.begin));
    pen.setLineDash([4, 3]);
    for (const mark of this.marks) {
      pen.strokeStyle = colour(mark.alarm ? "--bad" : "--ink");
      pen.beginPath();
      pen.moveTo(this.scale.x(mark.at), top);
      pen.lineTo(this.scale.x(mark.at), bottom);
      pen.stroke();
    }
    pen.setLineDash([]);
  }

  words(x) {
    if (!this.scale || x < LEFT || !this.points.length) return null;
    const at = this.scale.at(x);
    let nearest = this.points[0];
    for (const one of this.points) if (Math.abs(one[0] - at) < Math.abs(nearest[0] - at)) nearest = one;
    return `${span(nearest[0] - this.begin)}: ${this.say(nearest[1])}`;
  }
}

/** A switch between light, dark and what the system says; what was chosen is kept, where that is allowed. */
export function themeSwitch(button) {
  const choices = ["auto", "light", "dark"];
  const kept = () => {
    try { return localStorage.getItem("holdfast-theme") ?? "auto"; } catch { return "auto"; }
  };
  const apply = (choice) => {
    if (choice === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
    button.textContent = { auto: "◐ auto", light: "☀ light", dark: "☾ dark" }[choice];
    button.setAttribute("aria-label", `Colours: ${choice}`);
    dispatchEvent(new Event("holdfast-theme"));
  };
  let chosen = choices.includes(kept()) ? kept() : "auto";
  button.addEventListener("click", () => {
    chosen = choices[(choices.indexOf(chosen) + 1) % choices.length];
    try { localStorage.setItem("holdfast-theme", chosen); } catch { /* then it is for this page alone */ }
    apply(chosen);
  });
  apply(chosen);
}

/** A list of who has which colour. */
export function legend(list, members, counts = null) {
  list.replaceChildren(...members.map(({ name, place }) => {
    const item = document.createElement("li");
    const swatch = document.createElement("span");
    swatch.className = "swatch";
    swatch.style.background = `var(${colourName(place)})`;
    item.append(swatch, counts ? `${name} (${counts.get(place) ?? 0})` : name);
    return item;
  }));
}
