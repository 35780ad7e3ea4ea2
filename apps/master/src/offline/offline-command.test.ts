// holds: cli-offline-json, ops-backup-damage

import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { programOf } from "@heddle/base/testing/programs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { MasterGroup } from "../../test/master-group.ts";

// The master's program on the files of one that was stopped.

const MASTER = programOf("master");
const HEDDLE = programOf("cli");
let group: MasterGroup;
let copies = 0;

beforeAll(async () => {
  group = new MasterGroup(1);
  await group.startAll();
  await group.createKey("master-1", "kept");
  await group.end("master-1", "SIGKILL");
});
afterAll(() => group.close());

interface Ended {
  readonly code: number;
  readonly text: string;
}

const master = (...args: string[]) => program(MASTER, args);
const cluster = (...args: string[]) => program(HEDDLE, ["cluster", ...args]);

function program(path: string, args: readonly string[]): Promise<Ended> {
  return new Promise((resolve) => {
    execFile(process.execPath, [path, ...args], (error, stdout, stderr) => {
      resolve({ code: error ? Number(error.code) : 0, text: stdout + stderr });
    });
  });
}

/** A copy of the stopped master's data. */
function copy(): string {
  const path = join(group.folder, `copy-${++copies}`);
  cpSync(group.directory("master-1"), path, { recursive: true });
  return path;
}

describe("a backup", () => {
  it("with any byte changed or its end cut off is refused, and nothing is made", async () => {
    const file = join(group.folder, "whole.backup");
    expect(await master("backup", "--data", copy(), "--file", file)).toMatchObject({ code: 0 });
    const bytes = readFileSync(file);
    const step = Math.ceil(bytes.length / 6);
    for (let at = 0; at < bytes.length; at += step) {
      const damaged = Buffer.from(bytes);
      damaged[at] = (damaged[at] as number) ^ 1;
      await refused(damaged);
    }
    await refused(bytes.subarray(0, bytes.length - 1));
    await refused(Buffer.concat([bytes, Buffer.from("junk")]));
  });

  it("is not restored under a name or an address that no master can have", async () => {
    const file = join(group.folder, "whole.backup");
    await master("backup", "--data", copy(), "--file", file);
    for (const [flag, value] of [
      ["--name", "bad name"],
      ["--address", "nonsense"],
      ["--address", "127.0.0.1:99999"],
    ] as const) {
      const target = join(group.folder, `never-${++copies}`);
      const ended = await master("restore", "--data", target, "--file", file, flag, value);
      expect(ended).toEqual({ code: 2, text: expect.stringContaining(`"${value}"`) });
      expect(existsSync(target)).toBe(false);
    }
  });

  it("of an incomplete directory fails with the master's error, as a recovery does", async () => {
    const lost = {
      "has an identity but no log: its content was lost": (control: string) =>
        rmSync(join(control, "wal"), { recursive: true }),
      "its file has 0 bytes": (control: string) =>
        truncateSync(join(control, "wal", "wal-0000000000000000.log")),
      "its identity.json is gone": (control: string) => rmSync(join(control, "identity.json")),
    };
    for (const [message, damage] of Object.entries(lost)) {
      const data = copy();
      damage(join(data, "control"));
      const file = join(group.folder, `never-${++copies}.backup`);
      const refusal = { code: 1, text: expect.stringContaining(message) };
      expect(await master("backup", "--data", data, "--file", file)).toEqual(refusal);
      expect(await master("recover", "--data", data, "--yes")).toEqual(refusal);
      const ports = ["--http-port", "0", "--grpc-port", "0"];
      expect(await master("--name", "master-1", "--data", data, ...ports)).toEqual(refusal);
      expect(existsSync(file)).toBe(false);
    }
  });

  it("never replaces a file", async () => {
    const file = join(group.folder, "there.backup");
    writeFileSync(file, "mine");
    expect(await master("backup", "--data", copy(), "--file", file)).toMatchObject({ code: 5 });
    expect(readFileSync(file, "utf8")).toBe("mine");
  });
});

async function refused(bytes: Uint8Array): Promise<void> {
  const file = join(group.folder, "damaged.backup");
  const target = join(group.folder, `never-${++copies}`);
  writeFileSync(file, bytes);
  const ended = await master("restore", "--data", target, "--file", file);
  expect(ended).toMatchObject({ code: 1, text: expect.stringContaining("damaged") });
  expect(existsSync(join(target, "control"))).toBe(false);
}

describe("a recovery", () => {
  it("without --yes changes nothing, and says of an only master that it needs none", async () => {
    const data = copy();
    const before = readFileSync(join(data, "control", "identity.json"), "utf8");
    const { code, text } = await master("recover", "--data", data);
    expect({ code, text }).toEqual({ code: 2, text: expect.stringContaining("Nothing was done") });
    expect(text).toMatch(
      /^master-1 is the only master of its group.*it needs no recovery: start it/,
    );
    expect(readFileSync(join(data, "control", "identity.json"), "utf8")).toBe(before);
  });

  it("that was cut off keeps the master from starting, and can be run again", async () => {
    const data = copy();
    await master("recover", "--data", data, "--yes");
    renameSync(join(data, "control"), join(data, "control.recovered"));
    const start = await master("--data", data, "--http-port", "0", "--grpc-port", "0");
    expect(start).toEqual({ code: 1, text: expect.stringContaining("heddle cluster recover") });
    expect(await master("recover", "--data", data, "--yes")).toMatchObject({ code: 0 });
    expect(readdirSync(data)).toContain("control");
  });

  it("is refused for a running master's directory, an empty one or one without state", async () => {
    await group.start("master-1");
    const running = await master("recover", "--data", group.directory("master-1"), "--yes");
    expect(running).toEqual({ code: 5, text: expect.stringContaining("in use by the process") });
    await group.end("master-1", "SIGKILL");
    const empty = join(group.folder, "empty");
    mkdirSync(join(empty, "control"), { recursive: true });
    expect(await master("recover", "--data", empty, "--yes")).toMatchObject({ code: 3 });
    const outer = await master("recover", "--data", group.folder, "--yes");
    expect(outer).toEqual({ code: 3, text: expect.stringContaining("master-1") });
    expect(await master("recover")).toMatchObject({ code: 2 });
  });
});

describe("heddle cluster --data", () => {
  it("-o json, yaml and name: one record of what was done", async () => {
    const file = join(group.folder, "record.backup");
    const backup = JSON.parse(
      (await cluster("backup", "--data", copy(), file, "-o", "json")).text,
    ) as Readonly<Record<string, unknown>>;
    const { cluster: before, index } = backup;
    const sha256 = createHash("sha256").update(readFileSync(file)).digest("hex");
    expect(backup).toMatchObject({ file, sha256, secrets_key: null });
    const data = join(group.folder, "record");
    const restored = await cluster("restore", file, "--data", data, "-o", "yaml");
    expect(parse(restored.text)).toMatchObject({
      name: "master-1",
      data,
      restored_from: { cluster: before, index },
    });
    const asked = await cluster("recover", "--data", data, "-o", "json");
    const done = { done: false, name: "master-1", data, cluster: null, lost_masters: [] };
    expect(asked.code).toBe(2);
    expect(JSON.parse(asked.text)).toMatchObject(done);
    const named = await cluster("recover", "--data", data, "--yes", "-o", "name");
    expect(named).toEqual({ code: 0, text: "master-1\n" });
  });

  it("a backup to no directory, or over a file, names the path with its code", async () => {
    const nowhere = join(group.folder, "nowhere", "a.backup");
    const text = expect.stringContaining(`There is no directory ${join(group.folder, "nowhere")}.`);
    expect(await cluster("backup", "--data", copy(), nowhere)).toEqual({ code: 2, text });
    expect(await cluster("backup", nowhere)).toEqual({ code: 2, text });
    const taken = await cluster("backup", join(group.directory("master-1"), "control"));
    expect(taken).toEqual({ code: 5, text: expect.stringContaining("exists. Give another file") });
  });
});
