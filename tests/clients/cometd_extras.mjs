// Watches one channel with the npm CometD client and what this server offers beyond the original service.
//
//   node cometd_extras.mjs URL TOKEN CHANNEL TRANSPORT [ack]
//
// TRANSPORT is websocket or long-polling; the other one is unregistered. With `ack`, CometD's own AckExtension is used.
// The channel is subscribed to after the first handshake only: whatever comes after a restart comes by the session's
// own memory. A line on stdin ends it.
import process from "node:process";
import readline from "node:readline";
import {adapt} from "cometd-nodejs-client";
import {CometD, Extension} from "cometd";
import {AckExtension} from "cometd/AckExtension.js";

const [url, token, channel, transport, ...extras] = process.argv.slice(2);

function print(line) {
    process.stdout.write(JSON.stringify(line) + "\n");
}

// A WebSocket made in the way of browsers has no headers; the token rides in the messages instead.
class TokenExtension extends Extension {
    outgoing(message) {
        if (message.channel === "/meta/handshake" || message.channel === "/meta/connect") {
            message.ext = {...message.ext, authorization: `Bearer ${token}`};
        }
        return message;
    }
}

adapt();
const cometd = new CometD();
if (transport === "websocket") {
    cometd.unregisterTransport("long-polling");
    cometd.unregisterTransport("callback-polling");
    cometd.registerExtension("token", new TokenExtension());
} else {
    cometd.unregisterTransport("websocket");
}
if (extras.includes("ack")) {
    cometd.registerExtension("ack", new AckExtension());
}
cometd.configure({
    url,
    requestHeaders: transport === "websocket" ? {} : {Authorization: `Bearer ${token}`},
    appendMessageTypeToURL: false,
    logLevel: "error",
    backoffIncrement: 100,
    maxBackoff: 500,
});

let isSubscribed = false;
cometd.addListener("/meta/handshake", (handshake) => {
    print({
        kind: "handshake",
        successful: handshake.successful,
        error: handshake.error ?? null,
        clientId: handshake.clientId ?? null,
        ack: handshake.ext?.ack ?? null,
        transport: cometd.getTransport()?.type ?? null,
    });
    if (handshake.successful && !isSubscribed) {
        isSubscribed = true;
        cometd.subscribe(
            channel,
            (message) => print({kind: "event", channel, replayId: message.data.event.replayId, data: message.data}),
            (reply) => print({kind: "subscribed", channel, successful: reply.successful, error: reply.error ?? null}),
        );
    }
});
cometd.addListener("/meta/connect", (connect) => {
    print({
        kind: "connect",
        successful: connect.successful,
        error: connect.error ?? null,
        ack: connect.ext?.ack ?? null,
    });
});

function finish() {
    cometd.disconnect(() => process.stdout.write("", () => process.exit(0)));
    // The server may be gone; then nobody answers the disconnect.
    setTimeout(() => process.exit(0), 2000);
}

readline.createInterface({input: process.stdin}).once("line", finish).once("close", finish);
cometd.handshake();
