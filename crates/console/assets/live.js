// Parts of a page that change: the server sends them anew while the page is seen. Without this script a page shows the
// values of when it was loaded.

import { parse, visit } from "./console.js";

/** An element that follows events of the server while it is seen. */
class Following extends HTMLElement {
  connectedCallback() {
    this.said = this.querySelector("[data-live-state]");
    this.button = this.querySelector("[data-live-pause]");
    this.isPaused = false;
    this.button.hidden = false;
    this.button.onclick = () => {
      this.isPaused = !this.isPaused;
      this.button.textContent = this.isPaused ? "Go on" : "Pause";
      this.turn();
    };
    // A browser has few connections to a server: a page that is not seen takes none.
    this.seen = () => this.turn();
    document.addEventListener("visibilitychange", this.seen);
    this.turn();
  }

  disconnectedCallback() {
    document.removeEventListener("visibilitychange", this.seen);
    this.close();
  }

  turn() {
    if (this.isPaused || document.hidden) {
      this.close();
      if (this.isPaused) this.say("Paused.");
    } else if (!this.source) {
      this.open();
    }
  }

  open() {
    this.say("Connecting…");
    this.source = new EventSource(this.dataset.events);
    this.source.addEventListener("open", () => this.say("Live."));
    this.source.addEventListener("end", (event) => {
      this.close();
      this.ended(JSON.parse(event.data).reason);
    });
    this.begin();
    this.source.addEventListener("error", () => {
      this.say("The server cannot be reached: these values are old. Trying again…");
      // The browser tries again by itself, unless it was refused.
      if (this.source?.readyState === EventSource.CLOSED) {
        this.close();
        setTimeout(() => this.isConnected && this.turn(), 5000);
      }
    });
  }

  close() {
    this.source?.close();
    this.source = null;
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

/** Parts of a page. */
class Live extends Following {
  begin() {
    /** The texts of parts, as they came last. */
    this.known ??= new Map();
    this.source.addEventListener("parts", (event) => this.show(JSON.parse(event.data)));
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
    const log = this.querySelector(".log");
    // They come again.
    log.textContent = "";
    log.scrollTop = log.scrollHeight;
    this.lines = [];
    this.source.addEventListener("message", ({ data }) => this.add(log, data + "\n"));
    this.source.addEventListener("part", ({ data }) => this.add(log, data));
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

customElements.define("cairn-live", Live);
customElements.define("cairn-tail", Tail);
