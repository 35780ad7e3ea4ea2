import type { DeploymentSpec } from "@heddle/contracts/engine";
import { expect, test } from "vitest";
import { scriptedPorts } from "../../test/scripted-ports.ts";
import { withSimulatedGpus } from "./simulated-device.ts";

const gpus = [
  { index: 0, name: "H100", simulated: true },
  { index: 1, name: "H100", simulated: false },
];

/** The device that an engine is started with, and the one that it reports. */
async function startedOn(device: string | undefined) {
  let startedWith: string | undefined;
  const ports = withSimulatedGpus(
    {
      ...scriptedPorts,
      startEngine: (start) => {
        startedWith = start.spec.options.device;
        return scriptedPorts.startEngine(start);
      },
    },
    () => gpus,
  );
  const weights = { key: "m", file: "m.gguf", sources: [] };
  const spec: DeploymentSpec = { key: "m", engine: "llama", weights, options: { device } };
  const signal = new AbortController().signal;
  const start = {
    spec,
    modelPath: "/m",
    sink: () => {},
    onExit: () => {},
    onDown: () => {},
    onRecovered: () => {},
    signal,
  };
  const engine = await ports.startEngine(start);
  const reported = engine.info.device;
  await engine.close();
  return { startedWith, reported };
}

test("simulated GPU: its engine runs on the CPU and reports that; others do not", async () => {
  const simulated = "gpu 0: H100 (simulated, on the CPU)";
  expect(await startedOn("0")).toEqual({ startedWith: "cpu", reported: simulated });
  for (const device of ["1", "cpu", undefined]) {
    const { startedWith, reported } = await startedOn(device);
    expect(startedWith).toBe(device);
    expect(reported).not.toContain("simulated");
  }
});
