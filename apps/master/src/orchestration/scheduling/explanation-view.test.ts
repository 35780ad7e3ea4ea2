import { expect, test } from "vitest";
import { blockerText, viewBlocker } from "./explanation-view.ts";

test("explanation: GPUs are shown as requested, not in thousandths", () => {
  const gpus = { resource: "gpu_milli", requested: 8_000, free: 2_500, limit: 4_000 };
  expect(blockerText({ reason: "InsufficientGpu", ...gpus })).toBe(
    "InsufficientGpu: 8 GPUs requested, 2.5 free of 4",
  );
  expect(blockerText({ reason: "Fragmented", ...gpus, requested: 1_000 })).toMatch(
    /^Fragmented: 1 GPU requested; 2.5 of 4 are free, but not together/,
  );
});

test("explanation: a backoff shows the time that is left and when it ends", () => {
  const limit = Date.UTC(2026, 0, 1);
  const backoff = { resource: "ms_to_wait", requested: 615, free: 0, limit };
  expect(blockerText({ reason: "Backoff", ...backoff })).toBe(
    "Backoff: 0.615 s of backoff left before the next start, until 2026-01-01T00:00:00.000Z",
  );
});

test("explanation: an amount has the name of its spec field and that field's units", () => {
  const memory = { resource: "memory_mib", requested: 95_368, free: 954, limit: 4_096 };
  expect(viewBlocker({ reason: "InsufficientMemory", ...memory })).toMatchObject({
    resource: "memory_gb",
    requested: 100,
    free: 1,
    limit: 4.294,
    message: "InsufficientMemory: 100 GB of memory (`memory_gb`) requested, 1 free of 4.294",
  });
  const network = { resource: "network_mbps", requested: 500_000, free: 0, limit: 100_000 };
  expect(viewBlocker({ reason: "InsufficientNetwork", ...network })).toMatchObject({
    resource: "network_bandwidth_gbps",
    requested: 500,
    free: 0,
    limit: 100,
  });
  const cpu = { resource: "cpu_milli", requested: 1_500, free: 100, limit: 1_000 };
  expect(blockerText({ reason: "Fragmented", ...cpu })).toMatch(/^Fragmented: 1.5 CPU cores/);
  expect(viewBlocker({ reason: "InsufficientCpu", ...cpu }).resource).toBe("cpu_cores");
});

test("explanation: an amount of memory that was rounded up is shown as requested", () => {
  for (const asked of [0.001, 0.5, 1, 1.25, 7.077, 100, 65_536.4, 1e9]) {
    const requested = Math.ceil((asked * 1e9) / 2 ** 20);
    const memory = { resource: "memory_mib", requested, free: 0, limit: 0 };
    expect(viewBlocker({ reason: "InsufficientMemory", ...memory }).requested).toBe(asked);
  }
});

// holds: sched-no-nodes
test("explanation: without nodes it names workers that take no jobs, too", () => {
  const blocker = {
    reason: "NoNodes",
    resource: "nodes",
    requested: 1,
    free: 0,
    limit: 0,
  } as const;
  expect(blockerText(blocker)).toMatch(/none has joined, or those that have do not isolate tasks/);
});
