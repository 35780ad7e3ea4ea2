// holds: access-tokens

import { createHmac } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type KeyServer, signingKey } from "@heddle/auth/oidc/testing/key-server";
import { eventually } from "@heddle/base/testing/eventually";
import type { AccessMethods, CallerView } from "@heddle/contracts/api/access/bindings";
import { exportSPKI, type JWTPayload } from "jose";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { postChat, send } from "../../../test/http.ts";
import { TokenMaster } from "../../../test/identity/token-master.ts";
import type { TestMaster } from "../../../test/test-master.ts";

const hello = { model: "FamilyA-1-2B", messages: [{ role: "user", content: "Hi" }] };
const RBAC = {
  roles: { auditor: { permissions: ["jobs:read", "cluster:read"] } },
  service_accounts: { ci: { description: "builds" } },
  bindings: [
    { kind: "group", subject: "vision-team", role: "developer", project: "vision" },
    { kind: "service", subject: "ci", role: "auditor" },
    { kind: "user", subject: "alice", role: "auditor" },
  ],
};

let master: TokenMaster;
let server: TestMaster;
let issuer: KeyServer;
beforeAll(async () => {
  master = await TokenMaster.start((issuerUrl, folder) => {
    const secretFile = join(folder, "secret");
    writeFileSync(secretFile, "p+w/d\n");
    const introspection = {
      endpoint: `${issuerUrl}/introspect`,
      client_id: "heddle api",
      client_secret_file: secretFile,
    };
    const claims = { groups: "groups", roles: "roles" };
    return { oauth2: { client_id: "heddle-cli", introspection, claims }, rbac: RBAC };
  });
  ({ server, issuer } = master);
  await eventually(() => server.control.state.bindings.has("user:alice"), "alice has her role");
});
afterAll(() => master.close());

it("the file: its service accounts exist, with their roles", async () => {
  const account = await (await send(server, "GET", "/api/v1/service-accounts/ci")).json();
  expect(account).toMatchObject({ name: "ci", description: "builds", disabled: false });
  const bound = await send(server, "GET", "/api/v1/bindings?kind=service");
  expect(await bound.json()).toMatchObject({ data: [{ subject: "ci", role: "auditor" }] });
});

const tokenOf = (claims: JWTPayload, by = master.signer) => master.tokenOf(claims, by);

const get = (path: string, token: string, headers: Record<string, string> = {}) =>
  send(server, "GET", `/api/v1/${path}`, undefined, { key: token, headers });

describe("access tokens over HTTP", () => {
  it("give a user the roles that are bound to it", async () => {
    const alice = await tokenOf({ sub: "alice" });
    const caller = (await (await get("access/whoami", alice)).json()) as CallerView;
    expect(caller).toMatchObject({ kind: "user", name: "alice", projects: null });
    expect([...caller.permissions].sort()).toEqual(["cluster:read", "jobs:read"]);
    expect((await get("jobs", alice)).status).toBe(200);
    expect((await postChat(server, hello, { key: alice })).status).toBe(403);
  });

  it("give the roles of a group in its project, on both APIs", async () => {
    const bob = await tokenOf({ sub: "bob", groups: ["vision-team"] });
    const caller = await (await get("access/whoami", bob)).json();
    expect(caller).toMatchObject({ project: "vision", projects: ["vision"] });
    expect((await get("jobs", bob)).status).toBe(200);
    expect((await postChat(server, hello, { key: bob })).status).toBe(200);
    expect(server.rows.at(-1)).toMatchObject({ project: "vision" });
    expect((await get("keys", bob)).status).toBe(403);
    const elsewhere = await get("jobs", bob, { "x-heddle-project": "default" });
    expect(elsewhere.status).toBe(403);
  });

  it("give roles by claim with the prefix, and none to a user without groups", async () => {
    const carol = await tokenOf({ sub: "carol", roles: ["heddle:viewer", "admin"] });
    expect((await get("workers", carol)).status).toBe(200);
    expect((await get("keys", carol)).status).toBe(403);
    const dave = await tokenOf({ sub: "dave" });
    expect(await (await get("access/whoami", dave)).json()).toMatchObject({ permissions: [] });
    expect((await get("jobs", dave)).status).toBe(403);
  });

  it("give the default role to users without any other", async () => {
    const erin = await tokenOf({ sub: "erin" });
    const policy = { default_role: "viewer" };
    await send(server, "PUT", "/api/v1/access/policy", policy);
    expect((await get("jobs", erin)).status).toBe(200);
    expect((await get("workers", erin)).status).toBe(403);
    await send(server, "PUT", "/api/v1/access/policy", {});
    expect((await get("jobs", erin)).status).toBe(403);
  });

  it("are accepted of a new key of the issuer", async () => {
    const next = await issuer.addKey("k2");
    const token = await tokenOf({ sub: "alice" }, next);
    const status = async () => (await get("jobs", token)).status;
    await expect.poll(status, { interval: 500 }).toBe(200);
  });

  it("that are forged are 401 with a challenge, on both APIs", async () => {
    const foreignKey = await signingKey("k1");
    const exp = Math.floor(Date.now() / 1_000) + 300;
    const alice = { iss: issuer.issuer, aud: "heddle", sub: "alice", exp };
    const revoked = await tokenOf({ sub: "alice", jti: "revoked" });
    issuer.revoked.add(revoked);
    const forged = [
      revoked,
      await tokenOf({ sub: "alice", iss: "https://other.example" }),
      await tokenOf({ sub: "alice", nbf: Math.floor(Date.now() / 1_000) + 3_600 }),
      await tokenOf({ sub: "alice" }, await signingKey("no-such-kid")),
      `${encoded({ alg: "none", typ: "at+jwt" })}.${encoded(alice)}.`,
      await hmacToken(alice),
      await tokenOf({ sub: "alice" }, foreignKey),
      await tokenOf({ sub: "alice", aud: "other" }),
      await tokenOf({ sub: "alice", exp: 1 }),
      `eyJ${"a".repeat(9_000)}.a.a`,
    ];
    for (const token of forged) {
      const reply = await get("jobs", token);
      expect([reply.status, reply.headers.get("www-authenticate")]).toEqual([
        401,
        'Bearer realm="heddle"',
      ]);
      expect((await postChat(server, hello, { key: token })).status).toBe(401);
    }
  });

  it("are refused in two headers of one call", async () => {
    const token = await tokenOf({ sub: "alice" });
    const reply = await rawStatus(`Authorization: Bearer ${token}`, "Authorization: Bearer x");
    expect(reply).toMatch(/^HTTP\/1.1 401 /);
    expect(await rawStatus(`Authorization: Bearer ${token}`)).toMatch(/^HTTP\/1.1 200 /);
  });

  it("run no batch, and keep their own files", async () => {
    const bob = await tokenOf({ sub: "bob", groups: ["vision-team"] });
    const body = { input_file_id: "x", endpoint: "/v1/chat/completions", completion_window: "24h" };
    const reply = await send(server, "POST", "/api/v1/batches", body, { key: bob });
    expect([reply.status, await reply.text()]).toEqual([403, expect.stringContaining("API key")]);
    expect((await get("files", bob)).status).toBe(200);
  });

  it("are announced with the identity provider to callers without a key", async () => {
    const reply = await fetch(`${server.url}/api/v1/access/methods`);
    const { methods, oauth2 } = (await reply.json()) as AccessMethods;
    expect(methods).toEqual(["api_key", "oauth2"]);
    expect(oauth2).toMatchObject({ issuer: issuer.issuer, client_id: "heddle-cli" });
  });
});

const encoded = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");

/** Signed by the public key of the issuer as if it were a shared secret. */
async function hmacToken(claims: object): Promise<string> {
  const secret = await exportSPKI(master.signer.publicKey);
  const signed = `${encoded({ alg: "HS256", kid: "k1", typ: "at+jwt" })}.${encoded(claims)}`;
  return `${signed}.${createHmac("sha256", secret).update(signed).digest("base64url")}`;
}

/** The first line of the answer to a request with exactly these headers. */
async function rawStatus(...headers: string[]): Promise<string> {
  const { connect } = await import("node:net");
  const { hostname, port } = new URL(server.url);
  const socket = connect(Number(port), hostname);
  const head = ["GET /api/v1/access/whoami HTTP/1.1", "Host: a", "Connection: close", ...headers];
  socket.write(`${head.join("\r\n")}\r\n\r\n`);
  let text = "";
  for await (const piece of socket) text += String(piece);
  return text.split("\r\n")[0] ?? "";
}
