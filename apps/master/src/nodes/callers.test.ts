// holds: sec-callers

import type { MethodDefinition } from "@grpc/grpc-js";
import { isRevoked, revokeNode } from "@heddle/control/revocations";
import { createAuthority, requestCertificate, signNode } from "@heddle/pki/certificate-authority";
import { NODE_ROLES, type NodeRole } from "@heddle/pki/node-name";
import { TlsIdentity } from "@heddle/pki/tls-identity";
import { CALLERS, TOKEN_HOLDERS } from "@heddle/rpc/callers";
import type { IsRevoked, NodeCredentials } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";
import { attachMethod, services } from "@heddle/rpc/proto";
import { type BoundServer, bindServer, closeServer } from "@heddle/rpc/server";
import { fromStatus } from "@heddle/rpc/status";
import { ALL_METHODS, callOutcome } from "@heddle/rpc/testing/call-outcome";
import { afterEach, expect, test } from "vitest";
import { clusterToken, TestCluster } from "../../test/test-cluster.ts";

// Which role may call what: every method of proto/ with every role.

const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

/** A master's server with empty handlers for every method, and a count of calls. */
async function serveAll(credentials: NodeCredentials, isRevoked?: IsRevoked): Promise<BoundServer> {
  const bound = await bindServer({ host: "127.0.0.1", port: 0, credentials, isRevoked });
  for (const service of services.values()) {
    const handlers = Object.entries(service).map(([name, method]) => [name, handler(method)]);
    bound.server.addService(service, Object.fromEntries(handlers));
  }
  closing.push(() => closeServer(bound.server, 0));
  return bound;
}

function handler({ requestStream, responseStream }: MethodDefinition<unknown, unknown>) {
  if (!responseStream)
    return (_call: unknown, reply: (e: null, v: object) => void) => reply(null, {});
  if (!requestStream) return (call: { end(): void }) => call.end();
  return (call: { end(): void; resume(): void }) => {
    call.resume();
    call.end();
  };
}

async function expectTable(server: string, as: (role: NodeRole) => NodeCredentials): Promise<void> {
  for (const role of NODE_ROLES) {
    const peer = new Peer(server, as(role));
    closing.push(() => peer.close());
    for (const method of ALL_METHODS) {
      const callers = CALLERS[method.path];
      // Without TLS the token issues tickets.
      const isIssuer = TOKEN_HOLDERS.includes(role) && !as(role).tls && callers?.includes("job");
      const isLetIn = callers === "anyone" || isIssuer || callers?.includes(role);
      const expected = isLetIn ? "served" : "permission_denied";
      expect(await callOutcome(peer, method), `${role} calls ${method.path}`).toBe(expected);
    }
  }
}

test("callers: each method of proto/ declares who may call it", () => {
  expect(Object.keys(CALLERS).sort()).toEqual(ALL_METHODS.map(({ path }) => path).sort());
});

test("callers: by token, each role is refused other roles' methods", async () => {
  const as = (role: NodeRole) => ({ clusterToken, node: { role, name: "n" } });
  const { address } = await serveAll(as("master"));
  await expectTable(address, as);
});

/** One certificate of each role. */
async function certified(): Promise<(role: NodeRole) => NodeCredentials> {
  const authority = await createAuthority();
  const all = new Map<NodeRole, NodeCredentials>();
  for (const role of NODE_ROLES) {
    const { privateKey, csr } = await requestCertificate();
    const certificate = await signNode(authority, csr, { role, name: "n" }, 3_600_000);
    const material = { authority: authority.certificate, certificate, privateKey };
    all.set(role, { clusterToken: "", tls: new TlsIdentity(material) });
  }
  return (role) => all.get(role) as NodeCredentials;
}

test("callers: by certificate, each role is refused other roles' methods", async () => {
  const as = await certified();
  const { address } = await serveAll(as("master"));
  await expectTable(address, as);
});

// holds: sec-revoked
test("callers: a revoked certificate opens only what needs none", async () => {
  const as = await certified();
  const cluster = new Map();
  const { address } = await serveAll(as("master"), (node, { valid_from: from }) =>
    isRevoked(cluster, node, Date.parse(from)),
  );
  const command = { type: "node.revoke", nodeId: "id", role: "worker", name: "n" } as const;
  revokeNode(cluster, { ...command, atMs: Date.now() });
  const peer = new Peer(address, as("worker"));
  closing.push(() => peer.close());
  for (const method of ALL_METHODS) {
    const expected = CALLERS[method.path] === "anyone" ? "served" : "permission_denied";
    expect(await callOutcome(peer, method), method.path).toBe(expected);
  }
  const other = new Peer(address, as("parameter-server"));
  closing.push(() => other.close());
  const renew = ALL_METHODS.find(({ path }) => path.endsWith("/Renew"))!;
  expect(await callOutcome(other, renew)).toBe("served");
});

test("callers: a node attaches in its authenticated role and under its own id only", async () => {
  const cluster = new TestCluster();
  await cluster.startMaster({ fixedTimes: { nodeHeartbeatMs: 10_000 } });
  closing.push(() => cluster.close());
  const attach = (role: NodeRole, name: string, register: object) => {
    const peer = new Peer(cluster.link.grpcAddress, { clusterToken, node: { role, name } });
    closing.push(() => peer.close());
    const stream = peer.duplex(attachMethod);
    const { promise, resolve } = Promise.withResolvers<string>();
    stream.on("data", () => resolve("attached"));
    stream.on("error", (error) => resolve(fromStatus(error, "the master").code));
    const common = { incarnation: "1", address: "127.0.0.1:1", version: "1" };
    stream.write({ register: { ...common, ...register } });
    return promise;
  };
  const worker = { nodeId: "node-1", kind: "NODE_KIND_WORKER", name: "worker-1" };
  expect(await attach("worker", "worker-1", worker)).toBe("attached");
  const refused = "permission_denied";
  expect(await attach("parameter-server", "worker-1", worker)).toBe(refused);
  expect(await attach("worker", "worker-2", worker)).toBe(refused);
  expect(await attach("worker", "worker-2", { ...worker, name: "worker-2" })).toBe(refused);
  const server = { ...worker, kind: "NODE_KIND_PARAMETER_SERVER" };
  expect(await attach("worker", "worker-1", server)).toBe(refused);
  const own = { nodeId: "node-2", kind: "NODE_KIND_WORKER", name: "worker-2" };
  expect(await attach("worker", "worker-2", own)).toBe("attached");
});
