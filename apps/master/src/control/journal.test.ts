import { spawnSync } from "node:child_process";
import { appendFile, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { apply, emptyState } from "@heddle/control/apply";
import type { ControlCommand } from "@heddle/control/command";
import { toSnapshot } from "@heddle/control/snapshot";
import { createLogger } from "@heddle/observability/logger";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Journal } from "./journal.ts";

let directory: string;
const opened: Journal[] = [];

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "heddle-journal-"));
});
afterEach(async () => {
  for (const journal of opened.splice(0)) await journal.close().catch(() => undefined);
  await rm(directory, { recursive: true });
});

const logger = createLogger({ service: "test", level: "silent" });

async function openJournal(compactAtBytes?: number): Promise<Journal> {
  const journal = await Journal.open({
    directory,
    logger,
    ...(compactAtBytes !== undefined && { compactAtBytes }),
  });
  opened.push(journal);
  return journal;
}

function createKey(index: number): ControlCommand {
  const id = String(index).padStart(8, "0");
  const key = {
    name: `key ${index} ✓`,
    hash: "ab".repeat(32),
    scopes: ["*"],
    models: [],
    limits: {},
  };
  return { type: "key.create", atMs: index, key: { id, createdAtMs: index, ...key } };
}

async function crash(journal: Journal): Promise<void> {
  // Only the file and the lock are let go of, as by the death of the process.
  await journal.close();
}

describe("Journal", () => {
  it("has everything again that it acknowledged, in the same order", async () => {
    const journal = await openJournal();
    const commands = Array.from({ length: 300 }, (_, i) => createKey(i % 250));
    const replies = await Promise.all(commands.map((command) => journal.propose(command)));
    expect(replies.filter(({ ok }) => ok)).toHaveLength(250);
    await crash(journal);
    const again = await openJournal();
    const expected = emptyState();
    for (const command of commands) apply(expected, command);
    expect(toSnapshot(again.state)).toEqual(toSnapshot(expected));
    expect(again.appliedIndex).toBe(300);
  });

  it("shares syncs between proposals that wait together", async () => {
    const journal = await openJournal();
    await Promise.all(Array.from({ length: 500 }, (_, i) => journal.propose(createKey(i))));
    const text = await readFile(join(directory, "journal-0"), "utf8");
    expect(text.trim().split("\n").length).toBeLessThan(10);
  });

  it("tells listeners of each applied command until they unsubscribe", async () => {
    const journal = await openJournal();
    const heard: string[] = [];
    const stop = journal.onApplied((command) => heard.push(command.type));
    await journal.propose(createKey(1));
    stop();
    await journal.propose(createKey(2));
    expect(heard).toEqual(["key.create"]);
  });

  it.each([1, 9, 20])(
    "cuts a last record off that lacks %i bytes, and keeps the rest",
    async (lost) => {
      const journal = await openJournal();
      for (let i = 0; i < 3; i++) await journal.propose(createKey(i));
      await crash(journal);
      const path = join(directory, "journal-0");
      const bytes = await readFile(path);
      await writeFile(path, bytes.subarray(0, bytes.length - lost));
      const again = await openJournal();
      expect([...again.state.keys.keys()]).toEqual(["00000000", "00000001"]);
      await again.propose(createKey(7));
      await crash(again);
      expect((await openJournal()).state.keys.size).toBe(3);
    },
  );

  it("cuts off garbage and zeros that a crash left at the end", async () => {
    const journal = await openJournal();
    await journal.propose(createKey(0));
    await crash(journal);
    await appendFile(join(directory, "journal-0"), Buffer.alloc(5000));
    expect((await openJournal()).state.keys.size).toBe(1);
  });

  it("refuses to start on damage before whole records, and says where", async () => {
    const journal = await openJournal();
    for (let i = 0; i < 3; i++) await journal.propose(createKey(i));
    await crash(journal);
    const path = join(directory, "journal-0");
    const bytes = await readFile(path);
    bytes[40] = (bytes[40] as number) ^ 1;
    await writeFile(path, bytes);
    await expect(openJournal()).rejects.toThrow(/journal-0 is damaged at byte 0.*Restore/);
    expect(await readFile(path)).toEqual(bytes);
  });

  it("folds a long log into a snapshot and goes on from it", async () => {
    const journal = await openJournal(2_000);
    for (let i = 0; i < 40; i++) await journal.propose(createKey(i));
    await crash(journal);
    const names = (await readdir(directory)).sort();
    expect(names.filter((name) => name.startsWith("snapshot-"))).toHaveLength(1);
    expect(names.filter((name) => name.startsWith("journal-"))).toHaveLength(1);
    expect(names).not.toContain("journal-0");
    const again = await openJournal(2_000);
    expect(again.state.keys.size).toBe(40);
    expect(again.appliedIndex).toBe(40);
  });

  it("starts from the snapshot where the crash came before the new log", async () => {
    const journal = await openJournal(2_000);
    for (let i = 0; i < 40; i++) await journal.propose(createKey(i));
    await crash(journal);
    const { appliedIndex } = journal;
    const log = (await readdir(directory)).find((name) => name.startsWith("journal-")) as string;
    const base = Number(log.split("-")[1]);
    await rm(join(directory, log));
    const again = await openJournal();
    expect(again.appliedIndex).toBe(base);
    expect(base).toBeLessThanOrEqual(appliedIndex);
    expect(again.state.keys.size).toBe(base);
  });

  it("refuses a damaged snapshot, and a log whose snapshot is missing", async () => {
    const journal = await openJournal(2_000);
    for (let i = 0; i < 40; i++) await journal.propose(createKey(i));
    await crash(journal);
    const name = (await readdir(directory)).find((file) => file.startsWith("snapshot-")) as string;
    const path = join(directory, name);
    const bytes = await readFile(path);
    bytes[60] = (bytes[60] as number) ^ 1;
    await writeFile(path, bytes);
    await expect(openJournal()).rejects.toThrow(/snapshot-\d+ is damaged/);
    await rm(path);
    await expect(openJournal()).rejects.toThrow(/snapshot that is missing/);
  });

  it("keeps a second process out, naming the first, and a dead one's lock does not bind", async () => {
    await openJournal();
    const moduleUrl = new URL("../../dist/control/directory-lock.js", import.meta.url).href;
    const script = `import(${JSON.stringify(moduleUrl)}).then((m) => m.lockDirectory(${JSON.stringify(directory)})).then(() => process.exit(0), (e) => { console.error(e.message); process.exit(3); })`;
    const second = spawnSync(process.execPath, ["-e", script], { encoding: "utf8" });
    expect(second.status).toBe(3);
    expect(second.stderr).toContain(`in use by the process ${process.pid}`);
    const other = await mkdtemp(join(tmpdir(), "heddle-lock-"));
    const dying = spawnSync(process.execPath, ["-e", script.replace(directory, other)]);
    expect(dying.status).toBe(0);
    const journal = await Journal.open({ directory: other, logger });
    await journal.close();
    await rm(other, { recursive: true });
  });

  it("refuses proposals after it is closed, and those beyond its bound", async () => {
    const journal = await openJournal();
    const many = Array.from({ length: 10_600 }, () => journal.propose(createKey(0)));
    const settled = await Promise.allSettled(many);
    const refused = settled.filter(({ status }) => status === "rejected");
    expect(refused.length).toBeGreaterThan(0);
    expect(refused[0]).toMatchObject({ reason: { code: "overloaded" } });
    await journal.close();
    await expect(journal.propose(createKey(9))).rejects.toMatchObject({ code: "unavailable" });
  });
});
