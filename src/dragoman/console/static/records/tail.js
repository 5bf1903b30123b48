// Follows topics by a stream of events.

import { Problem, pieces, send } from "../api.js";

/** Follow topics; `on` has a function for each kind of event. Ends by a problem only. */
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
