import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { seededRandom } from "@heddle/base/random";
import { describe, expect, it } from "vitest";
import { fgdScore, fragmentation, typicalPods } from "./fgd.ts";
import { heddlePolicy } from "./heddle-policy.ts";
import { allocatedPercent, measureAllocation, POLICIES, type PolicyName } from "./simulate.ts";
import { readTraces, type TracePod } from "./trace.ts";
import { drawWorkload, requestedGpuMilli, shuffled } from "./workload.ts";

const { nodes, traces } = readTraces(fileURLToPath(new URL("testdata", import.meta.url)));
const names = Object.keys(POLICIES) as PolicyName[];
const gpus = nodes.reduce((sum, node) => sum + node.gpus, 0);

const pod = (change: Partial<TracePod>): TracePod => ({
  kind: 0,
  cpuMilli: 1_000,
  memoryMib: 1,
  gpus: 1,
  gpuMilli: 1000,
  models: [],
  ...change,
});

describe("drawWorkload", () => {
  it("keeps the trace's pods and fills up to 1.3 times the cluster's GPUs", () => {
    const workload = drawWorkload(traces[1]!.pods, nodes, seededRandom(1));
    const asked = workload.reduce((sum, each) => sum + requestedGpuMilli(each), 0);
    expect(asked).toBeLessThanOrEqual(1300 * gpus + 1000);
    expect(asked).toBeGreaterThan(1300 * gpus - 4000);
    for (const each of traces[1]!.pods) expect(workload).toContain(each);
  });

  it("removes pods if the trace requests more", () => {
    const many = Array.from({ length: 400 }, () => pod({}));
    const workload = drawWorkload(many, nodes, seededRandom(1));
    expect(workload.length).toBe(Math.floor(1.3 * gpus));
  });

  it("refuses a trace without GPUs, which cannot be filled up", () => {
    const cpuOnly = [pod({ gpus: 0, gpuMilli: 0 })];
    expect(() => drawWorkload(cpuOnly, nodes, seededRandom(1))).toThrow("no GPU");
  });
});

describe("each policy", () => {
  it.each(names)("%s gives the same allocation for the same seeds, within the cluster", (name) => {
    for (const trace of traces) {
      const measured = measureAllocation(name, nodes, trace, 3);
      expect(measured).toEqual(measureAllocation(name, nodes, trace, 3));
      expect(measured.mean).toBeGreaterThan(50);
      expect(measured.mean).toBeLessThanOrEqual(100);
    }
  });

  it.each(names)("%s fills a cluster that whole-GPU pods fill exactly, and no more", (name) => {
    const workload = Array.from({ length: 2 * gpus }, () => pod({}));
    const policy = POLICIES[name](nodes, seededRandom(5), workload);
    expect(allocatedPercent(policy, nodes, workload)).toBe(100);
  });
});

describe("heddle policy", () => {
  it("allocates the same for any names and order of the nodes", () => {
    for (const { pods } of traces) {
      const workload = drawWorkload(pods, nodes, seededRandom(9));
      const base = allocatedPercent(heddlePolicy(nodes, pods), nodes, workload);
      for (let seed = 0; seed < 10; seed++) {
        const others = shuffled(nodes, seededRandom(seed)).map((node, i) => ({
          ...node,
          name: `${seed}-${i}`,
        }));
        expect(allocatedPercent(heddlePolicy(others, pods), others, workload)).toBe(base);
      }
    }
  });
});

describe("fgd policy", () => {
  it("counts what typical pods cannot use as lost, else the crowded devices", () => {
    const typical = typicalPods([pod({ gpuMilli: 500 })]);
    const lost = (free: number[], cpuMilli: number, model = "T4") =>
      fragmentation(typical, { model }, free, cpuMilli);
    expect(lost([1000, 300], 1_000)).toBe(300);
    expect(lost([1000, 300], 999)).toBe(1300);
    expect(lost([400, 300], 1_000)).toBe(700);
  });

  it("scores 100 times the sigmoid of the GPUs it frees, truncated to an integer", () => {
    const score = fgdScore([pod({ gpuMilli: 1000 })]);
    const node = { model: "T4", cpuMilli: 9_000, memoryMib: 9, gpuMilli: [1000, 300] };
    expect(score(node, pod({ gpuMilli: 300 }))).toEqual({ score: 57, device: 1 });
    expect(score(node, pod({}))).toEqual({ score: 50, device: -1 });
    // The pod leaves a GPU without the CPU that a typical pod needs: one more GPU is lost.
    const short = { model: "T4", cpuMilli: 1_500, memoryMib: 9, gpuMilli: [1000, 1000] };
    expect(score(short, pod({}))).toEqual({ score: 26, device: -1 });
  });
});

const data = process.env["HEDDLE_TEST_DATA"];
const openb = data ? join(data, "openb") : undefined;
const hasOpenb = openb !== undefined && existsSync(openb);
if (!hasOpenb)
  console.log("HEDDLE_TEST_DATA has no openb folder: the openb figures are not checked");

describe.runIf(hasOpenb)("on openb's default trace", () => {
  it("fgd comes within half a point of the paper's 95.39 and heddle is no worse", () => {
    const read = readTraces(openb!);
    const trace = read.traces.find(({ name }) => name === "openb_pod_list_default")!;
    const fgd = measureAllocation("fgd", read.nodes, trace, 2);
    const heddle = measureAllocation("heddle", read.nodes, trace, 2);
    expect(Math.abs(fgd.mean - 95.39)).toBeLessThan(0.5);
    expect(heddle.mean).toBeGreaterThanOrEqual(fgd.mean);
  });
});
