// holds: access-matrix

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Route } from "@heddle/contracts/api/cluster";
import { PERMISSIONS } from "@heddle/contracts/api/permission";
import { SHIPPED_ROLES } from "@heddle/contracts/roles";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

// The matrix of roles and routes, generated from the route table of a live master.

/** What each role may do in the whole cluster, written out: not read from the roles themselves. */
const EVERYWHERE: Readonly<Record<string, readonly string[]>> = {
  viewer: ["jobs:read", "models:read", "files:read", "batches:read", "cluster:read"],
  developer: [
    "inference:create",
    "models:read",
    "files:read",
    "files:write",
    "batches:read",
    "batches:write",
    "jobs:read",
    "jobs:create",
    "jobs:cancel",
    "secrets:read",
    "secrets:use",
    "events:create",
    "cluster:read",
  ],
  operator: [
    "inference:create",
    "inference:priority",
    "models:read",
    "models:deploy",
    "files:read",
    "files:write",
    "batches:read",
    "batches:write",
    "jobs:read",
    "jobs:create",
    "jobs:cancel",
    "jobs:privileged",
    "secrets:read",
    "secrets:use",
    "secrets:write",
    "events:read",
    "events:create",
    "cluster:read",
  ],
};
/** Permissions that no role has in a project. */
const OF_CLUSTER = [
  "cluster:read",
  "cluster:enroll",
  "cluster:admin",
  "models:deploy",
  "jobs:privileged",
  "inference:priority",
];
const NO_ID = "job_00000000000000000000000000";
/** A plugin with a route for each permission that one may have. */
const PLUGIN = `export default { name: "each", version: "1", apiVersion: 1, capabilities: ["routes"],
  setup({ routes }) {
    for (const permission of ${JSON.stringify([...PERMISSIONS, "authenticated", "public"])}) {
      const path = "/" + permission.replace(":", "-");
      routes.add({ method: "GET", path, permission, summary: "Answers.", handle() {} });
    }
  } };`;

const folder = mkdtempSync(join(tmpdir(), "heddle-matrix-"));
let server: TestMaster;
let routes: Route[];
beforeAll(async () => {
  const plugin = join(folder, "each.mjs");
  writeFileSync(plugin, PLUGIN);
  server = await startTestMaster({ plugins: [plugin] });
  const reply = await send(server, "GET", "/api/v1/endpoints");
  routes = ((await reply.json()) as { data: Route[] }).data;
});
afterAll(async () => {
  await server.master.close();
  rmSync(folder, { recursive: true });
});

async function keyOf(spec: object): Promise<string> {
  const reply = await send(server, "POST", "/api/v1/keys", { name: "matrix", ...spec });
  expect(reply.status).toBe(200);
  return ((await reply.json()) as { key: string }).key;
}

/** A call that changes nothing: its ids are unknown, and its body is invalid. */
async function statusOf({ method, path }: Route, key: string): Promise<number> {
  const at = path.replace(/[:*][A-Za-z]+/g, NO_ID);
  const body = method === "GET" || method === "DELETE" ? undefined : { no_such_field: 1 };
  const reply = await send(server, method, at, body, { key });
  await reply.body?.cancel();
  return reply.status;
}

/** The routes on which the master disagrees with the expectation. */
async function disagreements(key: string, may: (permission: string) => boolean): Promise<string[]> {
  const found: string[] = [];
  for (const route of routes) {
    const { permission = "" } = route;
    const isOpen = permission === "public" || permission === "authenticated";
    const status = await statusOf(route, key);
    const isAdmitted = status !== 401 && status !== 403;
    if (isAdmitted === (isOpen || may(permission))) continue;
    found.push(`${route.method} ${route.path} (${permission}): ${status}`);
  }
  return found;
}

describe("roles and routes", () => {
  it("cover every shipped role, many routes, and those of a plugin", () => {
    expect([...Object.keys(EVERYWHERE), "admin"]).toEqual(Object.keys(SHIPPED_ROLES));
    expect(routes.length).toBeGreaterThan(60);
    const ofPlugin = routes.filter(({ path }) => path.startsWith("/api/v1/custom/each/"));
    expect(ofPlugin).toHaveLength(PERMISSIONS.length + 2);
  });

  it.each(Object.keys(EVERYWHERE))("%s without a project", async (role) => {
    const key = await keyOf({ role });
    const may = (permission: string) => EVERYWHERE[role]?.includes(permission) === true;
    expect(await disagreements(key, may)).toEqual([]);
  });

  it("admin without a project", async () => {
    expect(await disagreements(await keyOf({ role: "admin" }), () => true)).toEqual([]);
  });

  it.each(Object.keys(SHIPPED_ROLES))("%s in one project", async (role) => {
    const key = await keyOf({ role, project: "vision" });
    const may = (permission: string) => {
      if (OF_CLUSTER.includes(permission)) return false;
      return role === "admin" || EVERYWHERE[role]?.includes(permission) === true;
    };
    expect(await disagreements(key, may)).toEqual([]);
  });

  it("no role", async () => {
    const { text } = await server.addKey({ scopes: [] });
    expect(await disagreements(text, () => false)).toEqual([]);
  });
});
