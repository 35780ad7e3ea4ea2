// holds: ssrf-webhooks

import { once } from "node:events";
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, it } from "vitest";
import { send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";
import { postWebhook, WebhookHosts } from "./webhook-post.ts";

let master: TestMaster;
let inner: Server;
let outer: Server;
/** What the receivers were asked. */
const asked: { readonly at: "inner" | "outer"; readonly request: IncomingMessage }[] = [];
let location = "";

beforeAll(async () => {
  master = await startTestMaster();
  inner = createServer((request, reply) => {
    asked.push({ at: "inner", request });
    reply.end();
  });
  outer = createServer((request, reply) => {
    asked.push({ at: "outer", request });
    reply.writeHead(location === "" ? 204 : 307, location === "" ? {} : { location }).end();
  });
  for (const server of [inner, outer]) await once(server.listen(0, "127.0.0.1"), "listening");
});
afterAll(async () => {
  inner.close();
  outer.close();
  await master.master.close();
});

const portOf = (server: Server) => (server.address() as AddressInfo).port;
const MESSAGE = { id: "m", atMs: 0, body: "{}", secrets: [Buffer.from("secret")] };

const ADDRESSES = [
  ["decimal", "2130706433"],
  ["hexadecimal", "0x7f000001"],
  ["octal", "017700000001"],
  ["parts of each kind", "0x7f.0.0.01"],
  ["fewer parts", "127.1"],
  ["zero", "0"],
  ["a dot at the end", "127.0.0.1."],
  ["full-width digits", "１２７.０.０.１"],
  ["circled digits", "①②⑦.0.0.1"],
  ["percent-encoded", "%31%32%37.0.0.1"],
  ["metadata, decimal", "2852039166"],
  ["metadata, octal", "0251.0376.0251.0376"],
  ["metadata of Azure", "168.63.129.16"],
  ["a private network, hexadecimal", "0x0a000001"],
  ["IPv6", "[::1]"],
  ["IPv6, mapped", "[::ffff:127.0.0.1]"],
  ["IPv6, mapped metadata", "[::ffff:a9fe:a9fe]"],
  ["IPv6, compatible", "[::7f00:1]"],
  ["IPv6, translated", "[64:ff9b::7f00:1]"],
  ["IPv6, 6to4", "[2002:7f00:1::]"],
] as const;

it.each(ADDRESSES)("webhooks: a private address is refused: %s", async (_, host) => {
  for (const port of ["", ":443", ":8443", ":6379"]) {
    const url = `https://${host}${port}/hook`;
    const reply = await send(master, "POST", "/api/v1/webhooks", { url });
    expect([reply.status, await reply.text()], url).toEqual([
      400,
      expect.stringContaining("which is not public"),
    ]);
  }
});

const DISGUISED = [
  ["a user", "https://example.com@127.0.0.1/x", "a user or a password"],
  ["a user and a password", "https://example.com:443@169.254.169.254/x", "a user or a password"],
  ["an empty user", "https://:x@127.0.0.1/x", "a user or a password"],
  ["a backslash", "https://10.0.0.1\\@example.com/x", "which is not public"],
  ["a fragment", "https://10.0.0.1#@example.com/", "which is not public"],
  ["no TLS", "http://example.com/x", "by https:// only"],
  ["no TLS, a port", "http://example.com:8080/x", "by https:// only"],
  ["another protocol", "gopher://127.0.0.1:6379/_x", "expected a URL"],
  ["a file", "file:///etc/passwd", "expected a URL"],
  ["an invalid port", "https://example.com:99999/x", "expected a URL"],
] as const;

it.each(DISGUISED)("webhooks: a disguised URL is refused: %s", async (_, url, why) => {
  const reply = await send(master, "POST", "/api/v1/webhooks", { url });
  expect([reply.status, await reply.text()]).toEqual([400, expect.stringContaining(why)]);
});

it("webhooks: a name that leads to this machine is not connected to", async () => {
  const none = new WebhookHosts(() => []);
  const [before, port] = [asked.length, portOf(inner)];
  for (const host of ["localhost", "LOCALHOST", "localhost.", "a.localhost"]) {
    const url = new URL(`https://${host}:${port}/x`);
    await expect(postWebhook(url, MESSAGE, none), host).rejects.toThrow(
      /not public|ENOTFOUND|EAI_AGAIN/,
    );
  }
  expect(asked.length).toBe(before);
});

it("webhooks: no redirect is followed, wherever it leads", async () => {
  const hosts = new WebhookHosts(() => ["127.0.0.1"]);
  const url = new URL(`http://127.0.0.1:${portOf(outer)}/hook`);
  await postWebhook(url, MESSAGE, hosts);
  for (location of [
    `http://127.0.0.1:${portOf(inner)}/x`,
    "http://169.254.169.254/latest/meta-data",
    "http://[::1]/x",
    "file:///etc/passwd",
  ]) {
    await expect(postWebhook(url, MESSAGE, hosts), location).rejects.toThrow("answered 307");
  }
  expect(asked.filter(({ at }) => at === "inner")).toEqual([]);
  expect(asked.filter(({ at }) => at === "outer")).toHaveLength(5);
});

it("webhooks: a host is listed under one name, and others of it are refused", async () => {
  const hosts = new WebhookHosts(() => ["localhost"]);
  const port = portOf(inner);
  await postWebhook(new URL(`http://localhost:${port}/x`), MESSAGE, hosts);
  for (const host of ["127.0.0.1", "2130706433", "[::1]", "localhost.", "a.localhost"]) {
    const url = new URL(`http://${host}:${port}/x`);
    await expect(async () => postWebhook(url, MESSAGE, hosts), host).rejects.toThrow(
      "by https:// only",
    );
  }
});
