import type { Worker as ClusterNode } from "@heddle/contracts/api/workers";
import { expect, test } from "vitest";
import { figureShare, figureText, isUnhealthy } from "./gpu-figure.ts";

const gpu = {
  index: 1,
  uuid: "GPU-1",
  name: "H100",
  memory_bytes: 80e9,
  memory_used_bytes: 20e9,
  utilization_percent: 55,
  temperature_celsius: 60,
  power_watts: 300,
  simulated: false,
  fault: null,
};

test("gpus: figures are shares of their ranges, and never beyond them", () => {
  expect(figureShare(gpu, "load")).toBe(0.55);
  expect(figureShare(gpu, "memory")).toBe(0.25);
  expect(figureShare(gpu, "temperature")).toBe(0.5);
  expect(figureShare({ ...gpu, temperature_celsius: 120 }, "temperature")).toBe(1);
  expect(figureShare({ ...gpu, memory_bytes: 0, memory_used_bytes: 0 }, "memory")).toBe(0);
  expect(figureText(gpu, "memory")).toBe("20 GB");
});

test("gpus: a device with a fault, or in quarantine, is unhealthy", () => {
  const jobs = (device: number) =>
    ({ quarantined: [{ device, why: "", at: "" }] }) as unknown as ClusterNode["jobs"];
  expect(isUnhealthy({ jobs: null }, gpu)).toBe(false);
  expect(isUnhealthy({ jobs: null }, { ...gpu, fault: "Xid 79" })).toBe(true);
  expect(isUnhealthy({ jobs: jobs(1) }, gpu)).toBe(true);
  expect(isUnhealthy({ jobs: jobs(0) }, gpu)).toBe(false);
});
