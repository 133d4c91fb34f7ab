// Faye as its documentation sets it up, on a free port of loopback, which is printed once it listens.

import http from "node:http";
import faye from "faye";

const HOLD_S = 110; // as ours holds a long poll

const server = http.createServer();
server.keepAliveTimeout = 0; // the connection that makes sessions rests between turns
new faye.NodeAdapter({ mount: "/bayeux", timeout: HOLD_S }).attach(server);
server.listen({ port: 0, host: "127.0.0.1", backlog: 1024 }, () => console.log(server.address().port));
