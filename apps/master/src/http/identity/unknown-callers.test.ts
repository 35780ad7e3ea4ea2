// holds: events-denied-each

import { createApiKey } from "@heddle/auth/api-key";
import { eventually } from "@heddle/base/testing/eventually";
import { Heddle } from "@heddle/client/heddle";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { MasterGroup } from "../../../test/master-group.ts";

const NAME = "master-1";
const CALLS = 400;

let group: MasterGroup;
beforeAll(async () => {
  group = new MasterGroup(1);
  await group.startAll();
  await group.leader();
});
afterAll(() => group?.close());

describe("denied calls", () => {
  it("each have one event, a flood too: without a key it is 429 and counted", async () => {
    const key = createApiKey("test").text;
    const { key: viewer } = await group.createKey(NAME, "viewer");
    const post = (with_: string) =>
      group.request(NAME, "POST", "/api/v1/keys", { name: "x" }, with_);
    const unknown = await Promise.all(Array.from({ length: CALLS }, () => post(key)));
    const by = Map.groupBy(unknown, ({ status }) => status);
    expect([...by.keys()].sort()).toEqual([401, 429]);
    expect(by.get(429)?.[0]?.headers.get("retry-after")).toBe("1");
    // A known caller is never refused by it, and all that it is denied is recorded.
    const known = await Promise.all(Array.from({ length: 150 }, () => post(viewer)));
    expect(new Set(known.map(({ status }) => status))).toEqual(new Set([403]));
    expect((await post(group.adminKey)).status).toBe(200);
    const denied = by.get(401)!.length + known.length;
    const { events } = new Heddle({ endpoint: group.url(NAME)!, auth_token: group.adminKey });
    const counts = async () => {
      let [recorded, dropped] = [0, 0];
      for await (const event of events.query()) {
        if (event.type === "ACCESS_DENIED") recorded++;
        if (event.type === "EVENTS_DROPPED") dropped += Number(Object(event.data).dropped);
      }
      return { recorded, dropped };
    };
    await eventually(async () => (await counts()).recorded >= denied);
    expect(await counts()).toEqual({ recorded: denied, dropped: by.get(429)!.length });
  });
});
