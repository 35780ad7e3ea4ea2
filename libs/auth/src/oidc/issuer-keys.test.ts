// holds: access-tokens

import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { IssuerKeys } from "./issuer-keys.ts";
import { KeyServer, signingKey } from "./testing/key-server.ts";

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;

let server: KeyServer;
let nowMs: number;
let failures: string[];
beforeEach(async () => {
  server = new KeyServer();
  await server.start();
  await server.addKey("k1");
  nowMs = 10 * DAY_MS;
  failures = [];
});
afterEach(() => server.close());

const opened = (more: { issuer?: string; jwksUri?: string } = {}) =>
  new IssuerKeys({
    issuer: server.issuer,
    ...more,
    now: () => nowMs,
    onFailure: ({ message }) => failures.push(message),
  });

const find = (keys: IssuerKeys, kid: string) =>
  keys.find({ alg: "RS256", kid }, { payload: "", signature: "" });

it("issuer keys: concurrent callers share one read", async () => {
  const keys = opened();
  await Promise.all(Array.from({ length: 20 }, () => find(keys, "k1")));
  expect(server.reads).toBe(2);
  nowMs += 10 * MINUTE_MS;
  await find(keys, "k1");
  // What it would read was received before this.
  await fetch(server.issuer);
  expect(server.reads).toBe(3);
  nowMs += 1;
  await find(keys, "k1");
  await vi.waitFor(() => expect(server.reads).toBe(5), { timeout: 100_000 });
});

it("issuer keys: are read from the configured address, or where the issuer says", async () => {
  await find(opened({ jwksUri: `${server.issuer}/keys` }), "k1");
  expect(server.reads).toBe(1);
  const slash = { issuer: `${server.issuer}/` };
  await expect(find(opened(slash), "k1")).rejects.toMatchObject({ code: "unavailable" });
  const where = `${server.issuer}/.well-known/openid-configuration`;
  expect(failures).toEqual([`the metadata at ${where} are of the issuer "${server.issuer}"`]);
});

it("issuer keys: a new key id reads them again, at most once in 10 s", async () => {
  const keys = opened();
  await find(keys, "k1");
  await server.addKey("k2");
  await expect(find(keys, "k2")).rejects.toThrow(/no applicable key/);
  expect(server.reads).toBe(2);
  nowMs += 10_000;
  await find(keys, "k2");
  expect(server.reads).toBe(4);
  for (let i = 0; i < 50; i++) await expect(find(keys, `x${i}`)).rejects.toThrow();
  expect(server.reads).toBe(4);
});

it("issuer keys: a removed key is unknown after the next read", async () => {
  const keys = opened();
  await find(keys, "k1");
  server.keys = [await signingKey("k2")];
  nowMs += 11 * MINUTE_MS;
  await find(keys, "k1");
  await vi.waitFor(() => expect(find(keys, "k1")).rejects.toThrow(/no applicable key/), {
    timeout: 100_000,
  });
});

it("issuer keys: while they cannot be read, those from before are used for a day", async () => {
  const keys = opened();
  await find(keys, "k1");
  server.status = 500;
  nowMs += DAY_MS;
  await find(keys, "k1");
  await vi.waitFor(() => expect(failures).toHaveLength(1), { timeout: 100_000 });
  nowMs += 2 * MINUTE_MS;
  await expect(find(keys, "k1")).rejects.toMatchObject({ code: "unavailable" });
  expect(failures.at(-1)).toMatch(/answered 500/);
  server.status = 200;
  const unavailable = { code: "unavailable", retryAfterMs: 10_000 };
  await expect(find(keys, "k1")).rejects.toMatchObject(unavailable);
  nowMs += 10_000;
  await find(keys, "k1");
});

it.each<[string, (broken: KeyServer) => void, RegExp]>([
  [
    "another issuer's metadata",
    (broken) => (broken.namedIssuer = "https://other"),
    /of the issuer/,
  ],
  ["null", (broken) => (broken.text = "null"), /null/],
  ["an empty answer", (broken) => (broken.status = 204), /JSON/],
  ["an answer without a body", (broken) => (broken.status = 304), /answered 304/],
  ["no JSON", (broken) => (broken.text = "<html>"), /JSON/],
  ["a huge answer", (broken) => (broken.text = `"${"x".repeat(600_000)}"`), /more than/],
  [
    "an answer of exactly 512 KiB, which is read,",
    (broken) => {
      const { issuer } = broken;
      broken.text = JSON.stringify({ issuer, jwks_uri: `${issuer}/keys` }).padEnd(512 * 1024);
    },
    /no list of at most/,
  ],
  ["a redirect", (broken) => (broken.status = 302), /fetch failed|redirect|302/],
])("issuer keys: %s gives none", async (_, breakIt, reason) => {
  breakIt(server);
  await expect(find(opened(), "k1")).rejects.toMatchObject({ code: "unavailable" });
  expect(failures[0]).toMatch(reason);
});

it("issuer keys: a set without a list, or with too many keys, gives none", async () => {
  const [key] = server.keys;
  if (!key) throw new Error("it has a key");
  const other = await signingKey("other");
  server.keys = [key, ...Array(99).fill(other)];
  await find(opened(), "k1");
  server.keys = Array.from({ length: 101 }, () => key);
  await expect(find(opened(), "k1")).rejects.toMatchObject({ code: "unavailable" });
  expect(failures[0]).toMatch(/at most 100 keys/);
});

it.each([
  ["http://idp.example", /not an https/],
  ["ftp://127.0.0.1", /not an https/],
  ["no address", /not an https/],
  // Port 1 answers no one: the address itself is accepted.
  ["https://127.0.0.1:1", /fetch failed|bad port/],
])("issuer keys: plain HTTP on loopback or HTTPS: %s", async (issuer, reason) => {
  const keys = new IssuerKeys({
    issuer,
    now: () => nowMs,
    onFailure: ({ message }) => failures.push(message),
  });
  await expect(find(keys, "k1")).rejects.toMatchObject({ code: "unavailable" });
  expect(failures).toEqual([expect.stringMatching(reason)]);
});
