// holds: engine-pull-hazards

import { execFileSync, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";

async function endOf(hung: number): Promise<[number | null, string | null]> {
  const folder = await mkdtemp(join(tmpdir(), "heddle-end-"));
  try {
    const pipe = join(folder, "pipe");
    if (hung > 0) execFileSync("mkfifo", [pipe]);
    const module = new URL("./end-process.ts", import.meta.url).href;
    const script = join(folder, "end.mts");
    await writeFile(
      script,
      `import { open } from "node:fs/promises";
       import { endProcess } from ${JSON.stringify(module)};
       for (let i = 0; i < ${hung}; i++) open(${JSON.stringify(pipe)}, "r");
       setTimeout(() => endProcess(3), 100);`,
    );
    const child = fork(script, { execArgv: [] });
    const killer = setTimeout(() => child.kill("SIGABRT"), 100_000);
    const ended = (await once(child, "exit")) as [number | null, string | null];
    clearTimeout(killer);
    return ended;
  } finally {
    await rm(folder, { recursive: true });
  }
}

test("endProcess: exits with the code", async () => {
  expect(await endOf(0)).toEqual([3, null]);
});

test.skipIf(process.platform === "win32")(
  "endProcess: hung file calls do not hold it",
  async () => {
    expect(await endOf(1)).toEqual([null, "SIGKILL"]);
    expect(await endOf(4)).toEqual([null, "SIGKILL"]);
  },
);
