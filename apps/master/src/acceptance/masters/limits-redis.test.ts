// holds: key-limits-redis
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { hasRedis, REDIS_PROGRAM, RedisServer } from "@heddle/base/testing/redis-server";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { MasterGroup } from "../../../test/master-group.ts";

describe.skipIf(!hasRedis())(`three masters with Redis (needs ${REDIS_PROGRAM})`, () => {
  let group: MasterGroup;
  let redis: RedisServer;

  beforeAll(async () => {
    redis = await RedisServer.start("secret");
    const flags = ["--limits-redis", `redis://127.0.0.1:${redis.port}/1`];
    group = new MasterGroup(3, flags, () => ({
      env: { HEDDLE_LIMITS_REDIS_PASSWORD_FILE: join(group.folder, "redis-password") },
    }));
    writeFileSync(join(group.folder, "redis-password"), "secret\n", { mode: 0o600 });
    await group.startAll();
    await group.leader();
    await eventually(async () => (await stores()).every((up) => up === "1"), "Redis is used");
  });
  afterAll(async () => {
    await group.close();
    await redis.close();
  });

  const stores = () =>
    Promise.all(
      group.names.map(async (name) => {
        const text = await (await group.request(name, "GET", "/metrics")).text();
        return /^heddle_limit_store_up(?:\{.*\})? (\d)/m.exec(text)?.[1];
      }),
    );

  it("one master alone may use the whole limit, all three together no more", async () => {
    const statuses = async () => {
      const made = await group.change("master-1", "POST", "/api/v1/keys", {
        name: "limited",
        scopes: ["*"],
        limits: { requests_per_minute: 6 },
      });
      const { key } = (await made.json()) as { key: string };
      for (const name of group.names) {
        await group.request(name, "GET", "/api/v1/keys?consistency=strong&limit=1");
      }
      const seen: number[] = [];
      for (const name of [...Array<string>(6).fill("master-2"), ...group.names]) {
        const reply = await group.request(name, "GET", "/api/v1/models", undefined, key);
        seen.push(reply.status);
        if (reply.status === 429) expect(reply.headers.get("x-should-retry")).toBe("true");
      }
      return seen.join();
    };
    // A loaded machine may take Redis away for a while, or so long that a call more may pass.
    const wanted = [...Array(6).fill(200), ...Array(3).fill(429)].join();
    await eventually(async () => (await statuses()) === wanted, "the limit is one");
  });

  it("without Redis each master counts its share; it is used again when it is back", async () => {
    await redis.kill();
    await eventually(async () => (await stores()).every((up) => up === "0"), "it is gone");
    expect((await group.request("master-1", "GET", "/api/v1/models")).status).toBe(200);
    redis.restart();
    await eventually(async () => (await stores()).every((up) => up === "1"), "it is back");
  });
});
