// Logs in, produces a record, and prints the name of the error, if any. See kafka_logins.py.

import { readFileSync } from "node:fs";

import { Kafka, logLevel } from "kafkajs";

const [servers, mechanism, name, secret] = process.argv.slice(2);
const sasl =
  mechanism === "OAUTHBEARER"
    ? {
        mechanism: "oauthbearer",
        oauthBearerProvider: async () => ({ value: readFileSync(secret, "utf8") }),
      }
    : { mechanism: mechanism.toLowerCase(), username: name, password: secret };
const kafka = new Kafka({
  brokers: servers.split(","),
  logLevel: logLevel.NOTHING,
  retry: { retries: 0 },
  sasl,
});
const producer = kafka.producer({ retry: { retries: 0 } });
let found = "";
try {
  await producer.connect();
  await producer.send({ topic: "t", messages: [{ value: "v" }] });
} catch (error) {
  const type = error.type ?? error.cause?.type;
  found = type ? `${error.name} ${type}` : error.name;
}
console.log(found);
process.exit(0);
