import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { parseNodes, parsePods, readTraces } from "./trace.ts";

const TESTDATA = fileURLToPath(new URL("testdata", import.meta.url));

describe("the openb traces", () => {
  it("read as one node list and one trace a pod list, named by its file", () => {
    const { nodes, traces } = readTraces(TESTDATA);
    expect(nodes.length).toBe(8);
    expect(traces.map(({ name, pods }) => [name, pods.length])).toEqual([
      ["openb_pod_list_bare", 4],
      ["openb_pod_list_small", 10],
    ]);
  });

  it("give pods that ask for the same one kind, and accepted models apart", () => {
    const { traces } = readTraces(TESTDATA);
    const pods = traces[1]!.pods;
    expect(pods[0]!.kind).toBe(pods[1]!.kind);
    expect(pods[2]!.kind).not.toBe(pods[0]!.kind);
    expect(pods[6]!.models).toEqual(["T4", "P100"]);
    expect(pods[7]).toMatchObject({ gpus: 0, gpuMilli: 0, models: [] });
  });

  it("name the file, line and column of a bad amount", () => {
    const csv = "sn,cpu_milli,memory_mib,gpu,model\r\na,1,2,3,T4\r\nb,1,x,3,T4\r\n";
    expect(() => parseNodes(csv, "nodes.csv")).toThrow("nodes.csv, line 3, column memory_mib");
  });

  it("name the columns that are missing", () => {
    expect(() => parsePods("name,cpu_milli\n", "p.csv")).toThrow("memory_mib, num_gpu, gpu_milli");
  });

  it("say which file a folder lacks", () => {
    const here = fileURLToPath(new URL(".", import.meta.url));
    expect(() => readTraces(here)).toThrow("no openb_node_list");
  });
});
