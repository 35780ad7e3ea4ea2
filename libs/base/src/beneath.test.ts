// holds: task-links, task-removal

import { execFileSync, spawn } from "node:child_process";
import {
  chownSync,
  constants,
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";
import {
  atEntryBeneath,
  filesBeneath,
  makeDirectoryBeneath,
  openFileBeneath,
  openFileBeneathSync,
  removeBeneath,
} from "./beneath.ts";

const isRoot = process.getuid?.() === 0;
let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-beneath-"));
  mkdirSync(join(folder, "root/a/b"), { recursive: true });
  mkdirSync(join(folder, "secret/b"), { recursive: true });
  writeFileSync(join(folder, "root/a/b/x"), "own");
  writeFileSync(join(folder, "secret/b/x"), "secret");
  writeFileSync(join(folder, "secret/key"), "secret");
});
afterEach(() => rmSync(folder, { recursive: true }));
const root = () => join(folder, "root");

async function read(path: string): Promise<string> {
  const file = await openFileBeneath(root(), path);
  try {
    return await file.readFile("utf8");
  } finally {
    await file.close();
  }
}

test("beneath: a regular file is opened, and no link in any component", async () => {
  expect(await read("a/b/x")).toBe("own");
  symlinkSync(join(folder, "secret"), join(root(), "link"));
  symlinkSync(join(folder, "secret/key"), join(root(), "a/key"));
  symlinkSync(join(folder, "root/a/b/x"), join(root(), "a/inner"));
  for (const path of ["link/key", "link/b/x", "a/key", "a/inner"]) {
    await expect(read(path), path).rejects.toMatchObject({ code: /ELOOP|ENOTDIR/ });
    expect(() => openFileBeneathSync(root(), path), path).toThrow(/ELOOP|ENOTDIR/);
  }
  for (const path of ["../secret/key", "/etc/passwd", "a/../../secret/key", "a//b/x", "", "a/."]) {
    await expect(read(path), path).rejects.toMatchObject({ code: "invalid_value" });
  }
});

test("beneath: a pipe, a socket or a folder is refused at once", async () => {
  execFileSync("mkfifo", [join(root(), "pipe")]);
  await expect(read("pipe")).rejects.toThrow("pipe is not a regular file");
  expect(() => openFileBeneathSync(root(), "pipe")).toThrow("pipe is not a regular file");
  await expect(read("a")).rejects.toThrow("EISDIR: a");
  await expect(openFileBeneath(root(), "pipe", constants.O_WRONLY)).rejects.toThrow("ENXIO");
});

test.skipIf(!isRoot)("beneath: a task's hard link to another user's file is refused", async () => {
  const [task, other] = [61_184, 61_185];
  chownSync(join(root(), "a"), task, task);
  for (const [name, owner] of [
    ["own", task],
    ["of-root", 0],
    ["other", other],
  ] as const) {
    const place = join(folder, name);
    writeFileSync(place, name);
    chownSync(place, owner, owner);
    for (const at of ["a", "a/b"]) linkSync(place, join(root(), at, name));
  }
  expect(await read("a/own")).toBe("own");
  for (const path of ["a/of-root", "a/other"]) {
    await expect(read(path), path).rejects.toThrow("is a hard link to a file of another user");
    expect(() => openFileBeneathSync(root(), path), path).toThrow("is a hard link");
  }
  // What root has put into a folder of its own is no task's.
  expect(await read("a/b/other")).toBe("other");
});

test("beneath: folders are created, files listed and trees removed; links stay links", async () => {
  await makeDirectoryBeneath(root(), "c/d/e");
  await makeDirectoryBeneath(root(), "c/d/e");
  writeFileSync(join(root(), "c/d/y"), "12");
  symlinkSync(join(folder, "secret"), join(root(), "c/link"));
  await expect(makeDirectoryBeneath(root(), "c/link/new")).rejects.toThrow("ENOTDIR");
  expect(await filesBeneath(root(), "c")).toEqual([{ name: "d/y", bytes: 2 }]);
  await atEntryBeneath(root(), "c/d/y", async (entry) => rmSync(entry));
  await removeBeneath(root(), "c");
  await removeBeneath(root(), "c");
  await removeBeneath(root(), "none/there");
  expect(existsSync(join(root(), "c"))).toBe(false);
  expect(readFileSync(join(folder, "secret/key"), "utf8")).toBe("secret");
  symlinkSync(join(folder, "secret"), join(root(), "link"));
  await expect(filesBeneath(root(), "link")).rejects.toThrow("ENOTDIR");
  await expect(removeBeneath(root(), "link/key")).rejects.toThrow("ENOTDIR");
  await removeBeneath(root(), "link");
  expect(existsSync(join(folder, "secret/key"))).toBe(true);
});

test("beneath: removes trees of any depth, mode and name, also without privileges", async () => {
  // Only a process that changes its directory can create a path this long.
  const program = `
    const { mkdirSync, writeFileSync, chmodSync } = require("node:fs");
    const begin = process.cwd();
    for (let i = 0; i < 500; i++) { mkdirSync("d"); process.chdir("d"); }
    writeFileSync("big", "x");
    process.chdir(begin);
    writeFileSync(Buffer.from([0x61, 0xff]), "");
    mkdirSync("barred/in", { recursive: true });
    chmodSync("barred/in", 0o500);
    chmodSync("barred", 0);
    import(process.argv[1]).then(({ removeBeneath }) => removeBeneath(begin + "/..", "tree"));`;
  mkdirSync(join(root(), "tree"));
  if (isRoot)
    for (const each of ["", "root", "root/tree"]) chownSync(join(folder, each), 65_534, 65_534);
  const module = fileURLToPath(new URL("../dist/beneath.js", import.meta.url));
  execFileSync(process.execPath, ["-e", program, module], {
    cwd: join(root(), "tree"),
    stdio: ["ignore", "ignore", "inherit"],
    ...(isRoot && { uid: 65_534, gid: 65_534 }),
  });
  expect(existsSync(join(root(), "tree"))).toBe(false);
});

/**
 * Alternates `root/a` between a link to `secret` and a folder, without a pause, until it is killed.
 */
const SWAP = `
  const fs = require("node:fs");
  const [own, link, spare] = process.argv.slice(1);
  process.stdout.write("go");
  for (;;) {
    fs.renameSync(own, spare); fs.renameSync(link, own);
    fs.renameSync(own, link); fs.renameSync(spare, own);
  }`;

test("beneath: a folder that is continuously swapped with a link never leads out", async () => {
  const link = join(folder, "link");
  symlinkSync(join(folder, "secret"), link);
  const args = ["-e", SWAP, join(root(), "a"), link, join(folder, "spare")];
  const swapper = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  try {
    await new Promise((resolve) => swapper.stdout.once("data", resolve));
    const seen = new Map<string, number>();
    const count = (what: string) => seen.set(what, (seen.get(what) ?? 0) + 1);
    const outcome = (work: Promise<string>) => work.catch(({ code }) => String(code)).then(count);
    for (let i = 0; i < 3_000; i++) {
      await outcome(read("a/b/x"));
      await outcome(filesBeneath(root(), "a").then((files) => files.map((f) => f.name).join()));
      if (i % 100 === 0) await outcome(removeBeneath(root(), "a/none/x").then(() => "removed"));
    }
    const reported = [...seen.keys()].filter((each) => !/^(ENOTDIR|ENOENT|ELOOP)$/.test(each));
    expect(reported.sort()).toEqual(expect.arrayContaining(["b/x", "own"]));
    expect(reported.filter((each) => !["b/x", "own", "removed", ""].includes(each))).toEqual([]);
    expect([...seen.keys()].some((each) => /ENOTDIR|ELOOP/.test(each))).toBe(true);
  } finally {
    swapper.kill("SIGKILL");
    await new Promise((resolve) => swapper.once("close", resolve));
  }
});
