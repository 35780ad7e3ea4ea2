// holds: access-roles

import type { Binding, CallerView } from "@heddle/contracts/api/access/bindings";
import type { RoleView } from "@heddle/contracts/api/access/roles";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

let server: TestMaster;
beforeAll(async () => {
  server = await startTestMaster();
});
afterAll(() => server.master.close());

const as = (key: string) => ({ key });

async function madeKey(body: object): Promise<string> {
  const reply = await send(server, "POST", "/api/v1/keys", { name: "made", ...body });
  expect(reply.status).toBe(200);
  return ((await reply.json()) as { key: string }).key;
}

async function whoami(key: string, project?: string, role?: string): Promise<CallerView> {
  const headers = {
    authorization: `Bearer ${key}`,
    ...(project && { "x-heddle-project": project }),
    ...(role && { "x-heddle-role": role }),
  };
  const reply = await fetch(`${server.url}/api/v1/access/whoami`, { headers });
  expect(reply.status).toBe(200);
  return (await reply.json()) as CallerView;
}

describe("roles", () => {
  it("are shipped, and the cluster's own are created, replaced and removed", async () => {
    const names = async () => {
      const page = await (await send(server, "GET", "/api/v1/roles")).json();
      return (page as { data: RoleView[] }).data.map(({ name }) => name);
    };
    expect(await names()).toEqual(["viewer", "developer", "operator", "admin"]);
    const path = "/api/v1/roles/auditor";
    const body = { permissions: ["jobs:read"], description: "reads" };
    const made = await (await send(server, "PUT", path, body)).json();
    expect(made).toMatchObject({ name: "auditor", ...body, shipped: false });
    expect(await names()).toContain("auditor");
    expect((await send(server, "PUT", "/api/v1/roles/admin", body)).status).toBe(409);
    expect((await send(server, "PUT", path, { permissions: ["jobs:raed"] })).status).toBe(400);
    expect((await send(server, "DELETE", path)).status).toBe(200);
    expect((await send(server, "GET", path)).status).toBe(404);
  });

  it("of a key are what it may do, and change at once", async () => {
    await send(server, "PUT", "/api/v1/roles/reader", { permissions: ["jobs:read"] });
    const key = await madeKey({ role: "reader" });
    expect((await send(server, "GET", "/api/v1/jobs", undefined, as(key))).status).toBe(200);
    expect((await send(server, "GET", "/api/v1/workers", undefined, as(key))).status).toBe(403);
    await send(server, "PUT", "/api/v1/roles/reader", { permissions: ["cluster:read"] });
    expect((await send(server, "GET", "/api/v1/jobs", undefined, as(key))).status).toBe(403);
    expect((await send(server, "GET", "/api/v1/workers", undefined, as(key))).status).toBe(200);
  });

  it("of an administrator, bound to a project, do not administer the cluster", async () => {
    const key = await madeKey({ role: "admin", project: "vision" });
    expect(await whoami(key)).toMatchObject({ project: "vision", projects: ["vision"] });
    for (const path of ["keys", "bindings", "workers"]) {
      const reply = await send(server, "GET", `/api/v1/${path}`, undefined, as(key));
      expect(reply.status, path).toBe(403);
    }
    const whole = await madeKey({ role: "admin" });
    expect(await whoami(whole)).toMatchObject({ permissions: ["*"], projects: null });
  });

  it("of a key without a project hold in the project `default`, not in others", async () => {
    const job = { name: "theirs", command: "true", project: "vision" };
    const { job_id: id } = (await (await send(server, "POST", "/api/v1/jobs", job)).json()) as {
      job_id: string;
    };
    const key = await madeKey({ role: "operator" });
    const { project, projects, permissions } = await whoami(key);
    expect({ project, projects }).toEqual({ project: "default", projects: ["default"] });
    expect(permissions).toEqual(expect.arrayContaining(["jobs:cancel", "cluster:read"]));
    for (const method of ["GET", "DELETE"]) {
      const reply = await send(server, method, `/api/v1/jobs/${id}`, undefined, as(key));
      expect(reply.status, method).toBe(404);
    }
    expect((await send(server, "GET", `/api/v1/jobs/${id}`)).status).toBe(200);
  });

  it("and scopes exclude each other, and unknown roles are refused", async () => {
    const both = { name: "a", role: "viewer", scopes: ["jobs:read"] };
    expect((await send(server, "POST", "/api/v1/keys", both)).status).toBe(400);
    const none = { name: "a", role: "no-such-role" };
    expect((await send(server, "POST", "/api/v1/keys", none)).status).toBe(404);
  });
});

describe("bindings", () => {
  it("give a key a role in a project, until they are removed", async () => {
    const { id, text } = await server.addKey({ scopes: [], project: "speech" });
    expect((await send(server, "GET", "/api/v1/jobs", undefined, as(text))).status).toBe(403);
    const binding = { kind: "key", subject: id, role: "viewer", project: "speech" };
    for (const _ of [1, 2]) {
      const reply = await send(server, "POST", "/api/v1/bindings", binding);
      expect(await reply.json()).toMatchObject({ object: "binding", ...binding });
    }
    expect((await send(server, "GET", "/api/v1/jobs", undefined, as(text))).status).toBe(200);
    expect((await send(server, "GET", "/api/v1/workers", undefined, as(text))).status).toBe(403);
    const listed = await send(server, "GET", `/api/v1/bindings?subject=${id}`);
    expect(((await listed.json()) as { data: Binding[] }).data).toHaveLength(1);
    const query = `kind=key&subject=${id}&role=viewer&project=speech`;
    expect((await send(server, "DELETE", `/api/v1/bindings?${query}`)).status).toBe(200);
    expect((await send(server, "GET", "/api/v1/jobs", undefined, as(text))).status).toBe(403);
  });

  it("hold for the keys that replace a key", async () => {
    const { id } = await server.addKey({ scopes: [] });
    const binding = { kind: "key", subject: id, role: "viewer" };
    await send(server, "POST", "/api/v1/bindings", binding);
    const rotated = await send(server, "POST", `/api/v1/keys/${id}/rotate`, {});
    const { key } = (await rotated.json()) as { key: string };
    expect((await send(server, "GET", "/api/v1/jobs", undefined, as(key))).status).toBe(200);
  });

  it("that grant everything are not inherited by keys of a caller without everything", async () => {
    const { text } = await server.addKey({ scopes: ["cluster:admin"] });
    const { id } = await server.addKey({ scopes: [] });
    await send(server, "PUT", "/api/v1/service-accounts/root", {});
    for (const bound of [
      { kind: "key", subject: id },
      { kind: "service", subject: "root" },
    ]) {
      const binding = { ...bound, role: "admin" };
      expect((await send(server, "POST", "/api/v1/bindings", binding)).status).toBe(200);
    }
    const next = await send(server, "POST", `/api/v1/keys/${id}/rotate`, {});
    const { id: successor } = (await next.json()) as { id: string };
    const tries = [
      [`/api/v1/keys/${id}/rotate`, {}],
      [`/api/v1/keys/${successor}/rotate`, {}],
      ["/api/v1/keys", { name: "mine", service_account: "root" }],
      ["/api/v1/keys", { name: "mine", service_account: "root", role: "viewer" }],
    ] as const;
    for (const [path, body] of tries) {
      const reply = await send(server, "POST", path, body, as(text));
      expect([reply.status, await reply.text()], path).toEqual([
        403,
        expect.stringContaining("Only a caller with the permission `*`"),
      ]);
    }
  });

  it("to a role that grants everything are made only by a caller with everything", async () => {
    const { text } = await server.addKey({ scopes: ["cluster:admin"] });
    const { id } = await server.addKey({ scopes: [] });
    const tries = [
      ["POST", "/api/v1/bindings", { kind: "key", subject: id, role: "admin" }],
      ["POST", "/api/v1/keys", { name: "root", role: "admin" }],
      ["PUT", "/api/v1/roles/root", { permissions: ["*"] }],
      ["PUT", "/api/v1/access/policy", { admin_roles: ["viewer"] }],
    ] as const;
    for (const [method, path, body] of tries) {
      expect((await send(server, method, path, body, as(text))).status, path).toBe(403);
    }
    const [, , bound] = tries[0];
    expect((await send(server, "POST", "/api/v1/bindings", bound)).status).toBe(200);
  });
});

describe("the access policy", () => {
  it("names roles of administrators and a default role", async () => {
    const path = "/api/v1/access/policy";
    const before = { default_role: null, admin_roles: ["admin"], updated_at: null };
    expect(await (await send(server, "GET", path)).json()).toMatchObject(before);
    await send(server, "PUT", "/api/v1/roles/owner", { permissions: ["cluster:read"] });
    const { id, text } = await server.addKey({ scopes: [] });
    await send(server, "POST", "/api/v1/bindings", { kind: "key", subject: id, role: "owner" });
    expect((await whoami(text)).permissions).toEqual(["cluster:read"]);
    const body = { default_role: "viewer", admin_roles: ["admin", "owner"] };
    expect(await (await send(server, "PUT", path, body)).json()).toMatchObject(body);
    expect((await whoami(text)).permissions).toEqual(["*"]);
    const unknown = { admin_roles: ["no-such-role"] };
    expect((await send(server, "PUT", path, unknown)).status).toBe(404);
  });
});

describe("the header X-Heddle-Project", () => {
  it("selects a project of the caller, and no other", async () => {
    const { id, text } = await server.addKey({ scopes: ["jobs:read"], project: "speech" });
    const bound = { kind: "key", subject: id, role: "developer", project: "vision" };
    await send(server, "POST", "/api/v1/bindings", bound);
    expect(await whoami(text)).toMatchObject({ project: "speech", permissions: ["jobs:read"] });
    const there = await whoami(text, "vision");
    expect([there.project, there.permissions.includes("jobs:create")]).toEqual(["vision", true]);
    for (const [project, status] of [
      ["default", 403],
      ["nowhere", 403],
      ["../x", 400],
    ] as const) {
      const headers = { authorization: `Bearer ${text}`, "x-heddle-project": project };
      const reply = await fetch(`${server.url}/api/v1/access/whoami`, { headers });
      expect(reply.status, project).toBe(status);
    }
    expect((await whoami(server.adminKey, "anything")).project).toBe("anything");
  });
});

// holds: access-narrowed
describe("the header X-Heddle-Role", () => {
  it("gives an administrator a role's rights in one project alone", async () => {
    const narrow = await whoami(server.adminKey, "vision", "developer");
    expect(narrow).toMatchObject({ project: "vision", projects: ["vision"] });
    expect(narrow.permissions).toContain("jobs:create");
    for (const each of ["cluster:read", "models:deploy", "batches:write", "cluster:admin"]) {
      expect(narrow.permissions, each).not.toContain(each);
    }
    const headers = { authorization: `Bearer ${server.adminKey}`, "x-heddle-role": "developer" };
    expect((await fetch(`${server.url}/api/v1/keys`, { headers })).status).toBe(403);
  });

  it("gives no right that the caller does not have", async () => {
    const { text } = await server.addKey({ scopes: ["jobs:read"], project: "speech" });
    expect((await whoami(text, undefined, "admin")).permissions).toEqual(["jobs:read"]);
    expect((await whoami(text, undefined, "viewer")).permissions).toEqual(["jobs:read"]);
    const headers = { authorization: `Bearer ${text}`, "x-heddle-role": "no-such-role" };
    const reply = await fetch(`${server.url}/api/v1/access/whoami`, { headers });
    expect([reply.status, await reply.text()]).toEqual([
      400,
      expect.stringContaining("No role has the name no-such-role"),
    ]);
  });
});
