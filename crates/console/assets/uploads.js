// Uploads: a queue that goes on while one looks around. Files go straight to the S3 door, by URLs that the console signs
// for one request each. What fails for want of a connection is sent again; parts that arrived are not.

import { FOREIGN, isOwn, refresh, tell } from "./console.js";
import { size } from "./listing.js";

const PART = 16 << 20; // bytes of a part; a shorter file goes as a whole
const PARTS = 9_000; // of one file at most
const JOBS = 3; // files at the same time
const SENDS = 4; // requests with bytes at the same time
const TRIES = 12; // of one request, without progress in between
const LONGEST_PAUSE = 30_000; // milliseconds between two of them
const SHOWN = 60; // files in the panel
const TAIL = 12; // letters at the end of a file's name that are always shown

const made = (tag, of = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), of);
  element.append(...children);
  return element;
};

/** Why a request failed: `kind` says what to do about it. */
class Failed extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind; // stopped, again, exists, login, never
  }
}

const messageOf = (text) => /<Message>([^<]*)<\/Message>/.exec(text)?.[1] ?? "The store refused it.";
const unescape = (text) =>
  text.replace(/&(quot|lt|gt|apos|amp|#34|#39);/g, (_, name) =>
    ({ quot: '"', "#34": '"', lt: "<", gt: ">", apos: "'", "#39": "'", amp: "&" })[name]);

/** Sends a request to the S3 door, and tells how much of its body went. */
function send(job, method, url, { body = null, headers = {}, moved } = {}) {
  return new Promise((done, fail) => {
    const request = new XMLHttpRequest();
    const stop = () => request.abort();
    job.stops.add(stop);
    request.open(method, url);
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    if (moved) request.upload.onprogress = (event) => moved(event.loaded);
    request.onloadend = () => job.stops.delete(stop);
    request.onabort = () => fail(new Failed("stopped", "Stopped."));
    request.onerror = () => fail(new Failed("again", "The connection broke."));
    request.onload = () => {
      const { status, responseText: text } = request;
      if (status === 412) return fail(new Failed("exists", "It exists already."));
      if (status === 404 && method === "HEAD") return done({ missing: true });
      const isLate = status === 403 && /expired|Skewed/.test(text);
      if (status >= 500 || status === 429 || status === 408 || isLate) {
        return fail(new Failed("again", messageOf(text)));
      }
      // A long completion is answered with 200 before it is known how it ends.
      if (status >= 300 || text.includes("<Error>")) return fail(new Failed("never", messageOf(text)));
      done({ text, etag: request.getResponseHeader("etag") });
    };
    request.send(body);
  });
}

class Job {
  constructor(queue, file, bucket, key) {
    Object.assign(this, { queue, file, bucket, key });
    this.state = "waiting"; // going, paused, exists, login, failed, done, skipped
    this.said = "";
    this.replace = false;
    this.upload = null;
    this.part = Math.max(PART, Math.ceil(file.size / PARTS / (1 << 20)) << 20);
    this.etags = new Map(); // of parts that arrived
    this.moving = new Map(); // bytes of parts that are on their way
    this.stops = new Set();
  }

  get type() {
    return this.file.type || "application/octet-stream";
  }

  get count() {
    return Math.ceil(this.file.size / this.part);
  }

  bytesOf(number) {
    return Math.min(this.part, this.file.size - (number - 1) * this.part);
  }

  get sent() {
    if (this.state === "done") return this.file.size;
    let bytes = 0;
    for (const number of this.etags.keys()) bytes += this.bytesOf(number);
    for (const moved of this.moving.values()) bytes += moved;
    return Math.min(bytes, this.file.size);
  }

  /** Under this a later visit finds what is left of an upload. */
  get memory() {
    return `upload:${this.bucket}/${this.key}:${this.file.size}:${this.file.lastModified}`;
  }

  /** The console signs URLs for a step. */
  async urls(step) {
    let reply;
    try {
      reply = await fetch(`/b/${this.bucket}/uploads`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ key: this.key, step }),
      });
    } catch {
      throw new Failed("again", "The server cannot be reached.");
    }
    if (!isOwn(reply, "application/json")) throw new Failed("again", FOREIGN);
    if (reply.status === 401) throw new Failed("login", "The login has ended.");
    const body = await reply.json().catch(() => ({}));
    if (reply.ok) return body.urls;
    throw new Failed(reply.status >= 500 ? "again" : "never", body.message ?? "The console refused it.");
  }

  /** Does something until it is done, or cannot be done. */
  async insist(work) {
    for (let tries = 1; ; tries++) {
      if (this.state !== "going") throw new Failed("stopped", "Stopped.");
      try {
        return await work();
      } catch (error) {
        if (!(error instanceof Failed) || error.kind !== "again" || tries >= TRIES) throw error;
        this.said = `${error.message} Trying again…`;
        this.queue.changed();
        await this.pause(Math.min(LONGEST_PAUSE, 500 * 2 ** tries));
      }
    }
  }

  /** Until the time is over, the job is stopped, or there is a network again. */
  pause(milliseconds) {
    return new Promise((done) => {
      const end = () => {
        clearTimeout(timer);
        removeEventListener("online", end);
        this.stops.delete(end);
        done();
      };
      const timer = setTimeout(end, milliseconds);
      addEventListener("online", end);
      this.stops.add(end);
    });
  }

  async run() {
    this.runs = true;
    this.queue.running += 1;
    this.state = "going";
    this.said = "";
    try {
      if (this.file.size <= this.part) await this.whole();
      else await this.inParts();
      this.state = "done";
      localStorage.removeItem(this.memory);
    } catch (error) {
      this.moving.clear();
      if (error.kind !== "stopped") {
        this.state = { exists: "exists", login: "login" }[error.kind] ?? "failed";
        this.said = error.message;
      }
    }
    this.stops.clear();
    this.runs = false;
    this.queue.running -= 1;
    this.queue.ended();
  }

  async whole() {
    await this.insist(async () => {
      const [url] = await this.urls({
        do: "put", length: this.file.size, content_type: this.type, replace: this.replace,
      });
      // Without this a browser adds a Cache-Control to a request with a condition, and the store would keep it.
      const onlyNew = { "if-none-match": "*", "cache-control": "" };
      const headers = { "content-type": this.type, ...(this.replace ? {} : onlyNew) };
      const moved = (bytes) => this.moved(1, bytes);
      await this.queue.inTurn(() => send(this, "PUT", url, { body: this.file, headers, moved }));
    });
    this.moving.clear();
  }

  moved(number, bytes) {
    this.queue.speed.add(bytes - (this.moving.get(number) ?? 0));
    this.moving.set(number, bytes);
    this.said = "";
    this.queue.changed();
  }

  async inParts() {
    if (!this.replace && !this.upload) {
      const found = await this.insist(async () => send(this, "HEAD", (await this.urls({ do: "look" }))[0]));
      if (!found.missing) throw new Failed("exists", "It exists already.");
    }
    if (!this.upload) await this.begin();
    const missing = [];
    for (let number = 1; number <= this.count; number++) if (!this.etags.has(number)) missing.push(number);
    const workers = Array.from({ length: SENDS }, async () => {
      for (let number = missing.shift(); number; number = missing.shift()) await this.sendPart(number);
    });
    try {
      await Promise.all(workers);
    } catch (error) {
      missing.length = 0;
      const going = this.state;
      this.state = "stopping";
      [...this.stops].forEach((stop) => stop());
      await Promise.allSettled(workers);
      this.state = going;
      throw error;
    }
    await this.complete();
  }

  /** Goes on with what is left of an earlier visit, or begins. */
  async begin() {
    const known = localStorage.getItem(this.memory);
    if (known) {
      try {
        await this.recall(known);
        this.upload = known;
        return;
      } catch (error) {
        if (error.kind !== "never") throw error;
        this.etags.clear();
        localStorage.removeItem(this.memory);
      }
    }
    const { text } = await this.insist(async () => {
      const [url] = await this.urls({ do: "create", content_type: this.type });
      return send(this, "POST", url, { headers: { "content-type": this.type } });
    });
    this.upload = unescape(/<UploadId>([^<]+)<\/UploadId>/.exec(text)?.[1] ?? "");
    localStorage.setItem(this.memory, this.upload);
  }

  /** Learns which parts of an upload arrived. */
  async recall(upload) {
    for (let after = 0, goesOn = true; goesOn; ) {
      const { text } = await this.insist(async () =>
        send(this, "GET", (await this.urls({ do: "list", upload, after }))[0]));
      for (const [, part] of text.matchAll(/<Part>(.*?)<\/Part>/gs)) {
        const field = (name) => new RegExp(`<${name}>([^<]*)</${name}>`).exec(part)?.[1] ?? "";
        const number = Number(field("PartNumber"));
        if (Number(field("Size")) === this.bytesOf(number)) this.etags.set(number, unescape(field("ETag")));
        after = Math.max(after, number);
      }
      goesOn = text.includes("<IsTruncated>true<");
    }
  }

  async sendPart(number) {
    const length = this.bytesOf(number);
    const start = (number - 1) * this.part;
    const { etag } = await this.insist(async () => {
      try {
        return await this.queue.inTurn(async () => {
          // Signed when its turn has come, so that it is not too old.
          const [url] = await this.urls({ do: "parts", upload: this.upload, parts: [[number, length]] });
          const body = this.file.slice(start, start + length);
          return send(this, "PUT", url, { body, moved: (bytes) => this.moved(number, bytes) });
        });
      } finally {
        this.moving.delete(number);
      }
    });
    this.etags.set(number, etag);
    this.queue.changed();
  }

  async complete() {
    const parts = [...this.etags].sort(([one], [other]) => one - other);
    const lines = parts.map(([number, etag]) => `<Part><PartNumber>${number}</PartNumber><ETag>${etag}</ETag></Part>`);
    const body = new Blob([`<CompleteMultipartUpload>${lines.join("")}</CompleteMultipartUpload>`]);
    await this.insist(async () => {
      const [url] = await this.urls({
        do: "complete", upload: this.upload, length: body.size, replace: this.replace,
      });
      const headers = this.replace ? {} : { "if-none-match": "*" };
      return send(this, "POST", url, { body, headers });
    });
  }

  stop(state) {
    this.state = state;
    [...this.stops].forEach((stop) => stop());
    this.queue.changed();
  }

  /** Gives up what arrived, too. */
  async cancel() {
    this.stop("skipped");
    const { upload } = this;
    localStorage.removeItem(this.memory);
    if (!upload) return;
    try {
      await send(this, "DELETE", (await this.urls({ do: "abort", upload }))[0]);
    } catch {
      // The store lets it go with the bucket, or when somebody ends it among the bucket's settings.
    }
  }
}

/** The name of a file, and then its folder. A name that is too long is shortened before its last letters. */
function nameOf({ bucket, key }) {
  const slash = key.lastIndexOf("/") + 1;
  const letters = Array.from(new Intl.Segmenter().segment(key.slice(slash)), ({ segment }) => segment);
  const start = letters.slice(0, -TAIL).join("");
  const name = made("span", { className: "job-name", title: `${bucket}/${key}` },
    made("span", { className: "job-start", textContent: start }),
    made("span", { textContent: letters.slice(-TAIL).join("") }));
  if (slash) name.append(made("span", { className: "job-folder", textContent: key.slice(0, slash) }));
  return name;
}

/** Bytes of the last seconds. */
class Speed {
  constructor() {
    this.moved = [];
  }

  add(bytes) {
    const now = performance.now();
    this.moved.push([now, bytes]);
    while (this.moved[0][0] < now - 8000) this.moved.shift();
  }

  /** Bytes a second. */
  get now() {
    if (this.moved.length < 2) return 0;
    const time = performance.now() - this.moved[0][0];
    const bytes = this.moved.reduce((sum, [, bytes]) => sum + bytes, 0);
    return Math.max(0, (bytes / Math.max(time, 1000)) * 1000);
  }
}

function timeOf(seconds) {
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 60) return `${Math.ceil(seconds)} s left`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min left`;
  return `${Math.round(seconds / 3600)} h left`;
}

class Queue extends HTMLElement {
  jobs = [];
  names = new Map(); // jobs by bucket and key
  speed = new Speed();
  running = 0; // jobs
  first = 0; // all jobs before this one are over
  sends = 0;
  turns = [];

  add(files, bucket, prefix) {
    for (const { file, path } of files) {
      const key = prefix + path;
      const same = this.names.get(`${bucket}/${key}`);
      if (same && this.isOpen(same)) continue;
      const job = new Job(this, file, bucket, key);
      this.names.set(`${bucket}/${key}`, job);
      this.jobs.push(job);
    }
    this.next();
  }

  isOpen(job) {
    return !["done", "skipped"].includes(job.state);
  }

  /** Whether it would be a loss if the page was left. */
  get isUnderWay() {
    return this.jobs.some((job) => ["waiting", "going", "paused", "login"].includes(job.state));
  }

  next() {
    while (this.first < this.jobs.length && !this.isOpen(this.jobs[this.first])) this.first += 1;
    for (let at = this.first; at < this.jobs.length && this.running < JOBS; at++) {
      const job = this.jobs[at];
      if (job.state === "waiting" && !job.runs) job.run();
    }
    this.changed();
  }

  /** Runs work that sends bytes, when it is its turn. */
  async inTurn(work) {
    if (this.sends >= SENDS) await new Promise((turn) => this.turns.push(turn));
    else this.sends += 1;
    try {
      return await work();
    } finally {
      const turn = this.turns.shift();
      if (turn) turn();
      else this.sends -= 1;
    }
  }

  ended() {
    this.next();
    if (!this.running) refresh();
  }

  changed() {
    this.frame ??= setTimeout(() => {
      this.frame = undefined;
      this.draw();
    }, 100 + this.jobs.length / 100);
  }

  draw() {
    if (!this.jobs.length) return this.replaceChildren();
    if (!this.panel?.isConnected) this.build();
    const by = (...states) => this.jobs.filter((job) => states.includes(job.state));
    const [open, done] = [this.jobs.filter((job) => this.isOpen(job)), by("done")];
    const wanted = this.jobs.filter((job) => job.state !== "skipped");
    const total = wanted.reduce((sum, job) => sum + job.file.size, 0);
    const sent = wanted.reduce((sum, job) => sum + job.sent, 0);
    const asks = by("exists").length;
    const [speed, moves] = [this.speed.now, by("going").length > 0];
    const files = (count) => `${count.toLocaleString("en")} ${count === 1 ? "file" : "files"}`;
    this.heading.textContent = open.length
      ? `${files(open.length)} to go${done.length ? `, ${done.length.toLocaleString("en")} done` : ""}`
      : `${files(done.length)} uploaded`;
    this.bar.max = total || 1;
    this.bar.value = total ? sent : open.length ? 0 : 1;
    this.bar.hidden = !open.length;
    const left = moves && speed > 0 ? timeOf((total - sent) / speed) : "";
    this.sum.textContent = [
      `${size(sent)} of ${size(total)}`,
      moves && speed > 0 ? `${size(speed)}/s` : "",
      left,
      by("failed").length ? `${by("failed").length} failed` : "",
    ].filter(Boolean).join(" · ");
    this.pauses.textContent = by("waiting", "going").length ? "Pause all" : "Resume all";
    this.pauses.hidden = !by("waiting", "going", "paused", "login").length;
    this.closes.hidden = open.length > 0;
    this.asked.hidden = !asks;
    this.asks.textContent = asks === 1 ? "1 file exists already." : `${asks} files exist already.`;
    const first = ["exists", "failed", "login", "going", "paused", "waiting", "done", "skipped"];
    const order = [...this.jobs].sort((one, other) => first.indexOf(one.state) - first.indexOf(other.state));
    const items = order.slice(0, SHOWN).map((job) => this.item(job));
    if (order.length > SHOWN) {
      this.more.textContent = `and ${(order.length - SHOWN).toLocaleString("en")} more`;
      items.push(this.more);
    }
    // What stays where it is keeps the focus, and a press that has begun.
    const shown = this.list.children;
    if (shown.length !== items.length || items.some((item, at) => item !== shown[at])) this.list.replaceChildren(...items);
  }

  build() {
    const button = (textContent, onclick, className = "quiet") => made("button", { type: "button", className, textContent, onclick });
    this.heading = made("h2");
    this.heading.setAttribute("aria-live", "polite");
    this.bar = made("progress");
    this.bar.setAttribute("aria-label", "All uploads");
    this.sum = made("span");
    this.pauses = button("Pause all", () => this.pauseAll());
    this.closes = button("Close", () => {
      this.jobs = [];
      this.names.clear();
      this.first = 0;
      this.draw();
    });
    this.asks = made("span");
    const all = (what) => () => this.jobs.filter((job) => job.state === "exists").forEach(what);
    this.asked = made("div", { className: "line" }, this.asks,
      button("Replace", all((job) => this.replaceIt(job))), button("Keep", all((job) => job.cancel())));
    this.list = made("ul", { className: "panel-list" });
    this.more = made("li", { className: "job job-state" });
    this.panel = made("section", { className: "panel" },
      made("div", { className: "panel-head" }, this.heading, this.pauses, this.closes),
      made("div", { className: "panel-sum" }, this.bar, this.sum, this.asked), this.list);
    this.panel.setAttribute("aria-label", "Uploads");
    this.replaceChildren(this.panel);
  }

  replaceIt(job) {
    job.replace = true;
    job.state = "waiting";
    this.next();
  }

  pauseAll() {
    const going = this.jobs.filter((job) => ["waiting", "going"].includes(job.state));
    if (going.length) {
      going.forEach((job) => job.stop("paused"));
    } else {
      for (const job of this.jobs) if (["paused", "login"].includes(job.state)) job.state = "waiting";
      this.next();
    }
  }

  again(job) {
    job.state = "waiting";
    this.next();
  }

  /** The item of a job: what of it has not changed is left alone. */
  item(job) {
    const item = (job.item ??= this.newItem(job));
    const percent = job.file.size ? Math.floor((job.sent / job.file.size) * 100) : 0;
    const text = {
      waiting: "Waiting",
      going: job.said || `${percent} % of ${size(job.file.size)}`,
      paused: `Paused at ${percent} %`,
      login: `${job.said} Log in again in another tab, then resume.`,
      exists: "A file of this name exists already",
      failed: `Failed: ${job.said}`,
      done: `Uploaded, ${size(job.file.size)}`,
      skipped: "Not uploaded",
    }[job.state] ?? "";
    const [, state, tools] = item.children;
    if (state.textContent !== text) state.textContent = text;
    if (item.dataset.state === job.state) return item;
    item.dataset.state = job.state;
    const mood = { failed: "bad", login: "bad", exists: "bad", done: "good" }[job.state] ?? "";
    state.className = `job-state ${mood}`;
    tools.replaceChildren(...this.toolsOf(job));
    return item;
  }

  newItem(job) {
    return made("li", { className: "job" }, nameOf(job), made("span"), made("span", { className: "job-tools" }));
  }

  toolsOf(job) {
    const tool = (textContent, onclick) => {
      const button = made("button", { type: "button", className: "quiet", textContent, onclick });
      button.setAttribute("aria-label", `${textContent} ${job.key}`);
      return button;
    };
    const cancel = () => tool("Cancel", () => job.cancel());
    const again = (word) => tool(word, () => this.again(job));
    switch (job.state) {
      case "going": return [tool("Pause", () => job.stop("paused")), cancel()];
      case "waiting": return [cancel()];
      case "paused": case "login": return [again("Resume"), cancel()];
      case "failed": return [again("Retry"), cancel()];
      case "exists": return [tool("Replace", () => this.replaceIt(job)), tool("Keep", () => job.cancel())];
      default: return [];
    }
  }
}

customElements.define("cairn-uploads", Queue);

/** The files of dropped entries, with their paths. */
async function* walk(entry, path = "") {
  if (entry.isFile) {
    const file = await new Promise((done, fail) => entry.file(done, fail));
    yield { file, path: path + entry.name };
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    // Some at a time, until there are none.
    const some = await new Promise((done, fail) => reader.readEntries(done, fail));
    if (!some.length) return;
    for (const inner of some) yield* walk(inner, `${path}${entry.name}/`);
  }
}

class Drop extends HTMLElement {
  connectedCallback() {
    if (this.childElementCount) return;
    const chooser = (label, of) => {
      const input = made("input", { type: "file", multiple: true, hidden: true, ...of });
      input.addEventListener("change", () => {
        this.add([...input.files].map((file) => ({ file, path: file.webkitRelativePath || file.name })));
        input.value = "";
      });
      const className = of.webkitdirectory ? "" : "primary";
      return [input, made("button", { type: "button", className, textContent: label, onclick: () => input.click() })];
    };
    this.append(...chooser("Upload files", {}), ...chooser("Upload folder", { webkitdirectory: true }));
  }

  add(files) {
    const { bucket, prefix } = this.dataset;
    document.querySelector("cairn-uploads").add(files, bucket, prefix);
  }
}

customElements.define("cairn-drop", Drop);

const target = () => document.querySelector("cairn-drop");
const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
let depth = 0;

addEventListener("dragenter", (event) => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  depth += 1;
  document.body.classList.toggle("drops", Boolean(target()));
});
addEventListener("dragleave", (event) => {
  if (!hasFiles(event)) return;
  depth = Math.max(0, depth - 1);
  if (!depth) document.body.classList.remove("drops");
});
addEventListener("dragover", (event) => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  event.dataTransfer.dropEffect = target() ? "copy" : "none";
});
addEventListener("drop", async (event) => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  depth = 0;
  document.body.classList.remove("drops");
  const drop = target();
  if (!drop) return tell("Open a bucket that you may write to, and drop the files there.");
  // Entries must be taken before anything is waited for.
  const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  const plain = entries.length ? [] : [...event.dataTransfer.files].map((file) => ({ file, path: file.name }));
  let some = plain;
  try {
    for (const entry of entries) {
      for await (const found of walk(entry)) {
        some.push(found);
        if (some.length >= 500) drop.add(some.splice(0));
      }
    }
  } catch {
    tell("Some of the dropped files could not be read.");
  }
  drop.add(some);
});
addEventListener("paste", (event) => {
  const files = [...(event.clipboardData?.files ?? [])];
  if (!files.length || !target()) return;
  event.preventDefault();
  target().add(files.map((file) => ({ file, path: file.name })));
});
addEventListener("beforeunload", (event) => {
  if (document.querySelector("cairn-uploads")?.isUnderWay) event.preventDefault();
});
