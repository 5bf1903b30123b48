// Follows a topic by a stream of events.

import { Problem, respond } from "../api.js";

/** Follow a topic. `on` has a function for each event: records, progress, problem. */
export function tail(request, on, signal) {
  const path = `records/tail?${new URLSearchParams({ request: JSON.stringify(request) })}`;
  const source = new EventSource(path);
  const close = () => source.close();
  signal.addEventListener("abort", close);
  for (const name of ["records", "progress"]) {
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
    await respond(path, { signal: AbortSignal.any([signal, stop.signal]) });
    return new Problem(0, "interrupted", "The tail was interrupted. Start it again.");
  } catch (error) {
    return error;
  } finally {
    stop.abort();
  }
}
