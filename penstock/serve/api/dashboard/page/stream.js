"use strict";
// The live data: server-sent events over fetch, which can send the key as EventSource cannot.

const key = { get: () => memory.get("key", "sessionStorage") || "", set: (text) => memory.set("key", text, "sessionStorage") };
const inBytes = (text) => String.fromCharCode(...new TextEncoder().encode(text)); // as UTF-8: a header takes no other characters
const headers = () => (key.get() ? { Authorization: `Bearer ${inBytes(key.get())}` } : {});

/** The JSON values of a response's events; [DONE] and comments are left out. `heard` is told whenever anything comes. */
async function* events(response, heard = () => {}) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    heard();
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: ") && part !== "data: [DONE]") yield JSON.parse(part.slice(6));
  }
}

/** The message of an answer that is an error. */
async function complaint(response) {
  try { return (await response.json()).error.message; } catch { return `the server answered ${response.status}`; }
}

let gist = ""; // of what was said last

/** Figures in the text change by themselves: they are shown, and said aloud only with other words. */
function say(state, text) {
  const status = at("status"), words = text.replace(/\d+/g, "");
  if (status.textContent !== text) status.textContent = text;
  status.dataset.state = state;
  if (words !== gist) at("status-said").textContent = text;
  gist = words;
}

const FIRST_WAIT_MS = 500, LONGEST_WAIT_MS = 10000, SILENT_MS = 20000;
let again = () => {}; // connects at once

/** Connects and hands each event to `take`, for as long as the server is heard of. Returns where a key is missing, and else throws why it ends. */
async function listen(take) {
  const stop = new AbortController();
  let silence = 0;
  const hush = () => { clearTimeout(silence); silence = setTimeout(() => stop.abort(), SILENT_MS); };
  try {
    hush();
    const response = await fetch("dashboard/events", { headers: headers(), signal: stop.signal, cache: "no-store" });
    if (response.status === 401) return;
    if (!response.ok) throw new Error(await complaint(response));
    say("wait", "connected, waiting for the step in flight");
    for await (const event of events(response, hush)) {
      if (event.type === "bye") throw new Error("the server is stopping");
      try { take(event); } catch (error) { throw new Error(`this page cannot show what the server sends (${error.message})`); }
    }
    throw new Error("the connection ended");
  } finally {
    clearTimeout(silence);
    stop.abort();
  }
}

/** For ever: listens, and connects again when the server has gone, after telling `lose` why. */
async function follow(take, lose) {
  let wait = FIRST_WAIT_MS;
  for (;;) {
    try {
      await listen((event) => { take(event); if (event.type === "update") wait = FIRST_WAIT_MS; });
      say("bad", "API key needed");
      await askForKey(key.get() ? "That key was not accepted." : "This server needs an API key. It is kept in this tab only.");
    } catch (error) {
      lose(error instanceof TypeError || error.name === "AbortError" ? "the server is not responding" : error.message);
      await new Promise((resolve) => { again = resolve; setTimeout(resolve, wait); });
      wait = Math.min(LONGEST_WAIT_MS, wait * 1.6);
    }
  }
}

function showKey(why) {
  const dialog = at("ask-key");
  at("key-why").textContent = why;
  at("key-text").value = key.get();
  if (!dialog.open) dialog.showModal();
}

/** Shows the dialog until a key is given; cancelled, the status says what is missing and the key button brings it back. */
function askForKey(why) {
  showKey(why);
  return new Promise((resolve) => { keyGiven = resolve; });
}

let keyGiven = () => {};

function wireKey() {
  const dialog = at("ask-key");
  dialog.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = at("key-text").value.trim();
    if (/\p{Cc}/u.test(text)) {
      at("key-why").textContent = "No key has control characters in it, as this text does.";
      return;
    }
    key.set(text);
    dialog.close();
    keyGiven();
    again();
  });
  at("key-cancel").addEventListener("click", () => dialog.close());
  at("key").addEventListener("click", () => showKey("Sent with every request of this page. It is kept in this tab only."));
}
