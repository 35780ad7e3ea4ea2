import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { chooseBackend } from "./choose-backend.ts";

// Where the GPU package is installed, the result depends on the machine.
const gpuPackage = fileURLToPath(
  new URL("../../../../node_modules/@tensorflow/tfjs-node-gpu", import.meta.url),
);
const hasGpuPackage = existsSync(gpuPackage);
if (hasGpuPackage) process.stderr.write(`skipped: ${gpuPackage} is installed\n`);

async function choose(device: "auto" | "cpu" | "cuda", hasGpu: boolean) {
  const said: string[] = [];
  const task = { hasGpu, threads: 1 };
  const log = { warn: (_: object, message: string) => void said.push(message) };
  const backend = await chooseBackend({ backend: "tfjs", device }, task, log);
  return { device: backend.device, said };
}

test.skipIf(hasGpuPackage)("tfjs: tries the task's GPU, and logs why it uses the CPU", async () => {
  const { device, said } = await choose("auto", true);
  expect(device).toMatch(/^cpu/);
  expect(said).toEqual([
    expect.stringMatching(/^computing on the CPU, since the GPU .*tfjs-node-gpu.*not installed/),
  ]);
  await expect(choose("cuda", true)).rejects.toThrow(/tfjs-node-gpu/);
});

test("tfjs: uses the CPU silently where the task has no GPU, or requests the CPU", async () => {
  for (const [device, hasGpu] of [
    ["auto", false],
    ["cpu", true],
  ] as const) {
    expect(await choose(device, hasGpu)).toMatchObject({
      said: [],
      device: expect.stringMatching(/^cpu/),
    });
  }
  await expect(choose("cuda", false)).rejects.toMatchObject({
    code: "invalid_value",
    param: "config.device",
    message: expect.stringMatching(/^`device: cuda` needs a GPU.*`resources\.gpu_count`$/),
  });
});
