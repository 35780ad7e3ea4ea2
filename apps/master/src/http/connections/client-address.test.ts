// holds: sec-proxies

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FastifyInstance } from "fastify";
import { afterAll, describe, expect, it } from "vitest";
import { testConfig } from "../../../test/test-config.ts";
import { readConfig } from "../../config/config.ts";
import { createHttpAdapter } from "../fastify-server.ts";
import { clientAddress } from "./client-address.ts";

const folder = mkdtempSync(join(tmpdir(), "heddle-proxies-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** What a route sees of a call from that address with that header. */
async function seen(proxies: readonly string[], remoteAddress: string, forwarded?: string) {
  const config = testConfig(folder, { trustedProxies: proxies });
  const instance = createHttpAdapter(config).getInstance<FastifyInstance>();
  instance.get("/seen", (request) => [clientAddress(request), request.protocol]);
  const headers = {
    host: "a",
    ...(forwarded !== undefined && {
      "x-forwarded-for": forwarded,
      "x-forwarded-proto": "https",
      forwarded: "for=9.9.9.9",
    }),
  };
  const reply = await instance.inject({ path: "/seen", remoteAddress, headers });
  await instance.close();
  return reply.json() as unknown;
}

const PROXIES = ["10.0.0.0/8", "fd00::/8", "127.0.0.1"];

describe("client address: X-Forwarded-For and -Proto", () => {
  it.each([
    ["without proxies are ignored", [], "10.0.0.1", "1.1.1.1", ["10.0.0.1", "http"]],
    ["from others are ignored", PROXIES, "8.8.8.8", "1.1.1.1", ["8.8.8.8", "http"]],
    ["of a proxy are believed", PROXIES, "10.9.9.9", "1.1.1.1", ["1.1.1.1", "https"]],
    ["are read from the right", PROXIES, "10.9.9.9", "6.6.6.6, 2.2.2.2", ["2.2.2.2", "https"]],
    [
      "pass several proxies",
      PROXIES,
      "::ffff:10.1.1.1",
      "2.2.2.2, 10.3.3.3, fd00::1",
      ["2.2.2.2", "https"],
    ],
    ["have IPv6", PROXIES, "fd00::7", "2001:db8::5", ["2001:db8::5", "https"]],
    ["that name no address are ignored", PROXIES, "127.0.0.1", "<script>", ["127.0.0.1", "https"]],
    ["that are absent leave the proxy's", PROXIES, "10.9.9.9", undefined, ["10.9.9.9", "http"]],
  ])("%s", async (_, proxies, remote, forwarded, expected) => {
    expect(await seen(proxies, remote, forwarded)).toEqual(expected);
  });

  it("need addresses or networks in the settings", () => {
    const read = (given: string) => readConfig(["--trusted-proxies", given], {}).trustedProxies;
    expect(read("10.0.0.7,fd00::/8")).toEqual(["10.0.0.7", "fd00::/8"]);
    for (const wrong of [
      "proxy.example",
      "10.0.0.1/33",
      "0.0.0.0/0",
      "::/0",
      "10.0.0.1/",
      "1/2/3",
    ]) {
      expect(() => read(wrong)).toThrow(
        /trusted-proxies takes addresses and networks, as 10\.0\.0\.7/,
      );
    }
  });
});
