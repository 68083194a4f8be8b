// What others change appears on a page that is open. The server says when (`text/event-stream`), and the page asks for
// itself again. Only a page that is seen listens: a browser has few connections to one server.

import { mend } from "./console.js";

const SLOTS = 4; // pages of one browser that listen at the same time
const AGAIN = 30_000; // milliseconds after a refusal

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

class Live extends HTMLElement {
  connectedCallback() {
    this.hidden = true;
    this.onSeen = () => (document.hidden ? this.close() : this.open(true));
    document.addEventListener("visibilitychange", this.onSeen);
    this.open();
  }

  disconnectedCallback() {
    document.removeEventListener("visibilitychange", this.onSeen);
    this.close();
  }

  get isWanted() {
    return this.isConnected && !document.hidden && !this.source;
  }

  /** `again`: the page was out of sight. Where it cannot listen it looks at once. */
  async open(again = false) {
    clearTimeout(this.timer);
    if (!this.isWanted) return;
    const release = await slot();
    if (!release) return again && mend();
    if (!this.isWanted) return release();
    this.release = release;
    const { events, seen } = this.dataset;
    this.source = new EventSource(`${events}&seen=${encodeURIComponent(seen)}`);
    this.source.addEventListener("changed", (event) => {
      this.dataset.seen = event.lastEventId;
      mend();
    });
    this.source.addEventListener("end", () => this.close());
    this.source.addEventListener("error", () => {
      if (this.source?.readyState !== EventSource.CLOSED) return; // the browser comes again by itself
      this.close();
      this.timer = setTimeout(() => this.open(true), AGAIN);
    });
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = undefined;
    this.release?.();
    this.release = undefined;
  }
}

customElements.define("cairn-live", Live);
