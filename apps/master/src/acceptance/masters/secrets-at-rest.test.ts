// holds: sec-secrets-at-rest

import { execFile, execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { cpSync, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { readSecretKeys, type SecretKeys } from "@heddle/base/secret-keys";
import { eventually } from "@heddle/base/testing/eventually";
import { freePort } from "@heddle/base/testing/free-ports";
import { writeKeyProgram } from "@heddle/base/testing/key-program";
import { programOf } from "@heddle/base/testing/programs";
import type { Identity } from "@heddle/consensus/member/identity";
import { afterEach, describe, expect, it } from "vitest";
import { MasterGroup, REAL_MASTER } from "../../../test/master-group.ts";
import { openStoppedMember } from "../../offline/stopped-member.ts";

// Masters as processes with a secrets key: the content of their disks and backups, and what they
// refuse.

const CLI = [programOf("cli")];
const PLAIN_TEXT = "an-environment-variable-of-a-job";
const ONE = "master-1";

let group: MasterGroup;
/** For each start from now on. */
let keyFile: string | undefined;
let keyProgram: string | undefined;
afterEach(() => group.close());

function open(masters: number, flags: readonly string[] = []): void {
  keyFile = undefined;
  keyProgram = undefined;
  const env = () => ({
    HEDDLE_SECRETS_KEY_FILE: keyFile,
    HEDDLE_SECRETS_KEY_COMMAND: keyProgram,
  });
  group = new MasterGroup(masters, flags, () => ({ env: env() }), REAL_MASTER);
}

const newKey = (): string => randomBytes(32).toString("base64");

/** A file with those keys, of which the first encrypts. */
function writeKeys(name: string, ...keys: readonly string[]): string {
  const file = join(group.folder, name);
  writeFileSync(file, `${keys.join("\n")}\n`, { mode: 0o600 });
  return file;
}

const keysOf = (file: string | undefined): SecretKeys => readSecretKeys(file, {});

async function submitJob(): Promise<void> {
  const spec = { name: "one", command: "date", environment_variables: { TOKEN: PLAIN_TEXT } };
  const reply = await group.change(await group.leader(), "POST", "/api/v1/jobs", spec);
  expect(reply.status).toBe(202);
}

/** The secrets that must not be in plain text, as bytes, from a stopped master's state. */
async function secretsOf(name: string): Promise<Buffer[]> {
  const member = await openStoppedMember(group.directory(name), keysOf(keyFile));
  const { control } = member.machine;
  await member.close();
  const pepper = control.secret("pepper") ?? "";
  const authority = control.secret("authority")?.split("\n")[1] ?? pepper;
  expect([pepper.length, authority.length >= 40]).toEqual([64, true]);
  const own = member.identity.key ?? "";
  expect(own).toMatch(/^[0-9a-f]{64}$/);
  const texts = [pepper, authority, PLAIN_TEXT, own].map((text) => Buffer.from(text));
  return [...texts, Buffer.from(pepper, "hex"), Buffer.from(authority, "base64")];
}

function filesBelow(path: string): string[] {
  const entries = readdirSync(path, { recursive: true, withFileTypes: true });
  return entries.flatMap((entry) => (entry.isFile() ? [join(entry.parentPath, entry.name)] : []));
}

/** The files of a stopped master, or those given, that contain one of the texts. */
function holders(name: string, texts: readonly Buffer[], files: readonly string[] = []): string[] {
  return [...filesBelow(group.directory(name)), ...files].filter((path) => {
    const bytes = readFileSync(path);
    return texts.some((text) => bytes.includes(text));
  });
}

function identity(name: string): Identity {
  const path = join(group.directory(name), "control", "identity.json");
  return JSON.parse(readFileSync(path, "utf8")) as Identity;
}

async function untilClean(names: readonly string[], key: string | undefined): Promise<void> {
  await eventually(
    async () =>
      names.every((name) => {
        const { secrets } = identity(name);
        return secrets?.key === key && secrets?.isClean === true;
      }),
    "no file is from before the key",
  );
}

interface Ended {
  readonly code: number;
  readonly text: string;
}

function run(
  program: readonly string[],
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Promise<Ended> {
  return new Promise((resolve) => {
    const options = { env: { ...process.env, ...env } };
    execFile(process.execPath, [...program, ...args], options, (error, stdout, stderr) => {
      resolve({ code: error ? Number(error.code) : 0, text: stdout + stderr });
    });
  });
}

/** `heddle cluster backup` from the running master. */
async function backup(file: string): Promise<string> {
  const env = { HEDDLE_ENDPOINT: group.url(ONE), HEDDLE_API_KEY: group.adminKey };
  const { code, text } = await run(CLI, ["cluster", "backup", file], env);
  expect(code, text).toBe(0);
  return text;
}

describe("secrets at rest", () => {
  it("with a key from the start are in plain text in no file and no backup", async () => {
    open(1, ["--tls"]);
    keyFile = writeKeys("key", newKey());
    await group.start(ONE);
    await submitJob();
    await group.request(ONE, "POST", "/api/v1/cluster/snapshot");
    await group.createKey(ONE, "after the snapshot");
    const live = join(group.folder, "live.backup");
    expect(await backup(live)).toContain(
      `encrypted with the secrets key ${keysOf(keyFile).ids[0]}`,
    );
    await group.end(ONE, "SIGKILL");
    const files = [...filesBelow(group.directory(ONE)), live];
    expect(files.map((file) => file.replace(/.*\//, ""))).toEqual(
      expect.arrayContaining(["cluster-ca.pem", "node-certificate.json", "live.backup"]),
    );
    const secrets = [...(await secretsOf(ONE)), Buffer.from("PRIVATE KEY")];
    expect(holders(ONE, secrets, [live])).toEqual([]);
    await group.start(ONE);
    expect(await group.keyNames(ONE)).toContain("after the snapshot");
  });

  it("without a key are in plain text, and a backup says so", async () => {
    open(1, ["--tls"]);
    await group.start(ONE);
    await submitJob();
    const live = join(group.folder, "live.backup");
    expect(await backup(live)).toContain("warning: it is not encrypted");
    await group.end(ONE, "SIGKILL");
    const found = holders(ONE, await secretsOf(ONE), [live]);
    const names = found.map((file) => file.replace(/.*\//, ""));
    expect(names).toEqual(expect.arrayContaining(["cluster-ca.pem", "live.backup"]));
    expect(names.some((name) => name.endsWith(".log"))).toBe(true);
  });

  it("a master with a wrong key, or none, is refused before it takes part", async () => {
    open(1);
    keyFile = writeKeys("key", newKey());
    await group.start(ONE);
    await untilClean([ONE], keysOf(keyFile).ids[0]);
    await group.end(ONE, "SIGTERM");
    const [right, [id = ""]] = [keyFile, keysOf(keyFile).ids];
    const { incarnation } = identity(ONE);
    keyFile = undefined;
    const none = new RegExp(`could not start: .*key ${id}, and no key was given. Give the file`);
    await expect(group.start(ONE)).rejects.toThrow(none);
    keyFile = writeKeys("other", newKey());
    const other = new RegExp(`key ${id}, and those given are ${keysOf(keyFile).ids[0]}`);
    await expect(group.start(ONE)).rejects.toThrow(other);
    expect(identity(ONE).incarnation).toBe(incarnation);
    keyFile = right;
    await group.start(ONE);
    expect(await group.keyNames(ONE)).toEqual(["bootstrap administrator"]);
  });

  it("rotation: the new key takes over, and the old one becomes unnecessary", async () => {
    open(1, ["--tls"]);
    const [old, next] = [newKey(), newKey()];
    const oldFile = writeKeys("old", old);
    keyFile = oldFile;
    await group.start(ONE);
    await submitJob();
    await group.end(ONE, "SIGTERM");
    keyFile = writeKeys("both", next, old);
    await group.start(ONE);
    await untilClean([ONE], keysOf(keyFile).ids[0]);
    await group.end(ONE, "SIGKILL");
    const oldId = Buffer.from(keysOf(oldFile).ids[0] ?? "", "hex");
    expect(holders(ONE, [oldId])).toEqual([]);
    keyFile = writeKeys("next", next);
    await group.start(ONE);
    expect(await group.keyNames(ONE)).toEqual(["bootstrap administrator"]);
    await group.end(ONE, "SIGTERM");
    keyFile = oldFile;
    await expect(group.start(ONE)).rejects.toThrow(/is encrypted with the secrets key/);
  });

  it("three masters adopt a key one by one, and replace their old files", async () => {
    open(3);
    await group.startAll();
    await submitJob();
    const file = writeKeys("key", newKey());
    const [id] = keysOf(file).ids;
    for (const name of group.names) {
      await group.end(name, "SIGTERM");
      keyFile = undefined;
      expect(holders(name, await secretsOf(name))).not.toEqual([]);
      expect(identity(name).secrets).toBeUndefined();
      keyFile = file;
      await group.start(name);
    }
    await untilClean(group.names, id);
    group.names.push("master-4");
    keyFile = undefined;
    await expect(group.start("master-4")).rejects.toThrow(
      new RegExp(`encrypted with the secrets key ${id}, and master-4 was started with no key`),
    );
    keyFile = file;
    for (const name of group.names.slice(0, 3)) await group.end(name, "SIGKILL");
    for (const name of group.names.slice(0, 3)) {
      expect(holders(name, await secretsOf(name)), name).toEqual([]);
    }
  });

  it("cluster add: the printed command starts a master with the group's key", async () => {
    open(1);
    keyFile = writeKeys("key", newKey());
    await group.start(ONE);
    const body = { role: "master", name: "master-3" };
    const path = "/api/v1/cluster/join-tokens";
    const reply = await group.request(ONE, "POST", path, body);
    expect(await reply.json()).toMatchObject({ secrets_key: keysOf(keyFile).ids[0], tls: false });

    const files = ["--cluster-token-file", group.tokenFile, "--secrets-key-file", keyFile];
    const address = `127.0.0.1:${await freePort()}`;
    const own = ["--data", group.directory("master-2"), "--address", address];
    const token = ["--join-token-file", join(group.folder, "join-token")];
    const add = ["cluster", "add", "master-2", ...own, ...files, ...token];
    const env = { HEDDLE_ENDPOINT: group.url(ONE), HEDDLE_API_KEY: group.adminKey };
    const { text } = await run(CLI, add, env);
    const [line = ""] = /^heddle-master .*$/m.exec(text) ?? [];
    const words = line.split(" ").slice(1);
    const added = spawn(process.execPath, [...REAL_MASTER, ...words, "--http-port", "0"]);
    try {
      await eventually(async () => {
        const { masters } = await group.status(ONE);
        return masters.some(({ id, role }) => id === "master-2" && role === "follower");
      }, line);
    } finally {
      added.kill("SIGKILL");
    }
  });

  it("masters of a new group with different keys are refused", async () => {
    open(2);
    keyFile = writeKeys("key", newKey());
    const [one, two] = group.names as [string, string];
    const first = group.start(one);
    keyFile = undefined;
    const starts = [first, group.start(two)];
    // The first to learn of the other exits; then there is none to form a group with.
    const refused =
      /was started with other secrets keys .* give all masters of a new cluster the same/;
    await expect(Promise.race(starts)).rejects.toThrow(refused);
  });

  it("a backup needs its key to be restored; a plain one needs none", async () => {
    open(1);
    keyFile = writeKeys("key", newKey());
    await group.start(ONE);
    await group.createKey(ONE, "kept");
    const [sealed, clear] = ["sealed", "clear"].map((name) => join(group.folder, name)) as [
      string,
      string,
    ];
    await backup(sealed);
    await group.end(ONE, "SIGTERM");
    const restore = (file: string, to: string, ...flags: string[]) =>
      run(REAL_MASTER, ["restore", "--file", file, "--data", to, ...flags]);
    const target = join(group.folder, "restored");
    const [id = ""] = keysOf(keyFile).ids;
    const refusal = { code: 5, text: expect.stringContaining(`${sealed} is encrypted with the`) };
    expect(await restore(sealed, target)).toEqual(refusal);
    const wrong = writeKeys("wrong", newKey());
    expect(await restore(sealed, target, "--secrets-key-file", wrong)).toEqual(refusal);
    expect(existsSync(target)).toBe(false);
    const made = await restore(sealed, target, "--secrets-key-file", keyFile);
    expect(made, made.text).toMatchObject({ code: 0 });
    group.wipe(ONE);
    cpSync(target, group.directory(ONE), { recursive: true });
    expect(identity(ONE).secrets).toEqual({ key: id, isClean: true });
    await group.start(ONE);
    expect(await group.keyNames(ONE)).toContain("kept");
    await group.end(ONE, "SIGTERM");
    expect(holders(ONE, await secretsOf(ONE))).toEqual([]);

    group.wipe(ONE);
    keyFile = undefined;
    await group.start(ONE);
    await backup(clear);
    await group.end(ONE, "SIGTERM");
    group.wipe(ONE);
    keyFile = writeKeys("key", newKey());
    expect(await restore(clear, group.directory(ONE))).toMatchObject({ code: 0 });
    await group.start(ONE);
    await untilClean([ONE], keysOf(keyFile).ids[0]);
    await group.end(ONE, "SIGTERM");
    expect(holders(ONE, await secretsOf(ONE))).toEqual([]);
  });

  // holds: secrets-key-program
  it("a wrapped key protects as a clear one, and needs its program", async () => {
    open(1);
    const clear = newKey();
    const program = writeKeyProgram(join(group.folder, "kms"), "key of the service");
    const wrapped = execFileSync(program, ["wrap"], { input: clear, encoding: "utf8" });
    keyFile = writeKeys("key", `wrapped:${wrapped}`);
    keyProgram = program;
    await group.start(ONE);
    await submitJob();
    await group.end(ONE, "SIGKILL");
    await group.start(ONE);
    await group.end(ONE, "SIGTERM");
    writeFileSync(`${program}.own`, "another key");
    await expect(group.start(ONE)).rejects.toThrow(/kms unwraps no key: it ended with exit code 1/);
    keyProgram = undefined;
    await expect(group.start(ONE)).rejects.toThrow(
      /holds a wrapped key, and no program unwraps it/,
    );
    keyFile = writeKeys("clear", clear);
    expect(identity(ONE).secrets?.key).toBe(keysOf(keyFile).ids[0]);
    expect(holders(ONE, [...(await secretsOf(ONE)), Buffer.from(clear)])).toEqual([]);
  });

  it("an offline backup needs the key, and stays encrypted", async () => {
    open(1);
    keyFile = writeKeys("key", newKey());
    await group.start(ONE);
    await untilClean([ONE], keysOf(keyFile).ids[0]);
    await group.end(ONE, "SIGKILL");
    const file = join(group.folder, "offline");
    const args = ["backup", "--data", group.directory(ONE), "--file", file];
    const refusal = { code: 5, text: expect.stringContaining("no key was given") };
    expect(await run(REAL_MASTER, args)).toEqual(refusal);
    const done = await run(REAL_MASTER, args, { HEDDLE_SECRETS_KEY_FILE: keyFile });
    expect(done).toEqual({ code: 0, text: expect.stringContaining("encrypted with the secrets") });
    expect(holders(ONE, await secretsOf(ONE), [file])).toEqual([]);
  });
});
