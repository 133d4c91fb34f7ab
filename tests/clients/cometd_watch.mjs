// Watches channels with the npm CometD client and a replay extension, and prints one JSON line for everything that happens.
//
//   node cometd_watch.mjs URL TOKEN REPLAY_ID CHANNEL...
//
// REPLAY_ID is where each channel begins: -2 all, -1 new ones, or an id. The client is left to survive the death of the server by
// itself: CometD retries and shakes hands again; all this program adds is what every application must, to subscribe
// again after a handshake, from the last replay id it has seen. A line on stdin ends it.
import process from "node:process";
import readline from "node:readline";
import {adapt} from "cometd-nodejs-client";
import {CometD, Extension} from "cometd";

const [url, token, firstReplayId, ...channels] = process.argv.slice(2);
const lastReplayIds = new Map(channels.map((channel) => [channel, Number(firstReplayId)]));

function print(line) {
    process.stdout.write(JSON.stringify(line) + "\n");
}

class ReplayExtension extends Extension {
    #isOffered = false;

    incoming(message) {
        if (message.channel === "/meta/handshake") {
            this.#isOffered = message.ext?.replay === true;
        } else if (lastReplayIds.has(message.channel) && message.data?.event?.replayId) {
            lastReplayIds.set(message.channel, message.data.event.replayId);
        }
        return message;
    }

    outgoing(message) {
        if (message.channel === "/meta/subscribe" && this.#isOffered) {
            message.ext = {...message.ext, replay: {[message.subscription]: lastReplayIds.get(message.subscription)}};
        }
        return message;
    }
}

adapt();
const cometd = new CometD();
cometd.unregisterTransport("websocket");
cometd.registerExtension("replay", new ReplayExtension());
cometd.configure({
    url,
    requestHeaders: {Authorization: `Bearer ${token}`},
    appendMessageTypeToURL: false,
    logLevel: "error",
    backoffIncrement: 100,
    maxBackoff: 500,
});

cometd.addListener("/meta/handshake", (handshake) => {
    print({kind: "handshake", successful: handshake.successful, error: handshake.error ?? null});
    if (!handshake.successful) {
        return;
    }
    cometd.batch(() => {
        for (const channel of channels) {
            cometd.subscribe(
                channel,
                (message) =>
                    print({kind: "event", channel, replayId: message.data.event.replayId, data: message.data}),
                (reply) => print({kind: "subscribed", channel, successful: reply.successful, error: reply.error ?? null}),
            );
        }
    });
});
cometd.addListener("/meta/connect", (connect) => {
    if (!connect.successful) {
        print({kind: "connect", successful: false, error: connect.error ?? null});
    }
});

function finish() {
    cometd.disconnect(() => process.stdout.write("", () => process.exit(0)));
    // The server may be gone; then nobody answers the disconnect.
    setTimeout(() => process.exit(0), 2000);
}

readline.createInterface({input: process.stdin}).once("line", finish).once("close", finish);
cometd.handshake();
