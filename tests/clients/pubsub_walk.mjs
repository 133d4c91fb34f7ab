// Publishes, subscribes, resumes and commits with the npm Pub/Sub client over TLS, and prints one JSON line per step.
//
//   node pubsub_walk.mjs CONFIGURATION TOPIC COUNT             publish one event and two batches, read them back, resume
//   node pubsub_walk.mjs CONFIGURATION managed NAME COUNT SKIP  take COUNT events, commit all but the last SKIP of them
//
// CONFIGURATION is the client's own, as JSON.
import process from "node:process";
import PubSubApiClient from "salesforce-pubsub-api-client";

const [configuration, ...rest] = process.argv.slice(2);
const silent = {debug() {}, info() {}, warn() {}, error() {}};
const client = new PubSubApiClient(JSON.parse(configuration), silent);

function print(line) {
    process.stdout.write(
        JSON.stringify(line, (_, value) => (typeof value === "bigint" ? value.toString() : value)) + "\n",
    );
}

function event(number) {
    return {
        CreatedDate: Date.now(),
        CreatedById: "005000000000001AAA",
        Number__c: {string: String(number)},
    };
}

// An assertion of the JWT flow is good once, and this client's are alike within a second.
async function signIn(reader) {
    for (let attempt = 0; ; attempt++) {
        try {
            return await reader.connect();
        } catch (error) {
            if (attempt === 5 || !String(error.cause ?? error).includes("used before")) {
                throw error;
            }
            await new Promise((resolve) => setTimeout(resolve, 1000));
        }
    }
}

// What a subscription delivers until `count` events have come; a new client for each, as one has one per topic.
async function collect(start, count) {
    const reader = new PubSubApiClient(JSON.parse(configuration), silent);
    await signIn(reader);
    const events = await new Promise((resolve, reject) => {
        const found = [];
        start(reader, (subscription, type, data) => {
            if (type === "event") {
                found.push({replayId: data.replayId, id: data.id, number: data.payload.Number__c});
            } else if (type === "lastEvent" && found.length >= count) {
                resolve(found);
            } else if (type === "error") {
                reject(data);
            }
        });
    });
    reader.close();
    return events;
}

function batch(topic, numbers) {
    return new Promise((resolve, reject) => {
        client.publishBatch(
            topic,
            numbers.map((number) => ({id: `batch-${number}`, payload: event(number)})),
            (info, type, data) => {
                if (type === "publishResponse") {
                    resolve(data.results);
                } else if (type === "error") {
                    reject(data);
                }
            },
        );
    });
}

async function walk(topic, count) {
    const first = await client.publish(topic, event(0), "the-first");
    print({kind: "published", results: [first]});
    const half = Math.floor(count / 2);
    const numbers = Array.from({length: count}, (_, n) => n + 1);
    print({kind: "published", results: await batch(topic, numbers.slice(0, half))});
    print({kind: "published", results: await batch(topic, numbers.slice(half))});
    const all = await collect((reader, listen) => reader.subscribeFromEarliestEvent(topic, listen, count + 1), count + 1);
    print({kind: "read", events: all});
    const middle = all[half].replayId;
    const after = await collect(
        (reader, listen) => reader.subscribeFromReplayId(topic, listen, count - half, middle),
        count - half,
    );
    print({kind: "resumed", after: middle, events: after});
    try {
        await client.publish("/event/Nothing_Like_It__e", event(0));
    } catch (error) {
        print({kind: "refused", message: String(error.cause?.message ?? error.cause ?? error)});
    }
}

async function managed(name, count, skip) {
    const found = [];
    await new Promise((resolve, reject) => {
        let hasCommitted = false;
        client
            .subscribeWithManagedSubscription(
                name,
                (subscription, type, data) => {
                    if (type === "event") {
                        found.push({replayId: data.replayId, number: data.payload.Number__c});
                        if (found.length === count - skip) {
                            client.commitReplayId(subscription.subscriptionId, data.replayId);
                            hasCommitted = true;
                        }
                    } else if (type === "grpcKeepAlive" && hasCommitted) {
                        // The answer to a commit has no events, which this client takes for a sign of life.
                        resolve();
                    } else if (type === "error") {
                        reject(data);
                    }
                },
                count,
            )
            .catch(reject);
    });
    print({kind: "read", events: found});
}

try {
    await client.connect();
    if (rest[0] === "managed") {
        await managed(rest[1], Number(rest[2]), Number(rest[3]));
    } else {
        await walk(rest[0], Number(rest[1]));
    }
    print({kind: "done"});
} catch (error) {
    print({kind: "failed", message: String(error.cause ?? error)});
}
client.close();
process.stdout.write("", () => process.exit(0));
