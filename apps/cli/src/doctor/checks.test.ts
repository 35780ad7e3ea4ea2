import { X509Certificate } from "node:crypto";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CLOCK_SKEW_MS, createAuthority } from "@heddle/pki/certificate-authority";
import { afterAll, describe, expect, it, vi } from "vitest";
import { LOOPBACK } from "../up/ports.ts";
import { certificateFinding, shownCertificates } from "./certificate-checks.ts";
import { checkCluster } from "./cluster-checks.ts";
import { checkData } from "./data-checks.ts";
import type { Finding } from "./finding.ts";
import {
  checkMemory,
  checkNode,
  checkOpenFiles,
  checkPorts,
  checkTemporaryFolder,
} from "./machine-checks.ts";
import { checkNodes } from "./node-checks.ts";
import { checkGpu, checkIsolation } from "./worker-checks.ts";

// Faults that a sound machine does not have.

const scratch = mkdtempSync(join(tmpdir(), "heddle-checks-"));
const servers: Server[] = [];
afterAll(() => {
  for (const server of servers) server.close();
  rmSync(scratch, { recursive: true, force: true });
});

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
const GIB = 2 ** 30;
const statusOf = (found: readonly Finding[], check: string) =>
  found.filter((finding) => finding.check === check).map(({ status }) => status);

/** A server without an answer to give leaves its callers waiting. */
async function serve(answer?: () => object): Promise<{ endpoint: string; port: number }> {
  const server = createServer((_, response) => answer && response.end(JSON.stringify(answer())));
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, LOOPBACK, resolve));
  const { port } = server.address() as AddressInfo;
  return { endpoint: `http://${LOOPBACK}:${port}`, port };
}

function folder(name: string, mode = 0o700): string {
  const path = join(scratch, name);
  mkdirSync(path, { recursive: true });
  chmodSync(path, mode);
  return path;
}

describe("checks of the machine", () => {
  it("an old Node, little memory, few open files: each with its remedy", () => {
    expect(checkNode("v20.11.1")).toMatchObject({ status: "error" });
    expect(checkNode("v22.12.0").status).toBe("ok");
    expect(checkMemory([{ memoryBytes: GIB / 2 }], 8 * GIB)).toMatchObject({
      status: "error",
      what: "this container or service has 512 MiB",
    });
    expect(checkMemory([], GIB)).toMatchObject({ status: "warning" });
    expect(checkMemory([{ cpuMilli: 500 }], 4 * GIB).status).toBe("ok");
    expect(checkOpenFiles("Max open files            1024     4096     files")).toMatchObject({
      status: "warning",
      what: "a process may open 1024 files",
    });
    expect(checkOpenFiles("")).toMatchObject({ status: "skipped" });
    expect(checkTemporaryFolder(join(scratch, "absent"))).toMatchObject({ status: "error" });
  });

  it("a port in use: an error that proposes a free one", async () => {
    const { port } = await serve(() => ({}));
    const [first] = await checkPorts(port, 1);
    expect(first).toMatchObject({ status: "error", where: `${LOOPBACK}:${port}` });
    expect(first?.fix).toMatch(/ss -ltnp .* heddle up --port \d+$/);
  });

  it("a GPU that the driver does not show, and one without nvidia-uvm", async () => {
    const [pci, devices] = [folder("pci"), folder("dev")];
    mkdirSync(join(pci, "0000:01:00.0"));
    writeFileSync(join(pci, "0000:01:00.0", "vendor"), "0x10de\n");
    writeFileSync(join(pci, "0000:01:00.0", "class"), "0x030200\n");
    const tools = folder("tools");
    const smi = (script: string) =>
      writeFileSync(join(tools, "nvidia-smi"), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
    vi.stubEnv("PATH", tools);
    try {
      const missing = await checkGpu({ pci, devices });
      expect(missing).toMatchObject({ status: "error" });
      expect(missing.what).toContain("it is not installed");
      expect((await checkGpu({ pci: devices, devices })).status).toBe("ok");
      smi("echo 'NVIDIA-SMI has failed'; exit 9");
      expect((await checkGpu({ pci, devices })).what).toContain("NVIDIA-SMI has failed");
      smi("echo '0, GPU-1, NVIDIA H100, 81559, 0, 0, 30, 70'");
      expect(await checkGpu({ pci, devices })).toMatchObject({ status: "error" });
      writeFileSync(join(devices, "nvidia-uvm"), "");
      expect(await checkGpu({ pci, devices })).toMatchObject({
        status: "ok",
        what: "1 GPUs: NVIDIA H100 81559 MiB",
      });
    } finally {
      vi.unstubAllEnvs();
    }
  });

  it("isolation: no level, and a trial that fails", async () => {
    const program = join(scratch, "level.mjs");
    writeFileSync(
      program,
      `console.log('{"level":"none","reasons":["own user: no","Landlock: no"]}')`,
    );
    const none = await checkIsolation(program);
    expect(none).toMatchObject({ status: "error" });
    expect(none.what).toContain("own user: no; Landlock: no");
    expect((await checkIsolation(join(scratch, "absent.mjs"))).status).toBe("error");
  });
});

describe("checks of a data directory", () => {
  it("open to others: a warning; damaged credentials: an error", () => {
    const path = folder("open", 0o755);
    writeFileSync(join(path, "credentials.json"), "{", { mode: 0o644 });
    const found = checkData(path, 1);
    expect(found.find(({ check }) => check === "data-directory")?.fix).toBe(`chmod 700 ${path}`);
    expect(statusOf(found, "credentials")).toEqual(["error"]);
    const text = JSON.stringify({ endpoint: "http://127.0.0.1:1", api_key: "k" });
    writeFileSync(join(path, "credentials.json"), text);
    const readable = checkData(path, 1).find(({ check }) => check === "credentials");
    expect(readable).toMatchObject({ status: "warning" });
    expect(readable?.fix).toContain("chmod 600");
  });

  it("masters of two clusters, and a file in its place: errors", () => {
    const path = folder("two");
    for (const name of ["master-1", "master-2"]) {
      mkdirSync(join(path, name, "control"), { recursive: true });
      writeFileSync(
        join(path, name, "control", "identity.json"),
        JSON.stringify({ cluster: name }),
      );
    }
    expect(checkData(path, 1)[0]?.what).toContain("holds masters of 2 clusters");
    writeFileSync(join(scratch, "file"), "");
    expect(checkData(join(scratch, "file"), 1)).toMatchObject([{ status: "error" }]);
  });
});

describe("checks of a cluster", () => {
  it("certificates: expired, about to expire, and not yet valid", async () => {
    const { certificate } = await createAuthority();
    const parsed = new X509Certificate(certificate);
    const untilMs = Date.parse(parsed.validTo);
    const at = (ms: number) => certificateFinding("x", parsed, "authority", ms).status;
    expect(at(Date.now())).toBe("ok");
    expect(at(untilMs - 13 * DAY_MS)).toBe("warning");
    expect(at(untilMs + MINUTE_MS)).toBe("error");
    expect(at(Date.now() - CLOCK_SKEW_MS - MINUTE_MS)).toBe("error");
    const { port } = await serve(() => ({}));
    expect(await shownCertificates(LOOPBACK, port)).toEqual([]);
  });

  it("clocks and versions of the masters, and programs that are no master", async () => {
    const health = (aheadMs: number, version: string) => () => ({
      status: "ok",
      version,
      timestamp: new Date(Date.now() + aheadMs).toISOString(),
      components: {},
      resource_usage: { cpu_percent: 1, memory_percent: 95, disk_percent: 1 },
    });
    const slow = await serve(health(-2 * MINUTE_MS, "0.1.0"));
    const fast = await serve(health(9 * MINUTE_MS, "0.2.0"));
    const other = await serve(() => ({ hello: "world" }));
    const connection = { apiKey: "k", endpointSource: "--endpoint" } as const;
    const silent = await serve();
    const others = [fast.endpoint, other.endpoint, silent.endpoint];
    const found = await checkCluster({ ...connection, endpoint: slow.endpoint, others }, "0.1.0");
    expect(statusOf(found, "reachable")).toEqual(["ok", "ok", "error", "error"]);
    const whatOf = (endpoint: string) =>
      found.find(({ check, where }) => check === "reachable" && where === endpoint)?.what;
    expect(whatOf(other.endpoint)).toBe("another program than Heddle answers");
    expect(whatOf(silent.endpoint)).toBe("no answer within 3 s");
    expect(statusOf(found, "clock")).toEqual(["warning", "error", "error"]);
    expect(found.find(({ check }) => check === "clock")?.what).toMatch(/1(19|20)\.\d s behind/);
    expect(statusOf(found, "version")).toEqual(["ok", "warning"]);
    expect(statusOf(found, "master-resources")).toEqual(["warning", "warning"]);
  });

  it("nodes: none, and one that refuses the leader, with a faulty executor", () => {
    expect(checkNodes([], "0.1.0")).toMatchObject([{ status: "warning" }]);
    const worker = { kind: "worker", name: "w", status: "refusing", silent_seconds: 0 } as const;
    const faulty = {
      ...worker,
      refuses_leader: "another cluster",
      executor_fault: "no offer",
      version: "0.0.9",
      gpus: [],
      task_isolation: "none",
    };
    const found = checkNodes([faulty] as never, "0.1.0");
    expect(found.map(({ check, status }) => `${check} ${status}`)).toEqual([
      "node error",
      "node error",
      "node warning",
      "isolation warning",
    ]);
  });
});
