// holds: kube-plugin

import { type SpawnSyncReturns, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type RequestListener } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { createOwnCertificate } from "@heddle/pki/certificate-authority";
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest";

// A kubectl with answers of a cluster; what it forwards to is here.

const PLUGIN = join(import.meta.dirname, "..", "..", "bin", "kubectl-heddle.mjs");
const folder = mkdtempSync(join(tmpdir(), "heddle-plugin-"));
const log = join(folder, "log");
const ended = join(folder, "ended");
let keys: (string | undefined)[];
let port = 0;

const listen: RequestListener = (request, reply) => {
  keys.push(request.headers.authorization);
  reply.writeHead(200, { "content-type": "application/json" });
  reply.end(JSON.stringify({ object: "list", data: [], next_cursor: null }));
};
const server = createServer(listen);

const service = (name: string, clusterIP = "10.0.0.1", annotations = {}) => ({
  metadata: { name, annotations },
  spec: { clusterIP, ports: [{ port: 80 }] },
});

function answers(services: readonly object[], { authority = "", forwarded = port } = {}): void {
  const program = `#!/bin/sh
echo "$@" >> ${log}
case "$*" in
  *"get services"*) echo '${JSON.stringify({ items: services })}' ;;
  *"get secret one-cluster"*) printf %s ${Buffer.from("hdl_test\n").toString("base64")} ;;
  *"get secret api-tls"*) printf %s ${Buffer.from(authority).toString("base64")} ;;
  *"get secret"*) echo 'Error: secrets not found' >&2; exit 1 ;;
  *port-forward*)
    trap 'echo > ${ended}; exit' TERM
    echo 'Forwarding from 127.0.0.1:${forwarded} -> 8080'
    while :; do sleep 0.05; done ;;
esac
`;
  writeFileSync(join(folder, "kubectl"), program, { mode: 0o755 });
}

async function plugin(
  args: readonly string[],
): Promise<Pick<SpawnSyncReturns<string>, "status" | "stderr" | "stdout">> {
  const { HEDDLE_API_KEY: _, ...rest } = process.env;
  const env = { ...rest, PATH: `${folder}${delimiter}${process.env["PATH"]}` };
  const child = spawn(process.execPath, [PLUGIN, ...args], { env });
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (text) => (stdout += text));
  child.stderr.on("data", (text) => (stderr += text));
  const [status] = (await once(child, "close")) as [number];
  return { status, stdout, stderr };
}

beforeAll(async () => {
  await once(server.listen(0, "127.0.0.1"), "listening");
  port = (server.address() as AddressInfo).port;
});
beforeEach(() => {
  keys = [];
  rmSync(log, { force: true });
  answers([service("one"), service("one-masters", "None")]);
});
afterAll(() => {
  server.close();
  rmSync(folder, { recursive: true });
});

it("kubectl plugin: runs a command with the key and a port of the cluster", async () => {
  const args = ["--context", "far", "-n", "models", "queues", "list", "--output", "json"];
  const { status, stderr } = await plugin(args);
  expect([status, stderr]).toEqual([0, ""]);
  expect(keys).toEqual(["Bearer hdl_test"]);
  const calls = readFileSync(log, "utf8").trim().split("\n");
  expect(calls).toHaveLength(3);
  for (const call of calls) expect(call).toMatch(/^--namespace models --context far /);
  expect(calls[2]).toContain("port-forward service/one :80");
  await expect.poll(() => existsSync(ended)).toBe(true);
});

it("kubectl plugin: checks masters' certificates by the release's Secret", async () => {
  const host = "one.models.svc.cluster.local";
  const { certificate: cert, privateKey: key } = await createOwnCertificate([host]);
  const masters = createTlsServer({ cert, key }, listen);
  await once(masters.listen(0, "127.0.0.1"), "listening");
  const forwarded = (masters.address() as AddressInfo).port;
  const annotated = (name: string) =>
    service("one", undefined, {
      "heddle.dev/endpoint": `https://${name}:80`,
      "heddle.dev/http-tls-secret": "api-tls",
    });
  try {
    answers([annotated(host)], { authority: cert, forwarded });
    const { status, stderr } = await plugin(["queues", "list", "--output", "json"]);
    expect([status, stderr, keys]).toEqual([0, "", ["Bearer hdl_test"]]);
    answers([annotated("two.models.svc.cluster.local")], { authority: cert, forwarded });
    const other = await plugin(["queues", "list"]);
    expect(other.stderr).toMatch(/masters' certificate .*does not match certificate/);
    const { certificate: authority } = await createOwnCertificate([host]);
    answers([annotated(host)], { authority, forwarded });
    const unknown = await plugin(["queues", "list"]);
    expect(unknown.stderr).toMatch(/masters' certificate .*self-signed/);
    expect([other.status, unknown.status]).not.toContain(0);
    expect(keys).toHaveLength(1);
  } finally {
    masters.close();
  }
});

it("kubectl plugin: says which Services there are, and what to give", async () => {
  answers([service("one"), service("two")]);
  const several = await plugin(["queues", "list"]);
  expect(several.stderr).toMatch(/these masters' Services: one, two\. Name one with --service/);
  const other = await plugin(["--service=two", "queues", "list"]);
  expect(other.stderr).toContain("secrets not found");
  answers([]);
  expect((await plugin(["queues", "list"])).stderr).toContain("none. Give its --namespace");
  expect((await plugin(["--nonsense", "queues"])).stderr).toContain("--nonsense is not known");
  expect(keys).toEqual([]);
});
