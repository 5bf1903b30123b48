// Keys, values and headers of records, as the API shows them.

/** Headers with the topic that a record came from. */
export const ORIGINS = ["rocketmq.RETRY_TOPIC", "rocketmq.DLQ_ORIGIN_TOPIC", "dragoman.topic"];

export const text = (payload) => (payload === null ? "null" : payload.encoding === "base64" ? `${payload.size} bytes, not text` : String(payload.data));
export const preview = (payload) => { const shown = text(payload); return shown.length > 120 ? `${shown.slice(0, 120)}…` : shown; };
export const headerOf = (row, names) => row.headers.find((each) => names.includes(each.name) && each.value?.encoding === "text")?.value.data ?? "";
