// holds: sec-tls-default

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { programOf, startArguments } from "@heddle/base/testing/programs";
import { Peer } from "@heddle/rpc/peer";
import { progressMethod } from "@heddle/rpc/proto";
import { afterAll, afterEach, describe, expect, it } from "vitest";

// Each setting by which a program leaves its machine: in the clear only by a flag, with a warning.

const CLUSTER_TOKEN = "a-token-of-sixteen-characters";
const WARNING = "no TLS between nodes (--insecure-nodes)";
const FLAG = "--insecure-nodes";

const folder = mkdtempSync(join(tmpdir(), "heddle-plain-"));
const token = join(folder, "token");
writeFileSync(token, CLUSTER_TOKEN);
let running: ChildProcess[] = [];
afterEach(async () => {
  await Promise.all(running.map(ended));
  running = [];
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Started {
  readonly child: ChildProcess;
  output: string;
}

interface Way {
  readonly flags?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** The text of a settings file. */
  readonly settings?: string;
}

let starts = 0;

function start(kind: "master" | "worker" | "parameter-server", way: Way, more: string[]): Started {
  const data = join(folder, `${kind}-${++starts}`);
  const own = kind === "master" ? ["--http-port", "0"] : ["--masters", "127.0.0.1:9"];
  const file = `${data}.yaml`;
  if (way.settings !== undefined) writeFileSync(file, way.settings);
  const settings = way.settings === undefined ? [] : ["--config", file];
  const place = ["--data", data, "--name", "n", "--grpc-port", "0", "--cluster-token-file", token];
  const flags = [...startArguments(kind), ...place, ...own, ...(way.flags ?? []), ...settings];
  const child = spawn(process.execPath, [...flags, ...more], {
    env: { ...process.env, ...way.env },
  });
  running.push(child);
  const started: Started = { child, output: "" };
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      started.output += text;
    });
  }
  return started;
}

function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve();
  const { promise, resolve } = Promise.withResolvers<void>();
  child.once("exit", () => resolve());
  child.kill("SIGKILL");
  return promise;
}

const said = (started: Started, text: string | RegExp) =>
  eventually(
    () => (typeof text === "string" ? started.output.includes(text) : text.test(started.output)),
    () => `${text} in ${started.output}`,
  );

describe("a master that another machine reaches", () => {
  it.each<[string, Way]>([
    ["--grpc-host", { flags: ["--grpc-host", "0.0.0.0"] }],
    ["its variable", { env: { HEDDLE_GRPC_HOST: "0.0.0.0" } }],
    ["the settings file", { settings: "grpc_host: 0.0.0.0\n" }],
  ])("by %s: uses TLS, or is in the clear by a flag and warns", async (_, way) => {
    const secure = start("master", way, []);
    await said(secure, /"msg":"ready"/);
    expect(secure.output).not.toContain(WARNING);
    const [, port] = /"grpc":"[^"]*:(\d+)"/.exec(secure.output) ?? [];
    const node = { role: "master", name: "b" } as const;
    const peer = new Peer(`127.0.0.1:${port}`, { clusterToken: CLUSTER_TOKEN, node });
    const asked = peer.unary(progressMethod, {}, { deadlineMs: 5_000 });
    await expect(asked).rejects.toMatchObject({ code: "unavailable" });
    peer.close();
    await said(start("master", way, [FLAG]), WARNING);
  });

  it("by --peers: needs their authority, or is in the clear by a flag and warns", async () => {
    const way = { flags: ["--peers", "n=127.0.0.1:9,b=node.invalid:9"] };
    await said(start("master", way, []), /cluster-ca.pem is missing: copy it from another master/);
    await said(start("master", way, [FLAG]), WARNING);
  });
});

describe("heddle cluster add of a group without TLS", () => {
  it("another machine's master: is refused, or in the clear by a flag and warns", async () => {
    const keyFile = join(folder, "admin-key");
    const master = start("master", { flags: ["--bootstrap-key-file", keyFile] }, []);
    await said(master, /"msg":"ready"/);
    const [, url = ""] = /"http":"([^"]+)"/.exec(master.output) ?? [];
    const add = (address: string, ...flags: string[]) => {
      const own = ["--address", address, "--join-token-file", join(folder, "join-token"), ...flags];
      const words = [programOf("cli"), "cluster", "add", "b", ...own, "--endpoint", url];
      const env = { ...process.env, HEDDLE_API_KEY: readFileSync(keyFile, "utf8").trim() };
      const { status, stdout, stderr } = spawnSync(process.execPath, words, { env });
      return { status, out: String(stdout), said: String(stderr) };
    };
    const refused = add("10.0.0.2:8081");
    expect([refused.status, refused.out]).toEqual([2, ""]);
    expect(refused.said).toMatch(/without TLS.*--tls, or give --insecure-nodes/);
    const insecure = add("10.0.0.2:8081", FLAG);
    expect(insecure.out).toContain(`--grpc-host 10.0.0.2 --grpc-port 8081 ${FLAG} `);
    expect(insecure.said).toContain("warning: the masters run without TLS");
    expect(add("127.0.0.1:9").out).not.toContain(FLAG);
  });
});

describe.each(["worker", "parameter-server"] as const)("a %s that leaves its machine", (kind) => {
  it.each<[string, Way]>([
    ["--grpc-host", { flags: ["--grpc-host", "0.0.0.0"] }],
    ["--masters", { flags: ["--masters", "node.invalid:9"] }],
    ["--advertise", { flags: ["--advertise", "node.invalid:9"] }],
  ])("by %s: needs a certificate, or is in the clear by a flag and warns", async (_, way) => {
    const secure = start(kind, way, []);
    await eventually(
      () => secure.child.exitCode !== null,
      () => secure.output,
    );
    expect(secure.child.exitCode).not.toBe(0);
    expect(secure.output).toMatch(/no valid certificate.*--insecure-nodes.*--join-token-file/);
    await said(start(kind, way, [FLAG]), WARNING);
  });
});
