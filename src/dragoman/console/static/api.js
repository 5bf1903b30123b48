// Requests to the console, relative to its page, so that it works under any path.

export class Problem extends Error {
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

/** Called when the session has ended; resolves to whether its user has logged in again. */
export const session = { renew: async () => false };

/** The answer to a request, if it was carried out. One that is refused for want of a login is repeated after it. */
export async function send(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "console_unreachable", "The console does not answer. Is its process running?");
  }
  if (response.ok) return response;
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // The answer is not from the console or the node, but from something between.
  }
  if (response.status === 401 && path !== "session" && (await session.renew())) return send(path, options);
  throw new Problem(
    response.status,
    problem.code ?? "unknown",
    problem.detail ?? `status ${response.status} from something between`,
  );
}

function options(method, body, signal) {
  const found = { method, signal, headers: { accept: "application/json" } };
  if (body !== undefined) {
    found.body = JSON.stringify(body);
    found.headers["content-type"] = "application/json";
  }
  return found;
}

async function ask(method, path, body, signal) {
  const response = await send(path, options(method, body, signal));
  return response.status === 204 ? null : response.json();
}

/** The lines of JSON that answer a request, as they come. */
export async function* lines(path, body, signal) {
  for await (const line of pieces(await send(path, options("POST", body, signal)), "\n")) yield JSON.parse(line);
}

/** Pieces of an answer between separators, as they come. */
export async function* pieces(response, separator) {
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

export const get = (path, signal) => ask("GET", path, undefined, signal);
export const post = (path, body, signal) => ask("POST", path, body, signal);
export const patch = (path, body, signal) => ask("PATCH", path, body, signal);
export const remove = (path, signal) => ask("DELETE", path, undefined, signal);

/** An object whose list of this name comes a page at a time, with all of it. */
export async function whole(path, name, signal) {
  const found = await get(path, signal);
  let { next } = found;
  while (next) {
    const page = await get(`${path}${query({ after: next })}`, signal);
    found[name].push(...page[name]);
    next = page.next;
  }
  return found;
}

/** A path of the API; each name is escaped. */
export const api = (...parts) => `api/v1/${parts.map((each) => encodeURIComponent(each)).join("/")}`;

/** A query string of the values that are set. */
export function query(values) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== "") found.append(name, value);
  }
  const text = found.toString();
  return text ? `?${text}` : "";
}
