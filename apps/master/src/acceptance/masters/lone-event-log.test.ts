// holds: events-lost-alone

import { renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import type { LogEventPage } from "@heddle/contracts/api/events/log";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { MasterGroup } from "../../../test/master-group.ts";

describe("event log of a lone master", () => {
  let lone: MasterGroup;
  beforeAll(async () => {
    lone = new MasterGroup(1, ["--snapshot-entries", "5"]);
    await lone.startAll();
  });
  afterAll(() => lone?.close());

  it("does not start without events that no other master has", async () => {
    const [name = ""] = lone.names;
    const events = async () => {
      const reply = await lone.request(name, "GET", "/api/v1/events/log?limit=1000");
      return ((await reply.json()) as LogEventPage).data;
    };
    // A new group records events once it has agreed on the version that does.
    await eventually(async () => {
      await lone.createKey(name, "k");
      return (await events()).length > 0;
    });
    for (let i = 0; i < 12; i++) await lone.createKey(name, `k${i}`);
    await lone.change(name, "POST", "/api/v1/cluster/snapshot");
    await lone.end(name, "SIGTERM");
    const folder = join(lone.directory(name), "events");
    renameSync(folder, `${folder}.away`);
    await expect(lone.start(name)).rejects.toThrow(/events are missing.*heddle cluster recover/s);
    rmSync(folder, { recursive: true, force: true });
    renameSync(`${folder}.away`, folder);
    await lone.start(name);
    // Events of replayed entries are written after the start.
    await eventually(async () => (await events()).length >= 13);
  });
});
