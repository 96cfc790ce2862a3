"use strict";
// A conversation with the served model, over the same API that everyone uses.

const chat = { messages: [], stop: null };

function entry(kind, text) {
  const made = element("article", { className: kind, textContent: text });
  at("log").querySelector(".empty")?.remove();
  at("log").append(made);
  at("log").scrollTop = at("log").scrollHeight;
  return made;
}

/** Shows the answer as it comes, and what it took. A question without an answer is forgotten. */
async function answer() {
  const stop = chat.stop = new AbortController(), messages = chat.messages;
  at("log").ariaBusy = "true"; // said when it is whole, not token by token
  const began = performance.now();
  let first = null, text = "", usage = null, thought = null, shown = null, failed = false;
  const body = { messages, max_tokens: Number(at("max-tokens").value), temperature: Number(at("temperature").value), stream: true, stream_options: { include_usage: true } };
  try {
    const response = await fetch("v1/chat/completions", { method: "POST", signal: stop.signal, headers: { "Content-Type": "application/json", ...headers() }, body: JSON.stringify(body) });
    if (response.status === 401) showKey("This server needs an API key. Enter it, then send again.");
    if (!response.ok) throw new Error(await complaint(response));
    for await (const event of events(response)) {
      if (event.error) throw new Error(event.error.message);
      usage = event.usage || usage;
      const delta = event.choices?.[0]?.delta ?? {};
      if (first === null && (delta.content || delta.reasoning_content)) first = performance.now();
      const log = at("log"), follows = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
      if (delta.reasoning_content) (thought ??= entry("thought", "")).append(delta.reasoning_content);
      if (delta.content) {
        const before = text.trimStart();
        text += delta.content;
        (shown ??= entry("assistant", "")).append(before ? delta.content : text.trimStart());
      }
      if (follows) log.scrollTop = log.scrollHeight;
    }
  } catch (error) {
    if (error.name !== "AbortError") {
      entry("error", error instanceof TypeError ? "The server is not responding." : error.message);
      failed = !text;
    }
  }
  chat.stop = null;
  at("log").ariaBusy = "false";
  if (text) messages.push({ role: "assistant", content: text });
  else {
    const asked = messages.pop();
    if (failed && messages === chat.messages && !at("say").value) at("say").value = asked.content; // to be mended, not typed again
  }
  if (messages !== chat.messages) return; // cleared meanwhile
  const parts = [];
  if (usage) parts.push(`${count(usage.prompt_tokens)} tokens in${usage.prompt_tokens_details?.cached_tokens ? ` (${count(usage.prompt_tokens_details.cached_tokens)} cached)` : ""}, ${count(usage.completion_tokens)} out`);
  if (first !== null) {
    parts.push(`first token after ${timed((first - began) / 1000)}`);
    const seconds = (performance.now() - first) / 1000;
    if (usage && usage.completion_tokens > 1 && seconds > 0) parts.push(`${figure((usage.completion_tokens - 1) / seconds)} tok/s`);
  }
  if (stop.signal.aborted) parts.push("stopped");
  if (parts.length) entry("meta", parts.join(" · "));
}

async function send() {
  const box = at("say"), text = box.value.trim() || box.placeholder;
  box.value = "";
  entry("user", text);
  chat.messages.push({ role: "user", content: text });
  at("send").textContent = "Stop";
  await answer();
  at("send").textContent = "Send";
}

function wireChat() {
  at("ask").addEventListener("submit", (event) => { event.preventDefault(); if (!chat.stop) send(); });
  at("send").addEventListener("click", (event) => { if (chat.stop) { event.preventDefault(); chat.stop.abort(); } });
  at("say").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); at("ask").requestSubmit(); }
    if (event.key === "Escape") { if (chat.stop) chat.stop.abort(); else event.target.blur(); }
  });
  for (const field of ["max-tokens", "temperature"]) at(field).addEventListener("keydown", (event) => {
    if (event.key === "Enter") { event.preventDefault(); at("say").focus(); } // which would press the button: Send, or Stop
  });
  at("clear").addEventListener("click", () => {
    chat.stop?.abort();
    chat.messages = [];
    at("log").replaceChildren(element("p", { className: "empty", textContent: "Ask something, and watch its lane and blocks while it is answered." }));
  });
}
