// holds: console-sign-in

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";
import { SignInLinks } from "./sign-in-links.ts";

const HOUR_MS = 3_600_000;

describe("sign-in links", () => {
  it("sign-in: a link works once, and not after its hour", () => {
    const links = new SignInLinks();
    const { code, expiresAtMs } = links.create("hdl_key", 1_000);
    expect(expiresAtMs).toBe(1_000 + HOUR_MS);
    expect(links.redeem(`${code}x`, 2_000)).toBe(undefined);
    expect(links.redeem(code, 2_000)).toBe("hdl_key");
    expect(links.redeem(code, 2_000)).toBe(undefined);
    const late = links.create("hdl_key", 1_000);
    expect(links.redeem(late.code, 1_000 + HOUR_MS)).toBe(undefined);
  });

  it("sign-in: of a hundred links the oldest ends for a new one", () => {
    const links = new SignInLinks();
    const codes = Array.from({ length: 101 }, (_, at) => links.create(`key ${at}`, 0).code);
    expect(links.redeem(codes[0]!, 1)).toBe(undefined);
    expect(links.redeem(codes[1]!, 1)).toBe("key 1");
    expect(links.redeem(codes[100]!, 1)).toBe("key 100");
  });
});

describe("sign-in over HTTP", () => {
  let master: TestMaster;
  beforeAll(async () => {
    master = await startTestMaster();
  });
  afterAll(() => master.master.close());

  const post = async (path: string, body?: object, key?: string) => {
    const reply = await fetch(`${master.url}/api/v1/access/${path}`, {
      method: "POST",
      headers: {
        ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
        ...(body === undefined ? {} : { "content-type": "application/json" }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return {
      status: reply.status,
      cache: reply.headers.get("cache-control"),
      body: (await reply.json()) as Record<string, string>,
    };
  };

  it("sign-in: the browser gets the key of the caller, once", async () => {
    const { text } = await master.addKey({ scopes: ["jobs:read"] });
    const link = await post("sign-in-links", undefined, text);
    expect(link).toMatchObject({ status: 200, cache: "no-store" });
    expect(JSON.stringify(link.body)).not.toContain(text);
    const code = link.body["code"];
    expect(await post("sign-in", { code })).toMatchObject({
      status: 200,
      cache: "no-store",
      body: { token: text },
    });
    expect(await post("sign-in", { code })).toMatchObject({ status: 404 });
  });

  it("sign-in: a call that X-Heddle-Role limits gets no link to all rights", async () => {
    const { text } = await master.addKey({ scopes: ["jobs:read", "jobs:create"] });
    const headers = { authorization: `Bearer ${text}`, "x-heddle-role": "viewer" };
    const path = `${master.url}/api/v1/access/sign-in-links`;
    const reply = await fetch(path, { method: "POST", headers });
    expect([reply.status, await reply.text()]).toEqual([
      403,
      expect.stringContaining("leave the header out"),
    ]);
  });

  it("sign-in: without a key there is no link, and a wrong code is refused", async () => {
    expect((await post("sign-in-links")).status).toBe(401);
    const { status, body } = await post("sign-in", { code: "wrong" });
    expect(status).toBe(404);
    expect(body["detail"]).toContain("was used already, has expired");
  });
});
