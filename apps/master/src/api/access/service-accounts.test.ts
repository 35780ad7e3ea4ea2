// holds: access-services

import type { CallerView } from "@heddle/contracts/api/access/bindings";
import type { ServiceAccount } from "@heddle/contracts/api/access/service-accounts";
import type { ApiKey } from "@heddle/contracts/api/keys";
import { afterAll, beforeAll, expect, it } from "vitest";
import { send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

let server: TestMaster;
beforeAll(async () => {
  server = await startTestMaster();
});
afterAll(() => server.master.close());

const at = (name: string) => `/api/v1/service-accounts/${name}`;

async function ask<T>(method: string, path: string, body?: object, key?: string): Promise<T> {
  const reply = await send(server, method, path, body, key === undefined ? {} : { key });
  expect(reply.status, `${method} ${path}`).toBe(200);
  return (await reply.json()) as T;
}

const statusAs = async (key: string, path: string) =>
  (await send(server, "GET", path, undefined, { key })).status;

it("service accounts: keys of one end while it is disabled, and are listed with it", async () => {
  const made = await ask<ServiceAccount>("PUT", at("ci"), { description: "builds" });
  expect(made).toMatchObject({ name: "ci", description: "builds", disabled: false });
  const spec = { name: "k", service_account: "ci", role: "viewer", project: "vision" };
  const { id, key } = await ask<{ id: string; key: string }>("POST", "/api/v1/keys", spec);
  await server.addKey({ scopes: ["*"] });
  expect(await statusAs(key, "/api/v1/jobs")).toBe(200);

  await ask("PUT", at("ci"), { disabled: true });
  const refused = await send(server, "GET", "/api/v1/jobs", undefined, { key });
  expect(refused.status).toBe(401);
  expect(await refused.text()).toMatch(/service account that is disabled/);
  const query = "/api/v1/keys?service_account=ci";
  const { data } = await ask<{ data: ApiKey[] }>("GET", query);
  expect(data).toMatchObject([{ id, service_account: "ci", status: "disabled" }]);

  await ask("PUT", at("ci"), { disabled: false });
  expect(await statusAs(key, "/api/v1/jobs")).toBe(200);
});

it("service accounts: roles of one are those of its keys, also of their successors", async () => {
  await ask("PUT", at("trainer"), {});
  const spec = { name: "k", service_account: "trainer", project: "vision" };
  const { id, key } = await ask<{ id: string; key: string }>("POST", "/api/v1/keys", spec);
  expect(await statusAs(key, "/api/v1/jobs")).toBe(403);
  const binding = { kind: "service", subject: "trainer", role: "developer", project: "vision" };
  await ask("POST", "/api/v1/bindings", binding);
  const caller = await ask<CallerView>("GET", "/api/v1/access/whoami", undefined, key);
  expect(caller).toMatchObject({ project: "vision", projects: ["vision"] });
  expect(caller.permissions).toContain("jobs:create");
  const next = await ask<{ key: string }>("POST", `/api/v1/keys/${id}/rotate`, {});
  await ask("DELETE", `/api/v1/keys/${id}`);
  expect(await statusAs(next.key, "/api/v1/jobs")).toBe(200);
  await ask("PUT", at("trainer"), { disabled: true });
  expect(await statusAs(next.key, "/api/v1/jobs")).toBe(401);
});

it("service accounts: one with valid keys stays; a later one has no old role", async () => {
  await ask("PUT", at("old"), {});
  const binding = { kind: "service", subject: "old", role: "viewer" };
  await ask("POST", "/api/v1/bindings", binding);
  const spec = { name: "k", service_account: "old" };
  const { id } = await ask<{ id: string }>("POST", "/api/v1/keys", spec);
  expect((await send(server, "DELETE", at("old"))).status).toBe(409);
  await ask("DELETE", `/api/v1/keys/${id}`);
  await ask("DELETE", at("old"));
  expect((await send(server, "GET", at("old"))).status).toBe(404);
  expect((await send(server, "POST", "/api/v1/keys", spec)).status).toBe(404);
  await ask("PUT", at("old"), {});
  const { key } = await ask<{ key: string }>("POST", "/api/v1/keys", spec);
  expect(await statusAs(key, "/api/v1/jobs")).toBe(403);
});

it("service accounts: a key that lacks `*` makes none that has it by a role", async () => {
  const { text } = await server.addKey({ scopes: ["cluster:admin"] });
  await ask("PUT", at("robot"), {}, text);
  const binding = { kind: "service", subject: "robot", role: "admin" };
  const reply = await send(server, "POST", "/api/v1/bindings", binding, { key: text });
  expect(reply.status).toBe(403);
});
