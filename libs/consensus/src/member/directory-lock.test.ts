// holds: wal-lock

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { lockDirectory } from "./directory-lock.ts";

const MODULE = new URL("./directory-lock.ts", import.meta.url).href;
/** Takes the lock and says so, or why not; ends with its standard input. */
const HOLDER = `
  const { lockDirectory } = await import(${JSON.stringify(MODULE)});
  await lockDirectory(process.argv[1]).then(
    () => console.log("held"),
    (error) => console.log(error.message),
  );
  process.stdin.resume();
`;
/** A container's own process ids, and the files of all. */
const CONTAINER = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"];
const hasContainers =
  spawnSync(CONTAINER[0] as string, [...CONTAINER.slice(1), "true"]).status === 0;
if (!hasContainers)
  process.stdout.write("skipped: this machine allows no namespaces of process ids\n");

const scratch = mkdtempSync(join(tmpdir(), "heddle-lock-"));
const started: ChildProcess[] = [];
let count = 0;
/** Longer than the path of a socket may be. */
const fresh = () => mkdtempSync(join(scratch, `${"long".repeat(30)}${++count}-`));
afterAll(() => {
  for (const child of started) child.stdin?.destroy();
  rmSync(scratch, { recursive: true });
});

async function hold(directory: string, prefix: readonly string[] = []) {
  const node = [process.execPath, "--input-type=module", "-e", HOLDER, directory];
  const [program = "", ...args] = [...prefix, ...node];
  const child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
  started.push(child);
  const [said] = (await once(child.stdout, "data")) as [Buffer];
  return { child, said: said.toString().trim() };
}

describe("a directory's lock", () => {
  it("is held by one process until it releases it; the error names its pid", async () => {
    const directory = fresh();
    const lock = await lockDirectory(directory);
    const refused = `${directory} is in use by the process ${process.pid}. Stop it, or give another --data.`;
    await expect(lockDirectory(directory)).rejects.toThrow(refused);
    await lock.close();
    await (await lockDirectory(directory)).close();
    expect(readdirSync(directory)).toEqual([]);
  });

  it("clears what a process has left that was killed before its socket had its name", async () => {
    const directory = mkdtempSync(join(scratch, "d"));
    const [old, young] = ["lock-1-ab.sock.new", "lock-1-cd.sock.new"].map((name) =>
      join(directory, name),
    ) as [string, string];
    const script = `for (const path of process.argv.slice(1)) require("node:net").createServer().listen(path);
      setTimeout(() => process.kill(process.pid, "SIGKILL"), 100)`;
    spawnSync(process.execPath, ["-e", script, old, young]);
    utimesSync(old, 1, 1);
    await (await lockDirectory(directory)).close();
    expect(readdirSync(directory)).toEqual(["lock-1-cd.sock.new"]);
  });

  it("is taken over from one that was killed, and nothing of it is left", async () => {
    const directory = fresh();
    const { child, said } = await hold(directory);
    expect(said).toBe("held");
    child.kill("SIGKILL");
    await once(child, "exit");
    expect(readdirSync(directory)).toHaveLength(2);
    const lock = await lockDirectory(directory);
    expect(readdirSync(directory)).toHaveLength(2);
    await lock.close();
    expect(readdirSync(directory)).toEqual([]);
  });

  it("holds where the process's id means nothing, as in another container", async () => {
    const directory = fresh();
    const lock = await lockDirectory(directory);
    // What one sees whose /proc has no such process.
    const file = join(directory, "lock");
    writeFileSync(file, readFileSync(file, "utf8").replace(/"pid":\d+/, `"pid":${2 ** 22 + 1}`));
    await expect(lockDirectory(directory)).rejects.toThrow(
      `in use by a process of another container, where its id is ${process.pid}.`,
    );
    await lock.close();
  });

  it("is of one among many that come at once", async () => {
    const directory = fresh();
    const taken = await Promise.allSettled(
      Array.from({ length: 8 }, () => lockDirectory(directory)),
    );
    const held = taken.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
    expect(held.length).toBeLessThanOrEqual(1);
    const refused = taken.flatMap((each) => (each.status === "rejected" ? [each.reason] : []));
    expect(new Set(refused.map(({ code }) => code))).toEqual(new Set(["conflict"]));
    for (const lock of held) await lock.close();
    await (await lockDirectory(directory)).close();
  });

  it.skipIf(!hasContainers)("holds against another container, both ways", async () => {
    const directory = fresh();
    const lock = await lockDirectory(directory);
    expect((await hold(directory, CONTAINER)).said).toMatch(
      /in use by a process of another container/,
    );
    await lock.close();
    const { child, said } = await hold(directory, CONTAINER);
    expect(said).toBe("held");
    await expect(lockDirectory(directory)).rejects.toThrow(
      /in use by a process of another container/,
    );
    child.stdin.destroy();
    await once(child, "exit");
    await (await lockDirectory(directory)).close();
  });
});
