// Pages are fetched and swapped in place, so that uploads go on while one looks around. Without this script every link
// and form does the same by itself.

const policy = globalThis.trustedTypes?.createPolicy("console", { createHTML: (text) => text });

/** The document of a text that this server made. */
export function parse(text) {
  return new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, "text/html");
}

/** Whether the console itself has answered, with something of this kind: a proxy may do so, too, and a redirect may lead
 * to the bytes of a user. */
export function isOwn(reply, kind) {
  const { type, headers } = reply;
  return type !== "cors" && headers.has("x-cairn-console") && (headers.get("content-type") ?? "").startsWith(kind);
}

export const FOREIGN = "Something else has answered than the console. Try again in a moment.";
const LOGGED_OUT = "The login has ended, and uploads wait on this page. Log in again in another tab, then go on here.";

const styles = (page) => page.querySelector("link[rel=stylesheet]")?.getAttribute("href");
let turn = 0;

/** Shows the page at `url`. */
export async function visit(url, { method = "GET", body, push = true, stay = false } = {}) {
  const mine = ++turn;
  document.body.classList.add("busy");
  try {
    const reply = await fetch(url, { method, body, headers: { accept: "text/html" } });
    if (!isOwn(reply, "text/html")) {
      if (mine !== turn) return;
      // The browser shows it as what it is, and not as a page of the console.
      if (method === "GET" && reply.status < 500) location.assign(url);
      else tell(FOREIGN);
      return;
    }
    const page = parse(await reply.text());
    if (mine !== turn) return;
    const main = page.querySelector("main");
    // The page to log in would take the place of files that are not uploaded yet.
    if (reply.redirected && new URL(reply.url).pathname === "/login" && document.querySelector("cairn-uploads")?.isUnderWay) {
      tell(LOGGED_OUT);
      return;
    }
    // The page to log in, or a page of another version of the server.
    if (!main || !page.querySelector(".top") || styles(page) !== styles(document)) {
      location.assign(method === "GET" || reply.redirected ? reply.url : location.href);
      return;
    }
    swap(page, main, stay);
    if (push && (method === "GET" || reply.redirected) && reply.url !== location.href) {
      history.pushState({}, "", reply.url);
    }
  } catch {
    if (mine === turn) tell("The server cannot be reached. Try again in a moment.");
  } finally {
    if (mine === turn) document.body.classList.remove("busy");
  }
}

function swap(page, main, stay) {
  const top = scrollY;
  document.title = page.title;
  const adopted = document.adoptNode(main);
  document.querySelector("main").replaceWith(adopted);
  document.querySelector(".top").replaceWith(document.adoptNode(page.querySelector(".top")));
  if (stay) {
    scrollTo(0, top);
  } else {
    scrollTo(0, 0);
    adopted.focus({ preventScroll: true });
  }
  offer();
}

/** Says what went wrong, above the page. */
export function tell(text) {
  document.querySelector("main > .error")?.remove();
  const said = document.createElement("p");
  said.className = "error";
  said.setAttribute("role", "alert");
  said.textContent = text;
  document.querySelector("main").prepend(said);
}

/** By what an element is found in another state of the same page. */
function markOf(element) {
  const { id, name, value, tagName, dataset } = element;
  const text = element.getAttribute("href") ?? dataset.needsSelection ?? element.textContent;
  return JSON.stringify([tagName, id, name, tagName === "INPUT" ? value : text]);
}

const CHECKED = "input[type=checkbox]:checked, input[type=radio]:checked";

/** Puts a part of a page into the place of its former state. What was chosen and had the focus stays so. */
function renew(old, fresh) {
  const focused = old.contains(document.activeElement) && document.activeElement;
  const checked = new Set([...old.querySelectorAll(CHECKED)].map(markOf));
  const isAll = old.querySelector("input[name=all]:checked");
  const adopted = document.adoptNode(fresh);
  old.replaceWith(adopted);
  for (const box of adopted.querySelectorAll("input")) if (checked.has(markOf(box))) box.checked = true;
  if (isAll) adopted.querySelector("input[name=all]")?.dispatchEvent(new Event("change", { bubbles: true }));
  if (!focused) return;
  const mark = markOf(focused);
  const found = [...adopted.querySelectorAll("a, button, input, summary")].find((one) => markOf(one) === mark);
  (found ?? document.querySelector("main")).focus({ preventScroll: true });
}

let mending;
let isWanted = false;

/** Others have changed what is shown: the parts of the page that say so are asked for again. */
export function mend() {
  isWanted = true;
  mending ??= (async () => {
    // One at a time, and once more for what came meanwhile.
    while (isWanted) {
      isWanted = false;
      await renewAll();
    }
    mending = undefined;
  })();
  return mending;
}

async function renewAll() {
  const [url, at] = [location.href, turn];
  let page, reply;
  try {
    reply = await fetch(url, { headers: { accept: "text/html", "x-cairn-refresh": "1" } });
    if (!isOwn(reply, "text/html")) return tell(FOREIGN);
    page = parse(await reply.text());
  } catch {
    return; // the page is told again when there is a connection
  }
  if (location.href !== url || turn !== at) return;
  const said = document.querySelector("main > .error");
  if (said?.textContent === FOREIGN || (said?.textContent === LOGGED_OUT && !reply.redirected)) said.remove();
  if (!reply.ok || reply.redirected || styles(page) !== styles(document)) return visit(url, { push: false, stay: true });
  for (const fresh of page.querySelectorAll("[data-live]")) {
    const old = document.querySelector(`[data-live="${fresh.dataset.live}"]`);
    const listing = old?.querySelector("cairn-listing");
    if (listing?.grid) listing.mend();
    else if (old && old.outerHTML !== fresh.outerHTML) renew(old, fresh);
  }
  selected();
}

/** Something was changed by this page itself. */
export function refresh() {
  if (document.querySelector("main [data-live]")) mend();
}

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target.closest("a[href]");
  if (!link || link.target || link.origin !== location.origin || "plain" in link.dataset) return;
  if (link.hash && link.pathname === location.pathname && link.search === location.search) return;
  event.preventDefault();
  visit(link.href);
});

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (event.defaultPrevented || "plain" in form.dataset) return;
  event.preventDefault();
  const fields = new URLSearchParams(new FormData(form, event.submitter));
  const action = event.submitter?.hasAttribute("formaction") ? event.submitter.formAction : form.action;
  if (form.method === "get") {
    visit(`${form.getAttribute("action")}?${fields}`);
  } else {
    visit(action, { method: "POST", body: fields });
  }
});

addEventListener("popstate", () => visit(location.href, { push: false }));

// Menus close when something else is wanted.
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  const menu = event.target.closest?.("details.menu[open]");
  if (menu) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});
document.addEventListener("toggle", (event) => {
  if (event.target.open) event.target.querySelector?.("input:not([type=hidden])")?.focus();
}, true);

/** The buttons that do something with what is selected say how much that is. */
export function selected() {
  for (const button of document.querySelectorAll("button[data-needs-selection]")) {
    const form = button.form;
    const listing = form.querySelector("cairn-listing");
    const isAll = form.querySelector("input[name=all]:checked");
    const count = form.querySelectorAll("input[name=key]:checked").length + (listing?.selected?.size ?? 0);
    const word = button.dataset.needsSelection;
    button.disabled = !isAll && count === 0;
    const what = isAll ? "all" : count ? `${count.toLocaleString("en")} selected` : "selected";
    button.textContent = `${word} ${what}…`;
  }
}

/** What needs a script is shown by one. */
function offer() {
  for (const button of document.querySelectorAll("button[data-copies]")) {
    button.hidden = !navigator.clipboard;
  }
  document.querySelector("a[data-follows]")?.click();
  selected();
}

document.addEventListener("change", (event) => {
  const box = event.target;
  if (box.name === "all") {
    // What is selected as a part of all is not selected by itself.
    for (const one of box.form.querySelectorAll("input[name=key]")) {
      one.checked = one.disabled = box.checked;
    }
    const listing = box.form.querySelector("cairn-listing");
    if (listing?.selectAll) listing.selectAll(box.checked);
  }
  selected();
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("button[data-copies]");
  if (!button) return;
  const field = document.getElementById(button.dataset.copies);
  try {
    await navigator.clipboard.writeText(field.value);
    button.textContent = "Copied";
  } catch {
    field.select();
    button.textContent = "Press Ctrl+C";
  }
});

offer();
