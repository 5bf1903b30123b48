// Logs in with the settings of a file, produces a record, or records for so many seconds, and prints
// the name of the error, if any. See kafka_logins.py and kafka_token_expiry.py.

import { readFileSync } from "node:fs";

import { Kafka, logLevel } from "kafkajs";

const settings = JSON.parse(readFileSync(process.argv[2], "utf8"));
const file = settings.sasl?.tokenFile;
if (file) {
  settings.sasl.oauthBearerProvider = async () => ({ value: readFileSync(file, "utf8") });
}
const seconds = Number(process.argv[3] ?? 0);
const end = Date.now() + seconds * 1000;
const kafka = new Kafka({ logLevel: logLevel.NOTHING, retry: { retries: 0 }, ...settings });
const producer = kafka.producer({ retry: { retries: 0 } });
let found = "";
try {
  await producer.connect();
  do {
    await producer.send({ topic: "t", messages: [{ value: "v" }] });
    if (seconds) await new Promise((resolve) => setTimeout(resolve, 100));
  } while (Date.now() < end);
} catch (error) {
  const reason = error.type ?? error.cause?.type ?? error.cause?.name;
  found = reason ? `${error.name} ${reason}` : error.name;
}
console.log(found);
process.exit(0);
