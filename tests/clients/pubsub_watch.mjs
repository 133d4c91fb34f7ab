// Watches one topic with the npm Pub/Sub client over TLS, and prints one JSON line for everything that happens.
//
//   node pubsub_watch.mjs ENDPOINT HTTPS_URL REPLAY_ID TOPIC user-supplied TOKEN ORG_ID
//   node pubsub_watch.mjs ENDPOINT HTTPS_URL REPLAY_ID TOPIC username-password USERNAME PASSWORD
//
// REPLAY_ID is where to begin: -2 all, -1 new ones, or an id. When the stream ends or fails, a new client goes on after the last
// event printed. A line on stdin ends the program.
import process from "node:process";
import readline from "node:readline";
import PubSubApiClient from "salesforce-pubsub-api-client";

const [pubSubEndpoint, url, firstReplayId, topic, authType, first, second] = process.argv.slice(2);
const RETRY_MS = 150;
const BATCH = 100;

const credentials =
    authType === "user-supplied"
        ? {accessToken: first, organizationId: second, instanceUrl: url}
        : {loginUrl: url, username: first, password: second};
const silent = {debug() {}, info() {}, warn() {}, error() {}};

let lastReplayId = Number(firstReplayId);
let current = null;

function print(line) {
    process.stdout.write(
        JSON.stringify(line, (_, value) => (typeof value === "bigint" ? value.toString() : value)) + "\n",
    );
}

async function watch() {
    const client = new PubSubApiClient({authType, pubSubEndpoint, rejectUnauthorizedSsl: false, ...credentials}, silent);
    current = client;
    try {
        await client.connect();
    } catch (error) {
        print({kind: "error", message: String(error.cause ?? error)});
        retry(client);
        return;
    }
    const listen = (subscription, type, data) => {
        // A client that was given up may still be working on a batch; its successor asks for those events again.
        if (client !== current) {
            return;
        }
        if (type === "event") {
            lastReplayId = data.replayId;
            print({kind: "event", channel: topic, replayId: data.replayId, data: data.payload});
        } else if (type === "lastEvent") {
            client.requestAdditionalEvents(topic, BATCH);
        } else if (type === "error" || type === "end") {
            print({kind: type, message: data ? String(data.message ?? data) : null});
            retry(client);
        }
    };
    // One event first: the client decodes batches side by side while it waits for a schema, which could turn their
    // order round. After the first event it has the schema.
    if (lastReplayId === -2) {
        client.subscribeFromEarliestEvent(topic, listen, 1);
    } else if (lastReplayId === -1) {
        client.subscribe(topic, listen, 1);
    } else {
        client.subscribeFromReplayId(topic, listen, 1, lastReplayId);
    }
    print({kind: "asked", channel: topic, replayId: lastReplayId});
}

function retry(client) {
    current = null;
    client.close();
    setTimeout(watch, RETRY_MS);
}

function finish() {
    current?.close();
    process.stdout.write("", () => process.exit(0));
}

readline.createInterface({input: process.stdin}).once("line", finish).once("close", finish);
await watch();
