import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const MAIN = fileURLToPath(new URL("../dist/main.js", import.meta.url));

interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

function run(...args: string[]): Promise<Ended> {
  return new Promise((resolve) => {
    execFile(process.execPath, [MAIN, ...args], (error, stdout, stderr) => {
      resolve({ code: error ? Number(error.code) : 0, stdout, stderr });
    });
  });
}

test.each(["--help", "-h"])("simulation: %s prints the usage, and runs nothing", async (flag) => {
  const usage = expect.stringMatching(/^usage: npm run simulate -- .*--trace\]\n$/);
  expect(await run(flag)).toEqual({ code: 0, stdout: usage, stderr: "" });
});

test("simulation: an invalid option ends with code 2 and the usage", async () => {
  for (const args of [["--nonsense"], ["--seeds", "none"], ["--faults", "rain"]]) {
    const { code, stdout, stderr } = await run(...args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toContain("usage: npm run simulate");
  }
});
