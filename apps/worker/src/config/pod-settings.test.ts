import { expect, it } from "vitest";
import { readPodSettings } from "./pod-settings.ts";

const environment = { POD_NAME: "worker-0" };
const read = (flags: Record<string, string>) =>
  readPodSettings({ executor: "pod", ...flags }, environment);

it("Pod settings: GPUs come from a device plugin or by claims", () => {
  expect(read({})?.gpus).toBeUndefined();
  const resource = "nvidia.com/gpu";
  expect(read({ "pod-gpus": resource })?.gpus).toEqual({ by: "plugin", resource });
  expect(read({ "pod-gpus": `${resource}=4` })?.gpus).toEqual({ by: "plugin", resource, count: 4 });
  const gpus = { by: "claim", template: "one-gpu", count: 8 };
  expect(read({ "pod-gpu-claims": "one-gpu=8" })?.gpus).toEqual(gpus);
});

it("Pod settings: what cannot be used is refused by the flag's name", () => {
  expect(() => read({ "pod-gpus": "gpu" })).toThrow("--pod-gpus takes RESOURCE=COUNT");
  for (const claims of ["one-gpu", "one-gpu=0", "One=1", "=2"]) {
    expect(() => read({ "pod-gpu-claims": claims })).toThrow(
      "--pod-gpu-claims takes TEMPLATE=COUNT",
    );
  }
  const both = { "pod-gpus": "nvidia.com/gpu", "pod-gpu-claims": "one-gpu=1" };
  expect(() => read(both)).toThrow("would give the same GPUs twice");
  expect(() => readPodSettings({ "pod-queues": "a.json" }, environment)).toThrow("--executor pod");
});
