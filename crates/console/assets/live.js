// What changes on a page that is open. The server says it by events (`text/event-stream`) while the page is seen. Without
// this script a page shows the values of when it was loaded.

import { mend, parse, visit } from "./console.js";

const SLOTS = 4; // pages of one browser that listen at the same time: it has few connections to one server

/** A place for a page that listens, and how to give it back; nothing if all are taken. */
function slot(number = 0) {
  if (number === SLOTS) return Promise.resolve();
  return new Promise((done) => {
    navigator.locks.request(`cairn-live-${number}`, { ifAvailable: true }, (lock) => {
      if (!lock) return done(slot(number + 1));
      return new Promise((release) => done(release));
    });
  });
}

/** An element that hears events of the server while it is seen. */
class Listening extends HTMLElement {
  again = 5000; // milliseconds after a refusal

  connectedCallback() {
    this.onSeen = () => (document.hidden ? this.close() : this.open(true));
    document.addEventListener("visibilitychange", this.onSeen);
    this.open();
  }

  disconnectedCallback() {
    document.removeEventListener("visibilitychange", this.onSeen);
    this.close();
  }

  get isWanted() {
    return this.isConnected && !document.hidden && !this.isPaused && !this.source;
  }

  /** `again`: the page did not listen for a while. */
  async open(again = false) {
    clearTimeout(this.timer);
    if (!this.isWanted) return;
    const release = await slot();
    if (!release) return this.crowded(again);
    if (!this.isWanted) return release();
    this.release = release;
    this.source = new EventSource(this.address);
    this.on("end", (event) => {
      this.close();
      this.ended(JSON.parse(event.data).reason);
    });
    this.source.addEventListener("error", () => {
      this.lost();
      // The browser comes again by itself, unless it was refused.
      if (this.source?.readyState !== EventSource.CLOSED) return;
      this.close();
      this.refused();
      this.later();
    });
    this.begin();
  }

  /** Hears events of a name, but none of a server to which the stream was led. */
  on(name, heard) {
    this.source.addEventListener(name, (event) => event.origin === location.origin && heard(event));
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(true), this.again);
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = undefined;
    this.release?.();
    this.release = undefined;
  }

  get address() {
    return this.dataset.events;
  }

  /** Events are about to come. */
  begin() {}
  /** Other pages have all places. */
  crowded() {}
  /** The connection broke. */
  lost() {}
  /** The server sends no events: there may be nothing to see any more. */
  refused() {}
  /** The server sends no more. */
  ended() {}
}

/** What others change in a listing: the page asks for itself again when it is told to. */
class Changes extends Listening {
  again = 30_000;

  connectedCallback() {
    this.hidden = true;
    super.connectedCallback();
  }

  get address() {
    return `${this.dataset.events}&seen=${encodeURIComponent(this.dataset.seen)}`;
  }

  begin() {
    this.on("changed", (event) => {
      this.dataset.seen = event.lastEventId;
      mend();
    });
  }

  /** Where it cannot listen it looks once. */
  crowded(again) {
    if (again) mend();
  }

  /** What went away before the page could listen is shown so. */
  refused() {
    mend();
  }
}

/** A part of a page that says how it fares, and can be paused. */
class Following extends Listening {
  connectedCallback() {
    this.said = this.querySelector("[data-live-state]");
    this.button = this.querySelector("[data-live-pause]");
    this.isPaused = false;
    this.button.hidden = false;
    this.button.onclick = () => {
      this.isPaused = !this.isPaused;
      this.button.textContent = this.isPaused ? "Go on" : "Pause";
      if (!this.isPaused) return this.open(true);
      this.close();
      this.say("Paused.");
    };
    super.connectedCallback();
  }

  begin() {
    this.say("Connecting…");
    this.source.addEventListener("open", () => this.say("Live."));
  }

  crowded() {
    this.say("Other pages of this browser are live: these values are old. Waiting for one of them to be closed…");
    this.later();
  }

  lost() {
    this.say("The server cannot be reached: these values are old. Trying again…");
  }

  say(text) {
    if (this.said.textContent !== text) this.said.textContent = text;
  }

  ended(why) {
    // The login is over: the page to log in comes instead.
    if (why === "login") visit(location.href, { push: false });
    else this.say(`It has ended: ${why.replaceAll("_", " ")}.`);
  }
}

/** Parts of a page, which the server sends anew. */
class Live extends Following {
  begin() {
    super.begin();
    /** The texts of parts, as they came last. */
    this.known ??= new Map();
    this.on("parts", (event) => this.show(JSON.parse(event.data)));
  }

  show(parts) {
    for (const place of this.querySelectorAll("[data-part]")) {
      const text = parts[place.dataset.part];
      // What somebody reads by the keyboard stays as it is.
      if (text === undefined || this.known.get(place) === text || place.contains(document.activeElement)) continue;
      this.known.set(place, text);
      place.replaceChildren(...document.adoptNode(parse(text).body).childNodes);
    }
  }
}

/** Lines of a log, the last ones of which are kept. */
class Tail extends Following {
  begin() {
    super.begin();
    const log = this.querySelector(".log");
    // They come again.
    log.textContent = "";
    log.scrollTop = log.scrollHeight;
    this.lines = [];
    this.on("message", ({ data }) => this.add(log, data + "\n"));
    this.on("part", ({ data }) => this.add(log, data));
  }

  /** Lines are shown together, before the browser paints. */
  add(log, line) {
    this.lines.push(line);
    this.due ??= requestAnimationFrame(() => {
      this.due = undefined;
      const isAtEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
      log.append(...this.lines.splice(0).slice(-this.dataset.lines));
      while (log.childNodes.length > this.dataset.lines) log.firstChild.remove();
      if (isAtEnd) log.scrollTop = log.scrollHeight;
    });
  }
}

customElements.define("cairn-changes", Changes);
customElements.define("cairn-live", Live);
customElements.define("cairn-tail", Tail);
