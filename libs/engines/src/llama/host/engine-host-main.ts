import { once } from "node:events";
import { connect } from "node:net";
import { forkEngine } from "../parent/fork-engine.ts";
import { type HostFrame, linkFrame, linkFrames, type OwnerFrame } from "./link-frames.ts";

/**
 * The program of an engine's own container. It connects to the given socket, runs one engine
 * process for the other side, and ends with either of them.
 */
const [path = ""] = process.argv.slice(2);
const socket = connect(path);
const send = (frame: HostFrame) => socket.writable && socket.write(linkFrame(frame));
const ended = Promise.withResolvers<string>();
const engine = forkEngine(
  {
    message: (message) => send({ kind: "message", message }),
    errorOutput: (text) => send({ kind: "errorOutput", text }),
    failed: ({ message }) => send({ kind: "failed", message }),
    ended: ended.resolve,
  },
  false,
);
const frames = linkFrames<OwnerFrame>(({ message }) => engine.send(message));
socket.on("data", (piece) => frames.push(piece));
socket.on("error", ({ message }) => process.stderr.write(`${path}: ${message}\n`));
// An owner that is gone needs no engine any more.
socket.on("close", () => {
  engine.kill();
  process.exit();
});
let why: string | undefined;
// The first process of a container has no default for it.
process.on("SIGTERM", () => {
  why = "with its container, as by an eviction";
  engine.kill();
});

// As fast as the owner reads: a slow one holds the engine up, as it does on its own machine.
for await (const bytes of engine.events as AsyncIterable<Buffer>) {
  if (send({ kind: "events", bytes }) === false) await once(socket, "drain");
}
const how = await ended.promise;
socket.end(linkFrame({ kind: "ended", how: why ?? how }));
