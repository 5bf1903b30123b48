// Searches, whose answers are lines of JSON, and tails, whose answers are events.

import { Problem, send } from "../api.js";

/** Read the lines of a search as they come; `onLine` gets each. Resolves when there are no more. */
export async function search(request, onLine, signal) {
  const response = await send("records/search", {
    method: "POST", signal, body: JSON.stringify(request), headers: { "content-type": "application/json" },
  });
  for await (const line of pieces(response, "\n")) onLine(JSON.parse(line));
}

/** Follow a topic; `on` has a function for each kind of event. Ends by a problem only. */
export async function tail(request, on, signal) {
  const response = await send(`records/tail?${new URLSearchParams({ request: JSON.stringify(request) })}`, { signal });
  for await (const event of pieces(response, "\n\n")) {
    const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(event);
    const value = JSON.parse(data);
    if (name === "problem") throw new Problem(0, value.code, value.detail);
    on[name](value);
  }
  throw new Problem(0, "interrupted", "The console has ended it.");
}

/** Pieces of an answer between separators, as they come. */
async function* pieces(response, separator) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    let next;
    try {
      next = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem(0, "interrupted", "The connection to the console was lost.");
    }
    if (next.done) return;
    const found = (rest + next.value).split(separator);
    rest = found.pop();
    yield* found;
  }
}
