// Parts of a page that change: the server sends them anew while the page is seen. Without this script a page shows the
// values of when it was loaded.

import { parse, visit } from "./console.js";

class Live extends HTMLElement {
  connectedCallback() {
    this.said = this.querySelector("[data-live-state]");
    this.button = this.querySelector("[data-live-pause]");
    /** The texts of parts, as they came last. */
    this.known = new Map();
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
    this.source.addEventListener("parts", (event) => {
      this.say("Live.");
      this.show(JSON.parse(event.data));
    });
    // The login is over: the page to log in comes instead.
    this.source.addEventListener("end", () => {
      this.close();
      visit(location.href, { push: false });
    });
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

customElements.define("cairn-live", Live);
