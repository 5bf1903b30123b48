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

async function ask(method, path, body, signal) {
  const options = { method, signal, headers: { accept: "application/json" } };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["content-type"] = "application/json";
  }
  const response = await send(path, options);
  return response.status === 204 ? null : response.json();
}

export const get = (path, signal) => ask("GET", path, undefined, signal);
export const post = (path, body, signal) => ask("POST", path, body, signal);
export const patch = (path, body, signal) => ask("PATCH", path, body, signal);
export const remove = (path, signal) => ask("DELETE", path, undefined, signal);

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
