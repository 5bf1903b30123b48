// Searches, whose answers are lines of JSON, and tails, whose answers are events.

import { Problem, session } from "../api.js";

/** Read the lines of a search as they come; `onLine` gets each. Resolves when there are no more. */
export async function search(request, onLine, signal, path = "records/search") {
  const response = await asked(path, signal, {
    method: "POST",
    body: JSON.stringify(request),
    headers: { "content-type": "application/json" },
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) onLine(JSON.parse(line));
  }
}

/** Follow topics. `on` has a function for each event: start, records, progress, problem. */
export function tail(request, on, signal) {
  const path = `records/tail?${new URLSearchParams({ request: JSON.stringify(request) })}`;
  const source = new EventSource(path);
  const close = () => source.close();
  signal.addEventListener("abort", close);
  for (const name of ["start", "records", "progress"]) {
    source.addEventListener(name, (event) => on[name](JSON.parse(event.data)));
  }
  source.addEventListener("problem", (event) => {
    close();
    const problem = JSON.parse(event.data);
    on.problem(new Problem(0, problem.code, problem.detail));
  });
  source.addEventListener("error", async () => {
    close();
    if (signal.aborted) return;
    on.problem(await reason(path, signal));
  });
}

/** Why a stream of events could not be opened, which only another request finds out. */
async function reason(path, signal) {
  const stop = new AbortController();
  try {
    await asked(path, AbortSignal.any([signal, stop.signal]), {});
    return new Problem(0, "interrupted", "The tail was interrupted. Start it again.");
  } catch (error) {
    return error;
  } finally {
    stop.abort();
  }
}

async function asked(path, signal, options) {
  let response;
  try {
    response = await fetch(path, { signal, ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "console_unreachable", "The console does not answer. Is its process running?");
  }
  if (response.ok) return response;
  let found = {};
  try {
    found = await response.json();
  } catch {
    // The answer is from something between.
  }
  if (response.status === 401) session.onEnded();
  throw new Problem(response.status, found.code ?? "unknown", found.detail ?? `status ${response.status}`);
}
