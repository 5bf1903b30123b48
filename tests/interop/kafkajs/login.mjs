// Logs in with the settings of a file, produces a record, and prints the name of the error, if any.
// See kafka_logins.py.

import { readFileSync } from "node:fs";

import { Kafka, logLevel } from "kafkajs";

const settings = JSON.parse(readFileSync(process.argv[2], "utf8"));
const token = settings.sasl?.token;
if (token) {
  settings.sasl.oauthBearerProvider = async () => ({ value: token });
}
const kafka = new Kafka({ logLevel: logLevel.NOTHING, retry: { retries: 0 }, ...settings });
const producer = kafka.producer({ retry: { retries: 0 } });
let found = "";
try {
  await producer.connect();
  await producer.send({ topic: "t", messages: [{ value: "v" }] });
} catch (error) {
  const reason = error.type ?? error.cause?.type ?? error.cause?.name;
  found = reason ? `${error.name} ${reason}` : error.name;
}
console.log(found);
process.exit(0);
