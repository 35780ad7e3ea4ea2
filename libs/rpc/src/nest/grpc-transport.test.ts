import "reflect-metadata";
import { eventually } from "@heddle/base/testing/eventually";
import { afterEach, expect, test } from "vitest";
import { Peer } from "../peer.ts";
import { method } from "../proto.ts";
import { bindServer, closeServer } from "../server.ts";
import { NumbersController, numbersService, Seen } from "../testing/numbers.controller.ts";
import { closeContext } from "./close-context.ts";
import { GrpcCall } from "./grpc-call.ts";
import { serveControllers } from "./serve-controllers.ts";

class NumbersModule {}

type Numbers = { readonly number: number };
const double = method<Numbers, Numbers, Numbers, Numbers>(numbersService, "Double");
const count = method<Numbers, Numbers, { at: number }, { at: number }>(numbersService, "Count");
const echo = method<Numbers, Numbers, Numbers, Numbers>(numbersService, "Echo");
const clusterToken = "the token of this test";
const closing: (() => unknown)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

async function serve() {
  const bound = await bindServer({ host: "127.0.0.1", port: 0, credentials: { clusterToken } });
  const app = await serveControllers(
    { module: NumbersModule, controllers: [NumbersController], providers: [Seen] },
    bound.server,
  );
  const peer = new Peer(bound.address, { clusterToken });
  closing.push(
    () => closeServer(bound.server, 0),
    () => peer.close(),
  );
  return { app, peer, seen: app.get(Seen) };
}

async function listOf(peer: Peer, number: number): Promise<unknown[]> {
  const all: unknown[] = [];
  const { signal } = new AbortController();
  for await (const each of peer.serverStream(count, { number }, signal)) all.push(each);
  return all;
}

const deadline = { deadlineMs: 5_000 };

test("transport: a unary handler gets request and context, and returns the reply", async () => {
  const { peer } = await serve();
  expect(await peer.unary(double, { number: 4 }, deadline)).toMatchObject({ number: 8 });
});

test("transport: a handler's AppError reaches the caller with its code", async () => {
  const { peer } = await serve();
  const expected = { code: "overloaded", message: "too low", retryAfterMs: 7 };
  await expect(peer.unary(double, { number: -1 }, deadline)).rejects.toMatchObject(expected);
  await expect(listOf(peer, 0)).rejects.toMatchObject({
    code: "not_found",
  });
});

test("transport: the signal of a handler is aborted when the caller hangs up", async () => {
  const { peer, seen } = await serve();
  const caller = new AbortController();
  const { signal } = caller;
  const abandoned = peer.unary(double, { number: 101 }, { deadlineMs: 60_000, signal });
  const refused = expect(abandoned).rejects.toMatchObject({ code: "cancelled" });
  await eventually(() => seen.waiting === 1, "the handler waits");
  caller.abort();
  await refused;
  await eventually(() => seen.aborted.length === 1, "the handler ends");
  expect(seen.aborted).toEqual(["the caller closed the connection"]);
});

test("transport: a server stream ends when its handler resolves", async () => {
  const { peer } = await serve();
  expect(await listOf(peer, 2)).toEqual([{ at: 0 }, { at: 1 }]);
});

test("transport: a duplex handler owns its stream, which outlives Nest's close", async () => {
  const { app, peer } = await serve();
  const stream = peer.duplex(echo);
  const got: unknown[] = [];
  stream.on("data", (value: unknown) => got.push(value));
  stream.write({ number: 1 });
  await eventually(() => got.length === 1, "the first echo");
  await app.close();
  stream.write({ number: 2 });
  await eventually(() => got.length === 2, "the second echo");
  stream.end();
});

test("close: the other modules close when a hook throws, and it is reported", async () => {
  const closed: string[] = [];
  class Inner {
    async onModuleDestroy() {
      closed.push("inner");
    }
  }
  class Outer {
    async onModuleDestroy() {
      closed.push("outer");
      throw new Error("its disk is full");
    }
  }
  const bound = await bindServer({ host: "127.0.0.1", port: 0, credentials: { clusterToken } });
  closing.push(() => closeServer(bound.server, 0));
  const app = await serveControllers({ module: Outer, imports: [Inner] }, bound.server);
  await expect(closeContext(app)).rejects.toThrow("its disk is full");
  expect(closed).toEqual(["outer", "inner"]);
});

test("handler: one of a method that the service lacks is refused at its declaration", () => {
  expect(() => GrpcCall(numbersService, "Halve")).toThrow("the gRPC service has no method Halve");
});
