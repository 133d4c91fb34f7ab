// Makes, watches and feeds a generic channel with jsforce, and prints one JSON line per step with what came back.
//
//   node jsforce_generic.mjs URL USERNAME PASSWORD CHANNEL VERSION
//
// The program checks nothing itself: the test that starts it does. An error ends it.
import process from "node:process";
import jsforce from "jsforce";
import streaming from "jsforce/lib/api/streaming.js";

const {StreamingExtension} = streaming;
const [loginUrl, username, password, channel, version] = process.argv.slice(2);

function print(step, result) {
    process.stdout.write(JSON.stringify({kind: "step", step, result}) + "\n");
}

/** Subscribes through `watch(take)` and gives a function that waits for so many messages. */
async function watching(watch) {
    const seen = [];
    let wake = () => {};
    await watch((message) => {
        seen.push(message);
        wake();
    });
    return async (count) => {
        while (seen.length < count) await new Promise((resolve) => (wake = resolve));
        return seen;
    };
}

const conn = new jsforce.Connection({loginUrl, version});
await conn.loginBySoap(username, password);
print("made", await conn.sobject("StreamingChannel").create({Name: channel, Description: "jsforce"}));
const generic = conn.streaming.channel(channel);
print("early", await generic.push({payload: "early", userIds: []}));
const live = await watching((take) => generic.subscribe(take));
print("one", await generic.push({payload: "hello", userIds: []}));
print("many", await generic.push([
    {payload: "for me", userIds: [conn.userInfo.id]},
    {payload: "for another", userIds: ["005000000000001AAA"]},
    {payload: "for all", userIds: []},
]));
print("live", await live(3));
// For 36.0 jsforce takes the endpoint with replay only where it makes the client itself, which then asks for none.
if (Number(version) >= 37) {
    const replayed = conn.streaming.createClient([new StreamingExtension.Replay(channel, -2)]);
    const all = await watching((take) => replayed.subscribe(channel, take));
    print("replayed", await all(4));
    const ids = (await all(4)).map((message) => message.event.replayId);
    const resumed = conn.streaming.createClient([new StreamingExtension.Replay(channel, ids[1])]);
    const rest = await watching((take) => resumed.subscribe(channel, take));
    print("resumed", await rest(2));
}
const dynamic = await watching((take) => conn.streaming.channel(`${channel}/made`).subscribe(take));
print("dynamic push", await conn.streaming.channel(`${channel}/made`).push({payload: "made", userIds: []}));
print("dynamic", await dynamic(1));
print("end", true);
process.exit(0);
