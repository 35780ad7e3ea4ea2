// holds: ops-other-masters

import type { ClientDuplexStream } from "@grpc/grpc-js";
import { eventually } from "@heddle/base/testing/eventually";
import type { EngineEvent, GenerateRequest } from "@heddle/contracts/engine";
import type { InferenceCommand } from "@heddle/contracts/generated/heddle/v1/InferenceCommand";
import type { InferenceEvents__Output } from "@heddle/contracts/generated/heddle/v1/InferenceEvents";
import { decodeEvent, encodeWork } from "@heddle/rpc/inference-codec";
import { Peer } from "@heddle/rpc/peer";
import { sessionMethod, workerInferenceService } from "@heddle/rpc/proto";
import { bindServer, closeServer } from "@heddle/rpc/server";
import { fromStatus } from "@heddle/rpc/status";
import { afterEach, beforeEach, expect, test } from "vitest";
import { scriptedPorts } from "../../test/scripted-ports.ts";
import { InferenceSession } from "./inference-session.ts";
import { ReplicaSet } from "./replica-set.ts";

const clusterToken = "the token of this test";
const silent = { info: () => {}, warn: () => {}, error: () => {} };
const weights = { key: "w", file: "m.gguf", sources: [] };
const request: GenerateRequest = {
  input: { kind: "text", text: "@tokens=3" },
  sampling: { temperature: 0, topP: 1, presencePenalty: 0, frequencyPenalty: 0, logitBias: [] },
  choices: 1,
  stop: [],
  format: "text",
};

let replicas: ReplicaSet;
let stream: ClientDuplexStream<InferenceCommand, InferenceEvents__Output>;
let close: () => Promise<void>;
/** The events of each frame that the worker sent. */
let frames: EngineEvent[][];
let ended: Promise<unknown>;

beforeEach(async () => {
  replicas = new ReplicaSet(scriptedPorts, { maxSequences: 16 }, silent, () => {});
  await replicas.load({ key: "m", engine: "llama", weights, options: {} });
  await eventually(() => replicas.statuses()[0]?.phase === "ready");
  const { server, address } = await bindServer({
    host: "127.0.0.1",
    port: 0,
    credentials: { clusterToken },
  });
  server.addService(workerInferenceService, {
    session: (call: ConstructorParameters<typeof InferenceSession>[0]) => {
      new InferenceSession(call, replicas);
    },
  });
  const node = { role: "master", name: "master-1" } as const;
  const peer = new Peer(address, { clusterToken, node });
  stream = peer.duplex(sessionMethod);
  frames = [];
  stream.on("data", (frame) => frames.push(frame.events.map(decodeEvent)));
  ended = new Promise((resolve) => {
    stream.on("error", (error) => resolve(fromStatus(error, address)));
    stream.on("end", () => resolve(undefined));
  });
  close = async () => {
    stream.cancel();
    peer.close();
    await replicas.close();
    await closeServer(server, 0);
  };
});

afterEach(() => close());

function wireOf(text: string, choices = 1) {
  return encodeWork({ ...request, choices, input: { kind: "text", text } }).request;
}

function start(id: number, text = "@tokens=3", change: object = {}): void {
  stream.write({
    start: { id, deployment: "m", request: wireOf(text), fairKey: "k", window: 256, ...change },
  });
}

const eventsOf = (id: number) => frames.flat().filter((event) => event.id === id);
const lastOf = (id: number) => eventsOf(id).at(-1);
const isEnded = (id: number) => ["done", "failed"].includes(lastOf(id)?.type ?? "");
const running = () => replicas.statuses()[0]?.load.running;

test("session: the events of one engine step leave in one frame", async () => {
  for (let id = 1; id <= 10; id += 1) start(id, "@tokens=50");
  await eventually(() => isEnded(1) && isEnded(10));
  const events = frames.flat().length;
  expect(events).toBeGreaterThan(500);
  expect(frames.length).toBeLessThan(events / 4);
});

test("session: no more events are sent than granted, the last one included", async () => {
  start(1, "@tokens=20", { window: 0 });
  start(2);
  await eventually(() => isEnded(2) && running() === 0);
  expect(eventsOf(1)).toEqual([]);
  stream.write({ grant: { id: 1, events: 2 } });
  await eventually(() => eventsOf(1).length === 2);
  stream.write({ grant: { id: 1, events: 2 } });
  await eventually(() => isEnded(1));
  expect(eventsOf(1).map(({ type }) => type)).toEqual(["started", "delta", "finish", "done"]);
});

test("session: held deltas leave as one, but for the first and at once with the end", async () => {
  start(1, "@tokens=50 @every=1", { holdMs: 600_000 });
  start(2, "@tokens=50 @every=1");
  await eventually(() => isEnded(1) && isEnded(2));
  const deltas = [1, 2].map((id) => eventsOf(id).flatMap((e) => (e.type === "delta" ? [e] : [])));
  const texts = deltas.map((each) => each.map(({ text }) => text).join(""));
  expect(deltas[0]?.map(({ tokens }) => tokens)).toEqual([1, 49]);
  expect(texts[0]).toBe(texts[1]);
});

test("session: deltas are held for their time at most", async () => {
  start(1, "@tokens=100000 @every=1", { holdMs: 20 });
  await eventually(() => eventsOf(1).length > 5);
  const [, begin, ...later] = eventsOf(1);
  expect(begin).toMatchObject({ type: "delta", tokens: 1 });
  expect(later.every((event) => event.type === "delta" && event.tokens > 1)).toBe(true);
});

test("session: an invalid request fails alone", async () => {
  start(1, "x", { deployment: "unknown" });
  start(2, "x", { request: undefined });
  start(3, "x", { request: { ...encodeWork(request).request, format: "xml" } });
  await replicas.load({
    key: "late",
    engine: "llama",
    weights: { ...weights, key: "slow-60000" },
    options: {},
  });
  start(4, "x", { deployment: "late" });
  start(5);
  await eventually(() => [1, 2, 3, 4, 5].every(isEnded));
  const codes = [1, 2, 3, 4].map((id) => {
    const last = lastOf(id);
    return last?.type === "failed" ? last.error.code : undefined;
  });
  expect(codes).toEqual(["model_not_found", "server_error", "server_error", "model_loading"]);
  expect(lastOf(5)?.type).toBe("done");
});

test("session: a cancelled request fails and frees its slot, with or without a window", async () => {
  start(1, "@tokens=100000 @every=1", { window: 1 });
  await eventually(() => running() === 1);
  stream.write({ cancel: { id: 1 } });
  await eventually(() => isEnded(1));
  expect(lastOf(1)).toMatchObject({ type: "failed", error: { code: "cancelled" } });
  expect(running()).toBe(0);
});

test("session: a report counts other masters' sequences until their engine is done", async () => {
  const others = (master: string) => replicas.statuses(master)[0]?.others;
  start(1, "", { request: wireOf("@tokens=100000 @every=1", 3) });
  await eventually(() => running() === 1);
  expect([others("master-1"), others("master-2")]).toEqual([0, 3]);
  stream.write({ cancel: { id: 1 } });
  await eventually(() => isEnded(1));
  expect(others("master-2")).toBe(0);
});

test("session: a duplicate id ends the stream and all its requests", async () => {
  start(1, "@tokens=100000 @every=1");
  start(1);
  expect(await ended).toMatchObject({ code: "invalid_value" });
  await eventually(() => running() === 0);
});

test("session: the stream's end cancels every request on it", async () => {
  start(1, "@tokens=100000 @every=1");
  start(2, "@tokens=100000 @every=1");
  await eventually(() => running() === 2);
  stream.end();
  await ended;
  await eventually(() => running() === 0);
});

test("session: unloading a deployment fails its requests with unavailable", async () => {
  start(1, "@tokens=100000 @every=1");
  await eventually(() => running() === 1);
  await replicas.unload("m");
  await eventually(() => isEnded(1));
  expect(lastOf(1)).toMatchObject({ type: "failed", error: { code: "unavailable" } });
});

test("session: a running load stays; a failed or changed one starts again", async () => {
  const spec = { key: "m", engine: "llama" as const, weights, options: {} };
  start(1, "@tokens=100000 @every=1");
  await eventually(() => running() === 1);
  await replicas.load(spec);
  expect(running()).toBe(1);
  await replicas.load({ ...spec, options: { maxSequences: 3 } });
  await eventually(() => replicas.statuses()[0]?.load.maxSequences === 3);
  await replicas.load({ ...spec, weights: { ...weights, key: "missing" } });
  await eventually(() => replicas.statuses()[0]?.phase === "failed");
  expect(replicas.statuses()[0]?.message).toBe("no source has missing");
  await replicas.load(spec);
  await eventually(() => replicas.statuses()[0]?.phase === "ready");
});
