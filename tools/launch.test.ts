// holds: start-npm-killed

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { allGone, DrivenProcess } from "../apps/cli/src/testing/driven-process.ts";

// The real npm runs the real launcher; only the program below it is small.

const folder = mkdtempSync(join(tmpdir(), "heddle-launch-"));
const moduleOf = (path: string) =>
  JSON.stringify(pathToFileURL(join(import.meta.dirname, "..", path)).href);
const started: DrivenProcess[] = [];

writeFileSync(
  join(folder, "package.json"),
  JSON.stringify({ name: "launch-test", private: true, scripts: { start: "node start.mjs" } }),
);
writeFileSync(
  join(folder, "start.mjs"),
  `import { existsSync } from "node:fs";
   import { runChild } from ${moduleOf("bin/launch.mjs")};
   console.log("launcher", process.pid);
   while (existsSync("wait")) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20);
   runChild(${JSON.stringify(process.execPath)}, ["program.mjs"], process.env);`,
);
writeFileSync(
  join(folder, "program.mjs"),
  `import { writeFileSync } from "node:fs";
   import { exitWithParent } from ${moduleOf("libs/base/dist/process/exit-with-parent.js")};
   exitWithParent();
   let signals = 0;
   process.on("SIGTERM", () => {
     writeFileSync("signals", String(++signals));
     setTimeout(() => process.exit(0), 600);
   });
   setInterval(() => {}, 1_000);
   console.log("program", process.pid);`,
);

afterEach(() => {
  for (const { child } of started.splice(0)) child.kill("SIGKILL");
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function npmStart() {
  rmSync(join(folder, "signals"), { force: true });
  const npm = new DrivenProcess(["npm", "start", "--prefix", folder]);
  started.push(npm);
  const [, program] = await npm.printed(/program (\d+)/);
  const [, launcher] = await npm.printed(/launcher (\d+)/);
  return { npm: npm.child, program: Number(program), launcher: Number(launcher) };
}

const signalsTaken = () => readFileSync(join(folder, "signals"), "utf8");

describe.skipIf(process.platform === "win32")("a program that npm starts", () => {
  it.each(["SIGKILL", "SIGTERM"] as const)(
    "ends in order, signalled once, after %s of npm",
    async (signal) => {
      const { npm, program, launcher } = await npmStart();
      npm.kill(signal);
      await allGone([program, launcher]);
      expect(signalsTaken()).toBe("1");
    },
  );

  it("ends where npm has ended before the program starts", async () => {
    writeFileSync(join(folder, "wait"), "");
    const npm = new DrivenProcess(["npm", "start", "--prefix", folder]);
    started.push(npm);
    const [, launcher] = await npm.printed(/launcher (\d+)/);
    npm.child.kill("SIGKILL");
    await allGone([npm.child.pid ?? 0]);
    rmSync(join(folder, "wait"));
    // The launcher ends after its program.
    await allGone([Number(launcher)]);
  });

  it("ends in order after SIGKILL of the launcher", async () => {
    const { program, launcher } = await npmStart();
    process.kill(launcher, "SIGKILL");
    await allGone([program]);
    expect(signalsTaken()).toBe("1");
  });
});

describe("the compile cache of the launcher", () => {
  const cacheWith = (chosen: string | undefined) => {
    const code = `import { getCompileCacheDir } from "node:module";
      import { keepCompiledModules } from ${moduleOf("bin/launch.mjs")};
      keepCompiledModules();
      console.log(JSON.stringify([process.env.NODE_COMPILE_CACHE, getCompileCacheDir() ?? ""]));`;
    const env = { ...process.env, NODE_COMPILE_CACHE: chosen };
    const args = ["--input-type=module", "--eval", code];
    const output = execFileSync(process.execPath, args, { encoding: "utf8", env });
    return JSON.parse(output) as [forChildren: string, own: string];
  };

  it("is in node_modules, for this process and its children", () => {
    const [forChildren, own] = cacheWith(undefined);
    const cache = join(import.meta.dirname, "../node_modules/.cache/heddle-compiled");
    expect(forChildren).toBe(cache);
    expect(own).toContain(cache);
  });

  it("is where NODE_COMPILE_CACHE says", () => {
    const chosen = join(folder, "chosen");
    expect(cacheWith(chosen)).toEqual([chosen, expect.stringContaining(chosen)]);
  });

  it("is left out where its folder cannot be written", () => {
    const file = join(folder, "file");
    writeFileSync(file, "");
    expect(cacheWith(join(file, "cache"))).toEqual([join(file, "cache"), ""]);
  });
});

const ROOT = join(import.meta.dirname, "..");
const { version, bin } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));

// kubectl's plugin has flags of its own.
const PROGRAMS = Object.entries<string>(bin).filter(([name]) => name.startsWith("heddle"));

it.each(PROGRAMS)("launch: %s --version prints the package's version", (_, file) => {
  const printed = execFileSync(process.execPath, [join(ROOT, file), "--version"]);
  expect(String(printed)).toBe(`${version}\n`);
});
