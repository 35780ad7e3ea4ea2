// holds: access-file-roles

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { DetailedHealth } from "@heddle/contracts/api/health";
import { createLogger } from "@heddle/observability/logger";
import { afterAll, afterEach, expect, it, vi } from "vitest";
import { startTestMaster, type TestMaster, VolatileControl } from "../../test/test-master.ts";
import { AccessSeed } from "./access-seed.ts";

const WAIT = { timeout: 100_000 };

const folder = mkdtempSync(join(tmpdir(), "heddle-access-seed-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

let ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends) await end();
  ends = [];
});

const AUDITOR = { kind: "user", subject: "alice", role: "auditor" };
const VIEWER = { kind: "user", subject: "bob", role: "viewer" };

function written(rbac: unknown): string {
  const file = join(folder, "auth.json");
  writeFileSync(file, typeof rbac === "string" ? rbac : JSON.stringify({ rbac }));
  return file;
}

async function started(rbac: unknown): Promise<TestMaster> {
  const server = await startTestMaster({ authFile: written(rbac) });
  ends.push(() => server.master.close());
  return server;
}

async function health({ url }: TestMaster): Promise<DetailedHealth> {
  return (await (await fetch(`${url}/health/detailed`)).json()) as DetailedHealth;
}

async function accessStatus(server: TestMaster): Promise<string> {
  return (await health(server)).components.access.status;
}

it("access seed: what is refused shows in health, and the rest is set", async () => {
  const server = await started({ bindings: [AUDITOR, VIEWER] });
  const { bindings } = server.control.state;
  await vi.waitFor(async () => {
    const { status, components } = await health(server);
    expect({ status, access: components.access }).toMatchObject({
      status: "degraded",
      access: { status: "degraded", detail: expect.stringContaining("--auth-file") },
    });
  }, WAIT);
  expect(JSON.stringify(await health(server))).not.toMatch(/auditor|alice/);
  expect([...bindings.keys()]).toEqual(["user:bob"]);
  written({ roles: { auditor: { permissions: ["jobs:read"] } }, bindings: [AUDITOR, VIEWER] });
  await vi.waitFor(() => expect([...bindings.keys()]).toContain("user:alice"), WAIT);
  await vi.waitFor(async () => expect(await accessStatus(server)).toBe("ok"), WAIT);
});

it("access seed: a changed file is applied, and one with a fault changes nothing", async () => {
  const server = await started({ bindings: [] });
  const { bindings } = server.control.state;
  written('{"rbac": {"bindings": [');
  await vi.waitFor(async () => expect(await accessStatus(server)).toBe("degraded"), WAIT);
  written({ bindings: [VIEWER] });
  await vi.waitFor(() => expect(bindings.has("user:bob")).toBe(true), WAIT);
});

it("access seed: what was refused is tried again under the next leader alone", async () => {
  const control = new VolatileControl();
  let term = 1;
  const group = { status: vi.fn(() => ({ term })) };
  const led = Object.assign(Object.create(control), {
    state: control.state,
    group,
    propose: vi.fn((command) => control.propose(command)),
  });
  const logger = createLogger({ service: "seed-test", level: "silent" });
  const seed = new AccessSeed(led, { authFile: written({ bindings: [AUDITOR] }) }, logger);
  ends.push(() => seed.beforeApplicationShutdown());
  seed.onApplicationBootstrap();
  await vi.waitFor(() => expect(seed.fault).toMatch(/auditor/), WAIT);
  const role = { permissions: ["jobs:read"], description: "", updatedAtMs: 0 };
  await control.propose({ type: "role.set", atMs: 0, name: "auditor", role });
  const reads = group.status.mock.calls.length;
  await vi.waitFor(() => expect(group.status.mock.calls.length).toBeGreaterThan(reads + 1), WAIT);
  expect(led.propose).toHaveBeenCalledTimes(1);
  term = 2;
  await vi.waitFor(() => expect(control.state.bindings.has("user:alice")).toBe(true), WAIT);
  await vi.waitFor(() => expect(seed.fault).toBeUndefined(), WAIT);
});
