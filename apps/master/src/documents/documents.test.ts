import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { eventually } from "@heddle/base/testing/eventually";
import { digestOf } from "@heddle/storage/blob-store";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ProbedDocuments } from "../../test/document-probe.ts";
import { MasterGroup } from "../../test/master-group.ts";

const OWNER = "aaaaaaaa";
const named = (id: string, more = {}) => ({ kind: "response", id, owner: OWNER, ...more }) as const;
const contentOf = (id: string) => Buffer.from(`the content of ${id}. `.repeat(20_000));
const [FIRST, SECOND, THIRD] = ["master-1", "master-2", "master-3"] as const;

let group: MasterGroup;

beforeAll(async () => {
  const key = Buffer.alloc(32, 7).toString("base64");
  const env = { HEDDLE_SECRETS_KEY: key, HEDDLE_TEST_DOCUMENTS: "1" };
  group = new MasterGroup(3, [], () => ({ env }));
  await group.startAll();
  await group.leader();
});

afterAll(() => group?.close());

const on = (name: string) => new ProbedDocuments(group.directory(name));
/** The digest of what a master reads: comparing the contents themselves takes long. */
const read = async (name: string, id: string, owner = OWNER) => {
  const content = await on(name).get(id, owner);
  return content && digestOf(content);
};
const stored = (id: string) => digestOf(contentOf(id));
const folderOf = (name: string) => join(group.directory(name), "documents");
const filesOf = (name: string) => readdirSync(folderOf(name)).sort();
const put = (name: string, id: string, more = {}) => on(name).put(named(id, more), contentOf(id));

/** A new cluster's version rises when its masters have met. */
async function firstPut(name: string, id: string): Promise<void> {
  await eventually(() =>
    put(name, id).then(
      () => true,
      (error: Error) => (/no documents yet/.test(error.message) ? false : Promise.reject(error)),
    ),
  );
}

describe("documents of three masters", () => {
  // holds: documents-replicated
  it("documents: every master has what one stored, for its owner only", async () => {
    await firstPut(FIRST, "r1");
    await put(SECOND, "r2");
    const third = on(THIRD);
    expect(await read(THIRD, "r1")).toBe(stored("r1"));
    expect(await read(THIRD, "r1", "bbbbbbbb")).toBeUndefined();
    expect(await third.delete("r1", "bbbbbbbb")).toBe(false);
    const ids = async (order: "asc" | "desc", after?: string, limit = 1) => {
      const { records, hasMore } = await third.list(OWNER, { order, limit, after });
      return [records.map(({ id }) => id), hasMore];
    };
    expect(await ids("asc")).toEqual([["r1"], true]);
    expect(await ids("asc", "r1")).toEqual([["r2"], false]);
    expect(await ids("desc", undefined, 5)).toEqual([["r2", "r1"], false]);
    expect((await third.list("bbbbbbbb", { order: "asc", limit: 5 })).records).toEqual([]);
    await expect(ids("asc", "r9")).rejects.toThrow(/invalid_value: No response has the id r9/);
    const { version } = await put(THIRD, "r1");
    const again = on(FIRST).put(named("r1"), Buffer.from("x"), version - 1);
    await expect(again).rejects.toThrow(/precondition_failed: .*read it again/);
  });

  it("documents: each disk has them, and reading replaces a damaged copy", async () => {
    const digest = stored("r1");
    await eventually(() => group.names.every((name) => filesOf(name).includes(digest)));
    const path = join(folderOf(SECOND), digest);
    const intact = readFileSync(path);
    expect(intact.includes("the content")).toBe(false);
    const damaged = Buffer.from(intact).fill(0, 200, 300);
    writeFileSync(path, damaged);
    expect(await read(SECOND, "r1")).toBe(stored("r1"));
    expect(readFileSync(path).equals(damaged)).toBe(false);
  });

  // holds: documents-majority
  it("documents: they outlive kill -9 of a master, and an empty disk heals", async () => {
    await put(FIRST, "r3");
    await group.end(FIRST, "SIGKILL");
    expect(await read(SECOND, "r3")).toBe(stored("r3"));
    await group.leader();
    await put(SECOND, "r4");
    expect(await on(THIRD).delete("r2", OWNER)).toBe(true);
    rmSync(folderOf(FIRST), { recursive: true });
    await group.start(FIRST);
    expect(await read(FIRST, "r4")).toBe(stored("r4"));
    expect(await read(FIRST, "r2")).toBeUndefined();
    const wanted = ["r1", "r3", "r4"].map(stored).sort();
    await eventually(() => filesOf(FIRST).join() === wanted.join());
  });

  it("documents: without a majority a put is refused, and says why", async () => {
    const leader = await group.leader();
    const others = group.names.filter((name) => name !== leader);
    await Promise.all(others.map((name) => group.end(name, "SIGKILL")));
    await expect(put(leader, "r5")).rejects.toThrow(
      /unavailable: only 1 of 3 masters could store the document, and 2 must/,
    );
    await group.startMissing();
    expect(await read(others[0]!, "r5")).toBeUndefined();
    await put(others[0]!, "r5");
  });

  it("documents: limits are settings, and an expired document goes", async () => {
    const set = async (name: string, value: number) => {
      const path = `/api/v1/cluster/settings/${name}`;
      expect((await group.change(FIRST, "PUT", path, { value })).status).toBe(200);
    };
    await set("owner_documents", 4);
    await expect(put(SECOND, "r6")).rejects.toThrow(
      /insufficient_storage: This key's documents are 4, .* setting owner_documents/,
    );
    await set("owner_documents", 5);
    await put(SECOND, "r6", { expiresAtMs: Date.now() + 1_000 });
    await eventually(async () => {
      const text = await (await group.request(SECOND, "GET", "/metrics")).text();
      return /^heddle_documents(\{.*\})? 4$/m.test(text);
    });
    expect(await read(SECOND, "r6")).toBeUndefined();
  });

  // holds: documents-removal
  it("removal: a master leaves when the others have fetched the contents", async () => {
    const digest = stored("r1");
    await endAndRemove([SECOND, THIRD], digest);
    group.signal(FIRST, "SIGSTOP");
    await Promise.all([group.start(SECOND), group.start(THIRD)]);
    await group.leader([SECOND, THIRD]);
    const removal = removed(FIRST, "");
    expect(await Promise.race([removal, delay(3_000)])).toBeUndefined();
    group.continueAll();
    expect((await removal).status).toBe(200);
    for (const name of [SECOND, THIRD]) expect(filesOf(name)).toContain(digest);
    await group.ending(FIRST);
    expect(await read(THIRD, "r1")).toBe(digest);
  });

  // holds: documents-removal
  it("removal: lost contents refuse it, and force gives them up", async () => {
    const digest = stored("r1");
    await endAndRemove([SECOND, THIRD], digest);
    await Promise.all([group.start(SECOND), group.start(THIRD)]);
    await group.leader([SECOND, THIRD]);
    const refused = await removed(THIRD, "");
    expect(refused.status).toBe(409);
    expect(await refused.text()).toMatch(/only 0 of the 1 other masters .* master-2 lacks 1\./);
    expect((await removed(THIRD, "?force=true")).status).toBe(200);
    await expect(read(SECOND, "r1")).rejects.toThrow(/unavailable: .* on no master/);
    expect(await read(SECOND, "r4")).toBe(stored("r4"));
  });
});

/** Kills the masters and takes a content from their disks. */
async function endAndRemove(names: readonly string[], digest: string): Promise<void> {
  await Promise.all(names.map((name) => group.end(name, "SIGKILL")));
  for (const name of names) rmSync(join(folderOf(name), digest));
}

const removed = (name: string, query: string) =>
  group.change(SECOND, "DELETE", `/api/v1/cluster/masters/${name}${query}`);
