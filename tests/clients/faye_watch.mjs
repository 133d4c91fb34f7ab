// Watches a channel with the npm Faye client and a replay extension, and prints one JSON line for everything that happens.
//
//   node faye_watch.mjs URL TOKEN REPLAY_ID CHANNEL
//
// Faye retries, shakes hands again and subscribes again by itself; the extension tells the server where to go on. A line on
// stdin ends it.
import process from "node:process";
import readline from "node:readline";
import faye from "faye";

const [url, token, firstReplayId, channel] = process.argv.slice(2);
let lastReplayId = Number(firstReplayId);

function print(line) {
    process.stdout.write(JSON.stringify(line) + "\n");
}

const client = new faye.Client(url, {retry: 0.5});
client.disable("websocket");
client.setHeader("Authorization", `OAuth ${token}`);
client.addExtension({
    outgoing(message, forward) {
        if (message.channel === "/meta/subscribe") {
            message.ext = {...message.ext, replay: {[message.subscription]: lastReplayId}};
        }
        forward(message);
    },
    incoming(message, forward) {
        if (message.channel === "/meta/handshake") {
            print({kind: "handshake", successful: message.successful});
        } else if (message.channel === "/meta/subscribe") {
            print({kind: "subscribed", channel, successful: message.successful, error: message.error ?? null});
        } else if (message.channel === channel) {
            lastReplayId = message.data.event.replayId;
        }
        forward(message);
    },
});
client.subscribe(channel, (data) => print({kind: "event", channel, replayId: data.event.replayId, data}));

function finish() {
    client.disconnect();
    setTimeout(() => process.exit(0), 500);
}

readline.createInterface({input: process.stdin}).once("line", finish).once("close", finish);
