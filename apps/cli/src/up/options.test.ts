import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { describe, expect, it } from "vitest";
import { isBlockedPort } from "../http/blocked-ports.ts";
import { parseUpOptions, type UpFlags } from "./options.ts";

const flags: UpFlags = {
  masters: "1",
  workers: "1",
  parameterServers: "1",
  port: "8080",
  logLevel: "warn",
};
const parsed = (change: Partial<UpFlags>) => parseUpOptions({ ...flags, ...change }, {});

describe("flags of heddle up", () => {
  it("refuse a port that clients block, for any of the masters", () => {
    expect(() => parsed({ port: "6000" })).toThrow(/block port 6000/);
    expect(() => parsed({ port: "6664", masters: "3" })).toThrow(/block port 6665/);
    expect(parsed({ port: "6664" }).port).toBe(6664);
    expect(() => parsed({ port: "65534", masters: "3" })).toThrow(/from 1 to 65533/);
  });

  // holds: start-bad-options
  it("refuse a model file that is no file", () => {
    const folder = join(mkdtempSync(join(tmpdir(), "heddle-options-")), "m.gguf");
    mkdirSync(folder);
    expect(() => parsed({ model: folder })).toThrow(`--model: ${folder} is not a file`);
    rmSync(dirname(folder), { recursive: true });
    expect(() => parsed({ model: folder })).toThrow(`there is no file ${folder}`);
  });

  it("refuse a profile together with a file", () => {
    expect(() => parsed({ profile: "tiny", model: "m.gguf" })).toThrow(/mutually exclusive/);
  });

  // holds: start-offers
  it("each offer is passed to the workers", () => {
    const offers = {
      labels: "zone=a,disk=nvme",
      taints: "spot",
      rack: "r1",
      fabric: "nvlink",
      localSsdGb: "500",
      ioOperationsPerSec: "9000",
      networkGbps: "100",
      device: "0",
      artifactsReplica: "/shared/copies",
    };
    expect(parsed(offers).workerFlags).toEqual([
      "--labels",
      "zone=a,disk=nvme",
      "--taints",
      "spot",
      "--rack",
      "r1",
      "--fabric",
      "nvlink",
      "--local-ssd-gb",
      "500",
      "--io-operations-per-sec",
      "9000",
      "--network-gbps",
      "100",
      "--artifacts-replica",
      "/shared/copies",
      "--device",
      "0",
    ]);
    const replica = (artifactsReplica: string) => parsed({ artifactsReplica }).workerFlags;
    expect(replica("copies")).toEqual(["--artifacts-replica", join(process.cwd(), "copies")]);
    expect(replica("s3://b/p")).toEqual(["--artifacts-replica", "s3://b/p"]);
  });

  it("passes the file of upstreams by its whole path, and names one that is missing", () => {
    expect(parsed({ upstreams: "package.json" }).workerFlags).toEqual([
      "--upstreams",
      resolve("package.json"),
    ]);
    expect(() => parsed({ upstreams: "no.json" })).toThrow(
      `--upstreams: there is no file ${resolve("no.json")}. Check the path.`,
    );
  });

  // holds: start-offers
  it.each([
    [{ device: "gpu" }, "--device takes cpu or a GPU's index, as 0, not gpu"],
    [{ labels: "zone" }, "--labels takes NAME=VALUE,..., not zone"],
    [{ taints: "a b" }, "--taints takes NAME,..., not a b"],
    [{ rack: "r 1" }, /--rack takes a name of 1 to 128 .*, not r 1/],
    [{ fabric: "x".repeat(129) }, /--fabric takes a name of 1 to 128/],
    [{ localSsdGb: "0" }, "--local-ssd-gb takes a whole number 1..10000000, not 0"],
    [{ localSsdGb: "1.5" }, "--local-ssd-gb takes a whole number 1..10000000, not 1.5"],
    [{ ioOperationsPerSec: "many" }, /--io-operations-per-sec takes a whole number .*, not many/],
    [{ networkGbps: "-1" }, "--network-gbps takes a whole number 1..100000, not -1"],
    [{ taskUsers: "9-1" }, /--task-users takes FIRST-LAST .*, not 9-1/],
    [{ taskIsolation: "off" }, "--task-isolation takes required or optional, not off"],
    [{ simulateGpus: "4xH100" }, /--simulate-gpus takes COUNTxNAME-MEMORYGB, .*, not 4xH100/],
  ])("offers: %j is refused before anything starts", (offer, message) => {
    expect(() => parsed(offer)).toThrow(message);
  });
});

it("ports: the blocked ones are those that fetch refuses", async () => {
  const asked = Array.from({ length: 11_000 }, (_, port) => port).filter(isBlockedPort);
  expect(asked.length).toBeGreaterThan(80);
  for (const port of asked) {
    const error = await fetch(`http://127.0.0.1:${port}`).catch((reason: unknown) => reason);
    expect((error as Error).cause).toMatchObject({ message: "bad port" });
  }
});
