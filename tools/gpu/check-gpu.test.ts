// holds: ops-check-gpu

import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const program = fileURLToPath(new URL("check-gpu.ts", import.meta.url));

function checkGpu(...flags: string[]) {
  // Without a PATH there is no nvidia-smi, whatever this machine has.
  const options = { encoding: "utf8", env: { ...process.env, PATH: "" } } as const;
  return spawnSync(process.execPath, [program, ...flags], options);
}

test("check:gpu: without a GPU it says so in one line and checks nothing", () => {
  const { status, stdout, stderr } = checkGpu();
  expect([status, stdout]).toEqual([3, ""]);
  expect(stderr).toMatch(
    /^check:gpu: no NVIDIA GPU 0 on this machine \(.*\): nothing was checked\.\n$/,
  );
});

test("check:gpu: a rehearsal runs every part and prints one JSON", () => {
  const { status, stdout, stderr } = checkGpu("--rehearse");
  expect([status, stderr]).toEqual([0, ""]);
  const report = JSON.parse(stdout);
  expect(report).toMatchObject({
    rehearsal: true,
    gpu: null,
    passed: true,
    engine: { device: "cpu" },
    llama_bench: { skipped: expect.any(String) },
    stages: { devices: ["cpu", "cpu"], difference: { of_stages: 0 } },
    training: { device: "cpu" },
  });
  const streams = report.engine.decode.map((each: { streams: number }) => each.streams);
  expect(streams).toEqual([1, 16, 64]);
  for (const { tokens_per_s } of report.engine.decode) expect(tokens_per_s).toBeGreaterThan(0);
  expect(report.training.programs.length).toBeGreaterThan(5);
});

test("check:gpu: an unknown flag is refused with the usage", () => {
  const { status, stderr } = checkGpu("--gpus", "2");
  expect(status).toBe(2);
  expect(stderr).toContain("npm run check:gpu -- [--gpu INDEX]");
});
