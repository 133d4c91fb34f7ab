// Watches a channel with the streaming part of jsforce and its own replay extension, and prints one JSON line per event.
//
//   node jsforce_watch.mjs URL TOKEN REPLAY_ID CHANNEL
//
// URL is the server's, without a path. A line on stdin ends it.
import {createRequire} from "node:module";
import process from "node:process";
import readline from "node:readline";
import jsforce from "jsforce";

// Its documentation knows this part by a folder, which only `require` can find.
const {StreamingExtension} = createRequire(import.meta.url)("jsforce/api/streaming");

const [instanceUrl, accessToken, firstReplayId, channel] = process.argv.slice(2);

function print(line) {
    process.stdout.write(JSON.stringify(line) + "\n");
}

const conn = new jsforce.Connection({instanceUrl, accessToken, version: "59.0"});
const replay = new StreamingExtension.Replay(channel, Number(firstReplayId));
const gone = new StreamingExtension.AuthFailure((message) => print({kind: "refused", message}));
const client = conn.streaming.createClient([gone, replay]);
const subscription = client.subscribe(channel, (data) =>
    print({kind: "event", channel, replayId: data.event.replayId, data}));
subscription.then(
    () => print({kind: "subscribed", channel, successful: true}),
    (error) => print({kind: "subscribed", channel, successful: false, error: error.message}),
);

function finish() {
    client.disconnect();
    setTimeout(() => process.exit(0), 500);
}

readline.createInterface({input: process.stdin}).once("line", finish).once("close", finish);
