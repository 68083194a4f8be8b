// A folder with more entries than a page of the server has: rows exist only where the scroll is, and only some pages of
// entries are kept. A short folder stays the table that the server made.

import { FOREIGN, isOwn, selected } from "./console.js";

const ROW = 40; // pixels, as in console.css
const PAGE = 1000; // rows of one request
const KEPT = 16; // pages whose rows are kept
const OVERSCAN = 8; // rows beyond what is seen
const SPLITS = 20; // pages that one page becomes at most when others add to it
const TALLEST = 12_000_000; // pixels: browsers have a limit to the height of an element

const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB"];

export function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  let [value, unit] = [bytes / 1024, 0];
  while (value >= 1023.95 && unit + 1 < UNITS.length) [value, unit] = [value / 1024, unit + 1];
  return `${value.toFixed(value < 99.95 ? 1 : 0)} ${UNITS[unit]}`;
}

const made = (tag, of = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), of);
  element.append(...children);
  return element;
};

/** Whether a key comes before another one: by the bytes of UTF-8, which have the order of code points. */
function isBefore(one, other) {
  let at = 0;
  while (at < one.length && at < other.length && one[at] === other[at]) at += 1;
  // Not in the middle of a character.
  if (at && /[\ud800-\udbff]/.test(one[at - 1])) at -= 1;
  return (one.codePointAt(at) ?? -1) < (other.codePointAt(at) ?? -1);
}

/** How many rows of these have keys up to `bound`. */
function end(rows, bound) {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isBefore(bound, rows[middle].key)) high = middle;
    else low = middle + 1;
  }
  return low;
}

class Listing extends HTMLElement {
  connectedCallback() {
    const { next, after } = this.dataset;
    if (!next || after || this.grid) return;
    /** Keys that were selected. */
    this.selected = new Set();
    this.all = false;
    /** Pages in order: the key after which one begins, its first row, how many it has, and its rows if they are kept. */
    this.pages = [];
    this.count = 0;
    this.next = "";
    this.fetching = new Set();
    this.form = this.closest("form");
    this.build();
    this.append_(); // the table of the server stays until the first page is there
    this.onFormData = (event) => this.selected.forEach((key) => event.formData.append("key", key));
    this.form?.addEventListener("formdata", this.onFormData);
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.grid);
  }

  disconnectedCallback() {
    this.form?.removeEventListener("formdata", this.onFormData);
    this.watch?.disconnect();
    this.gone = true;
  }

  build() {
    this.picks = "selects" in this.dataset;
    this.space = made("div", { className: "grid-space" });
    this.grid = made("div", { className: "grid-scroll", tabIndex: 0, role: "rowgroup" }, this.space);
    const title = (className, textContent) => made("div", { className, role: "columnheader", textContent });
    const titles = [title("name", "Name"), title("number", "Size"), title("wide", "Changed (UTC)")];
    if (this.picks) titles.unshift(made("div", { role: "columnheader" }, made("span", { className: "hidden", textContent: "Selected" })));
    const head = made("div", { role: "rowgroup" }, made("div", { className: "grid-head", role: "row" }, ...titles));
    this.table = made("div", { className: `grid${this.picks ? " selects" : ""}`, role: "table" }, head, this.grid);
    this.table.setAttribute("aria-label", "Files and folders");
    this.said = made("span", { role: "status" });
    this.again = made("button", { type: "button", className: "quiet", textContent: "Try again", hidden: true });
    this.foot = made("div", { className: "grid-foot" }, this.said, this.again);
    this.rows = [];
    this.grid.addEventListener("scroll", () => this.soon(), { passive: true });
    this.grid.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.grid.addEventListener("keydown", (event) => this.key(event));
    this.grid.addEventListener("change", (event) => this.pick(event.target));
    this.again.addEventListener("click", () => this.append_());
  }

  /** The height of all rows, that of the element which stands for them, and that which is seen. */
  heights() {
    const all = this.count * ROW;
    return { all, tall: Math.min(all, TALLEST), view: this.grid.clientHeight };
  }

  /** How far all rows are scrolled, pixels. */
  offset() {
    const { all, tall, view } = this.heights();
    if (all <= tall) return this.grid.scrollTop;
    return (this.grid.scrollTop * (all - view)) / (tall - view);
  }

  scrollBack(offset) {
    const { all, tall, view } = this.heights();
    this.grid.scrollTop = all <= tall ? offset : (offset * (tall - view)) / (all - view);
  }

  /** Where the element is less tall than its rows, a turn of the wheel still moves by as many rows as it should. */
  wheel(event) {
    const { all, tall } = this.heights();
    if (all <= tall || event.ctrlKey) return;
    event.preventDefault();
    const unit = [1, ROW, this.grid.clientHeight][event.deltaMode];
    this.scrollBack(this.offset() + event.deltaY * unit);
  }

  async get(after) {
    const { rows, prefix, filter } = this.dataset;
    const query = new URLSearchParams({ in: prefix, filter, after, rows: PAGE });
    const reply = await fetch(`${rows}?${query}`);
    if (!isOwn(reply, "application/json")) throw new Error(FOREIGN);
    if (reply.status === 401) throw new Error("The login has ended: load the page again.");
    const body = await reply.json();
    if (!reply.ok) throw new Error(body.message);
    return body;
  }

  /** Adds the next page to what is known. */
  async append_() {
    if (this.next === null || this.fetching.has("next")) return;
    this.fetching.add("next");
    this.again.hidden = true;
    try {
      const after = this.next;
      const { rows, next } = await this.get(after);
      if (this.gone || after !== this.next) return;
      const offset = this.pages.length ? this.offset() : 0;
      if (rows.length) this.pages.push({ after, start: this.count, count: rows.length, rows, used: performance.now() });
      this.count += rows.length;
      if (!this.grid.isConnected) this.replaceChildren(this.table, this.foot), this.form?.querySelector("a[rel=next]")?.remove();
      this.space.style.setProperty("height", `${this.heights().tall}px`);
      this.scrollBack(offset);
      this.say(next);
      this.evict();
    } catch (error) {
      this.said.textContent = `No more could be loaded. ${error.message}`;
      this.again.hidden = false;
    } finally {
      this.fetching.delete("next");
    }
    if (this.again.hidden) this.draw();
  }

  /** Gets the rows of a page again that were let go, or may be others now. */
  async refill(page) {
    if (this.fetching.has(page)) return;
    this.fetching.add(page);
    try {
      page.isOld = false;
      await this.renew(page);
      this.evict();
    } catch {
      page.isOld = true;
      await new Promise((done) => setTimeout(done, 2000));
    } finally {
      this.fetching.delete(page);
    }
    if (!this.gone) this.draw();
  }

  /** Gets what is behind the key after which a page begins, up to where the next one does. */
  async renew(page) {
    let [part, { rows, next }] = [page, await this.get(page.after)];
    for (let more = 0; ; more++) {
      if (this.gone || !this.pages.includes(part)) return;
      const bound = this.pages[this.pages.indexOf(part) + 1]?.after;
      const count = bound === undefined ? rows.length : end(rows, bound);
      this.resize(part, rows.slice(0, count));
      // All of the page was seen, or it is the last one: then the list grows from its end.
      if (bound === undefined) return this.say(next);
      if (count < rows.length || next === null || !isBefore(next, bound)) return;
      const after = next;
      ({ rows, next } = await this.get(after));
      const at = this.pages.indexOf(part) + 1;
      if (more === SPLITS) {
        // So much was added that what follows is loaded anew.
        for (const lost of this.pages.splice(at)) this.count -= lost.count;
        return this.say(after);
      }
      part = { after, start: part.start + part.count, count: 0, rows: [], used: performance.now() };
      this.pages.splice(at, 0, part);
    }
  }

  /** A page has other rows, and so those behind it other places. What is seen stays where it is. */
  resize(page, rows) {
    const grown = rows.length - page.count;
    const first = Math.floor(this.offset() / ROW);
    const offset = this.offset();
    const isAbove = page.start + page.count <= first;
    Object.assign(page, { rows, count: rows.length, used: performance.now() });
    if (!grown) return;
    this.count += grown;
    for (const one of this.pages.slice(this.pages.indexOf(page) + 1)) one.start += grown;
    this.space.style.setProperty("height", `${this.heights().tall}px`);
    this.scrollBack(isAbove ? offset + grown * ROW : offset);
    this.say(this.next);
  }

  /** Others have changed the folder: what is seen is asked for at once, and the rest when it is. */
  mend() {
    for (const page of this.pages) page.isOld = true;
    const last = this.pages.at(-1);
    for (const page of this.pages) if (page === last || !page.count) this.refill(page);
    this.draw();
  }

  /** Says how long the list is; `next` is where it goes on. */
  say(next) {
    this.next = next;
    this.table.setAttribute("aria-rowcount", next === null ? this.count : -1);
    const count = this.count.toLocaleString("en");
    this.said.textContent = next === null ? `${count} entries` : `${count} entries so far; more come as you scroll`;
  }

  evict() {
    const kept = this.pages.filter((page) => page.rows);
    if (kept.length <= KEPT) return;
    kept.sort((one, other) => one.used - other.used);
    for (const page of kept.slice(0, kept.length - KEPT)) page.rows = null;
  }

  /** The page of a row, by halving. */
  pageOf(index) {
    let [low, high] = [0, this.pages.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.pages[middle].start <= index) low = middle;
      else high = middle - 1;
    }
    return this.pages[low];
  }

  soon() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.draw();
    });
  }

  draw() {
    if (!this.grid.isConnected || !this.pages.length) return;
    const offset = this.offset();
    const seen = Math.ceil(this.grid.clientHeight / ROW);
    const first = Math.max(0, Math.floor(offset / ROW) - OVERSCAN);
    const last = Math.min(this.count, first + seen + 2 * OVERSCAN);
    const pool = seen + 2 * OVERSCAN + 1;
    while (this.rows.length < pool) this.rows.push(this.row());
    const shift = this.grid.scrollTop - offset;
    for (let index = first; index < last; index++) this.show(this.rows[index % this.rows.length], index, shift);
    for (const row of this.rows) row.element.hidden = row.index < first || row.index >= last;
    if (last > this.count - 4 * seen) this.append_();
  }

  row() {
    const link = made("a", { tabIndex: 0 }); // also while its entry is fetched, and it has no address
    const box = made("input", { type: "checkbox" });
    const cell = (className, ...children) => made("div", { className, role: "cell" }, ...children);
    const [name, bytes, time] = [cell("name", link), cell("number"), cell("wide")];
    const element = made("div", { className: "grid-row", role: "row" });
    element.append(...(this.picks ? [cell("pick", box)] : []), name, bytes, time);
    this.space.append(element);
    return { element, link, box, bytes, time, index: -1 };
  }

  show(row, index, shift) {
    row.element.style.setProperty("transform", `translateY(${index * ROW + shift}px)`);
    const page = this.pageOf(index);
    page.used = performance.now();
    if (!page.rows || page.isOld) this.refill(page);
    const entry = page.rows?.[index - page.start];
    if (row.index === index && row.entry === entry) return;
    // What has the focus does not become another entry under it.
    const isOther = row.index !== index || (row.entry && row.entry.key !== entry?.key);
    if (isOther && row.element.contains(document.activeElement)) this.grid.focus({ preventScroll: true });
    Object.assign(row, { index, entry });
    row.element.setAttribute("aria-rowindex", index + 1);
    row.element.classList.toggle("waits", !entry);
    const { bucket, prefix } = this.dataset;
    const name = entry ? entry.key.slice(prefix.length) : "…";
    const isFolder = entry?.size === undefined;
    row.link.textContent = name;
    row.link.title = name;
    row.link.className = isFolder ? "folder" : "file";
    const key = encodeURIComponent(entry?.key ?? "");
    if (!entry) row.link.removeAttribute("href");
    else row.link.href = isFolder ? `/b/${bucket}?in=${key}` : `/b/${bucket}/object?key=${key}`;
    row.bytes.textContent = isFolder ? "" : size(entry.size);
    row.time.textContent = entry?.changed?.slice(0, 16).replace("T", " ") ?? "";
    row.box.disabled = !entry || this.all;
    row.box.checked = this.all || this.selected.has(entry?.key);
    row.box.setAttribute("aria-label", `Select ${name}`);
  }

  pick(box) {
    const row = this.rows.find((row) => row.box === box);
    if (!row?.entry) return;
    if (box.checked) this.selected.add(row.entry.key);
    else this.selected.delete(row.entry.key);
    selected();
  }

  /** All of the folder, shown or not; or nothing. */
  selectAll(isAll) {
    if (!this.grid) return; // a short folder is the table of the server
    this.all = isAll;
    this.selected.clear();
    for (const row of this.rows) {
      row.box.checked = isAll;
      row.box.disabled = isAll || !row.entry;
    }
  }

  /** The arrows go from name to name. */
  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = this.rows.find((row) => row.element.contains(document.activeElement));
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    if (!row && document.activeElement !== this.grid) return;
    event.preventDefault();
    const [offset, view] = [this.offset(), this.grid.clientHeight];
    const index = Math.min(this.count - 1, Math.max(0, row ? row.index + step : Math.ceil(offset / ROW)));
    if (index * ROW < offset) this.scrollBack(index * ROW);
    if ((index + 1) * ROW > offset + view) this.scrollBack((index + 1) * ROW - view);
    this.draw();
    this.rows.find((row) => row.index === index && !row.element.hidden)?.link.focus({ preventScroll: true });
  }
}

customElements.define("cairn-listing", Listing);
