// holds: kube-watch

import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { KubeConfig } from "@kubernetes/client-node";
import { afterEach, beforeEach, expect, it } from "vitest";
import { newMetadata } from "../../test/memory-objects.ts";
import type { CustomResource, ResourceStatus } from "./custom-resource.ts";
import { Reflector } from "./reflector.ts";
import { ResourceApi } from "./resource-api.ts";

// An API server whose lists and watches break as the test says; the operator's tests use a real one.

type Thing = CustomResource<object, ResourceStatus>;

let objects: Thing[];
/** What the next lists answer instead. */
let listFaults: number[];
let watches: ServerResponse[];
let watchStatus: number;
/** After how many seconds the server is to end each watch. */
let lengths: number[];
let changes: string[];
let warnings: object[];
let reflector: Reflector<Thing>;
let stop: AbortController;
let ended: Promise<void>;

const server = createServer((request, reply) => {
  const url = new URL(request.url ?? "", "http://localhost");
  const isWatch = url.searchParams.has("watch");
  const fault = isWatch ? watchStatus : (listFaults.shift() ?? 200);
  reply.writeHead(fault, { "content-type": "application/json" });
  const status = { kind: "Status", code: fault, message: "it is ill" };
  if (fault !== 200) return void reply.end(JSON.stringify(status));
  if (!isWatch) {
    return void reply.end(JSON.stringify({ metadata: { resourceVersion: "7" }, items: objects }));
  }
  reply.flushHeaders();
  watches.push(reply);
  lengths.push(Number(url.searchParams.get("timeoutSeconds")));
});

function thing(name: string): Thing {
  const metadata = newMetadata(name);
  return { apiVersion: "heddle.dev/v1alpha1", kind: "TrainingJob", metadata, spec: {} };
}

const send = (type: string, object: object) =>
  watches.at(-1)?.write(`${JSON.stringify({ type, object })}\n`);
const watching = (count: number) => expect.poll(() => watches.length).toBe(count);

beforeEach(async () => {
  objects = [thing("a"), thing("b")];
  [listFaults, watches, lengths, changes, warnings, watchStatus] = [[], [], [], [], [], 200];
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  const config = new KubeConfig();
  config.loadFromClusterAndUser(
    { name: "a", server: `http://127.0.0.1:${port}`, skipTLSVerify: true },
    { name: "a" },
  );
  const api = new ResourceApi<Thing>(config, "trainingjobs", "ns");
  const warn = (fields: object) => void warnings.push(fields);
  const log = { info: () => {}, warn, error: () => {} };
  reflector = new Reflector(api, (key) => changes.push(key), log);
  stop = new AbortController();
  ended = reflector.run(stop.signal);
});
afterEach(async () => {
  stop.abort();
  server.closeAllConnections();
  server.close();
  await ended;
});

it("reflector: lists, then follows the watch", async () => {
  await watching(1);
  expect(reflector.isSynced).toBe(true);
  expect(changes).toEqual(["ns/a", "ns/b"]);
  send("ADDED", thing("c"));
  send("BOOKMARK", { metadata: { resourceVersion: "9" } });
  send("DELETED", thing("a"));
  await expect.poll(() => changes).toEqual(["ns/a", "ns/b", "ns/c", "ns/a"]);
  expect([...reflector.objects()].map(({ metadata }) => metadata.name)).toEqual(["b", "c"]);
});

it("reflector: what a lost watch has missed, the next list shows", async () => {
  await watching(1);
  objects = [thing("b"), thing("c")];
  watches[0]?.destroy();
  await watching(2);
  expect(changes).toEqual(expect.arrayContaining(["ns/a", "ns/c"]));
  expect(reflector.get("ns/a")).toBeUndefined();
});

it("reflector: a quiet watch ends before the client gives it up", async () => {
  await watching(1);
  expect(lengths[0]).toBeGreaterThan(10);
  expect(lengths[0]).toBeLessThan(30);
});

it("reflector: an expired version (410) is followed by a new list", async () => {
  await watching(1);
  objects = [thing("d")];
  send("ERROR", { kind: "Status", code: 410, message: "too old resource version" });
  await watching(2);
  expect([...reflector.objects()].map(({ metadata }) => metadata.name)).toEqual(["d"]);
});

it("reflector: errors of the server (500, 403) are outlived and logged", async () => {
  await watching(1);
  listFaults = [500, 403];
  objects = [thing("e")];
  watchStatus = 500;
  watches[0]?.end();
  await expect.poll(() => listFaults.length).toBe(0);
  watchStatus = 200;
  await watching(2);
  await expect.poll(() => reflector.isSynced).toBe(true);
  expect(reflector.get("ns/e")).toBeDefined();
  for (const why of ["500: it is ill", "403: it is ill"]) {
    expect(warnings).toContainEqual({ plural: "trainingjobs", why });
  }
});
