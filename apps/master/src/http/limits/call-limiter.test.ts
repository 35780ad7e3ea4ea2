// holds: key-limits-masters

import { EmbeddedLimits } from "@heddle/auth/limits/embedded-limits";
import { OwnSpend } from "@heddle/auth/limits/own-spend";
import { RateLimiter } from "@heddle/auth/rate-limiter";
import type { ApiKeyRecord } from "@heddle/control/state";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { MasterGroup } from "../../../test/master-group.ts";
import type { GroupRoster } from "../../control-plane/control-group.ts";
import { CallLimiter } from "./call-limiter.ts";
import { CallReservation } from "./call-reservation.ts";
import { LimitDivision } from "./limit-division.ts";

/** Routes of both APIs; the last one starts an inference call. */
const ROUTES = [
  ["GET", "/api/v1/models", undefined],
  ["GET", "/api/v1/jobs", undefined],
  ["GET", "/api/v1/cluster/status", undefined],
  ["POST", "/api/v1/chat/completions", { model: "none", messages: [] }],
] as const;

describe("limits of a key over three masters", () => {
  const group = new MasterGroup(3);
  beforeAll(async () => {
    await group.startAll();
    await group.leader();
  });
  afterAll(() => group.close());

  async function keyWith(limits: Record<string, number>): Promise<string> {
    const made = await group.change("master-1", "POST", "/api/v1/keys", {
      name: "limited",
      scopes: ["*"],
      limits,
    });
    const { key } = (await made.json()) as { key: string };
    // Each master applies the key separately.
    for (const name of group.names) {
      const path = "/api/v1/keys?consistency=strong&limit=1";
      expect((await group.request(name, "GET", path)).status).toBe(200);
    }
    return key;
  }

  it("requests: exactly the limit passes, over all masters and routes together", async () => {
    const key = await keyWith({ requests_per_minute: 5 });
    const passed = new Map<string, number>();
    for (let round = 0; round < 3; round++) {
      for (const name of group.names) {
        for (const [method, path, body] of ROUTES) {
          const { status, headers } = await group.request(name, method, path, body, key);
          if (status !== 429) passed.set(name, (passed.get(name) ?? 0) + 1);
          else expect(headers.get("x-ratelimit-limit-requests")).toMatch(/^[12]$/);
        }
      }
    }
    expect([...passed.values()].sort()).toEqual([1, 2, 2]);
  });

  it("concurrent calls: streams of any route count until they end", async () => {
    const key = await keyWith({ concurrency: 2 });
    const open = await Promise.all(
      [...group.names, ...group.names].map((name) =>
        group.request(name, "GET", "/api/v1/events", undefined, key, {
          accept: "text/event-stream",
        }),
      ),
    );
    expect(open.map(({ status }) => status).sort()).toEqual([200, 200, 429, 429, 429, 429]);
    for (const { body } of open) await body?.cancel();
  });

  it("a share of 0: the refusal names the limit, the masters and where to call", async () => {
    const key = await keyWith({ requests_per_minute: 1 });
    const replies = await Promise.all(
      group.names.map((name) => group.request(name, "GET", "/api/v1/models", undefined, key)),
    );
    expect(replies.map(({ status }) => status).sort()).toEqual([200, 429, 429]);
    const refused = replies.find(({ status }) => status === 429) as Response;
    const { error } = (await refused.json()) as { error: { message: string } };
    expect(error.message).toMatch(
      /Limit: 1 over 3 masters, of which master-\d counts 0\. Call master-\d, or have the limit raised to 3 or more\.$/,
    );
  });
});

describe("division of a limit", () => {
  const key = { id: "k", limits: { requestsPerMinute: 8, concurrency: 1 } } as ApiKeyRecord;
  const roster = (id: number, ids: readonly number[]): GroupRoster => ({
    id,
    members: ids.map((each) => ({ id: each, name: `m${each}` })),
  });

  function limitsOf(id: number, ids: number[]) {
    const clock = { now: 0 };
    let members = ids;
    const now = () => clock.now;
    let seen = roster(id, members);
    const limits = new LimitDivision({ now, group: () => seen });
    const change = (next: number[]) => {
      members = next;
      seen = roster(id, members);
    };
    return { clock, limits, change };
  }

  it("sums to the limit over all masters; a non-member gets none", () => {
    const ids = [3, 5, 9];
    const shares = ids.map((id) => limitsOf(id, ids).limits.shareOf(key.limits));
    expect(shares.map(({ requestsPerMinute }) => requestsPerMinute)).toEqual([3, 3, 2]);
    expect(shares.map(({ concurrency }) => concurrency)).toEqual([1, 0, 0]);
    expect(shares.every(({ tokensPerMinute }) => tokensPerMinute === undefined)).toBe(true);
    expect(limitsOf(7, ids).limits.shareOf(key.limits)).toMatchObject({ requestsPerMinute: 0 });
  });

  it("shrinks at once when a master joins, grows a minute after one left", () => {
    const { clock, limits, change } = limitsOf(1, [1]);
    const share = () => limits.shareOf(key.limits).requestsPerMinute;
    expect(share()).toBe(8);
    change([1, 2]);
    expect(share()).toBe(4);
    clock.now += 60_001;
    expect(share()).toBe(4);
    change([1]);
    expect(share()).toBe(4);
    clock.now += 60_001;
    expect(share()).toBe(8);
  });

  it("charges nothing for a call that is refused for its tokens", async () => {
    const now = () => 0;
    const limiter = new RateLimiter({ now, maxKeys: 10 });
    const spend = new OwnSpend({ history: () => 0, wallNow: now, maxSubjects: 10 });
    const store = new EmbeddedLimits({ limiter, spend, share: (subject) => subject.limits });
    const state = { keys: new Map(), limits: new Map() };
    const division = new LimitDivision({ now });
    const limits = new CallLimiter({ store, division, state: () => state });
    const small = { id: "s", limits: { requestsPerMinute: 1, tokensPerMinute: 10 } };
    const reservation = (await limits.admit(small)) as CallReservation;
    const tokens = { promptTokens: 1, completionTokens: 10 };
    await expect(limits.reserve(reservation, { id: "m" }, tokens)).rejects.toThrow(
      /tokens per minute. Limit: 10\./,
    );
    expect(limits.admit(small)).toBeInstanceOf(CallReservation);
    expect(() => limits.admit(small)).toThrow(/requests per minute/);
  });
});
