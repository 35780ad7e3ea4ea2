// holds: access-streams

import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

let server: TestMaster;
beforeAll(async () => {
  server = await startTestMaster({ fixedTimes: { rightsCheckMs: 50 } });
});
afterAll(() => server.master.close());

/** A stream of events, and whether it has ended. */
async function openStream(key: string, path = "/api/v1/events") {
  const headers = { authorization: `Bearer ${key}`, accept: "text/event-stream" };
  const reply = await fetch(`${server.url}${path}`, { headers });
  expect(reply.status).toBe(200);
  const stream = { ended: false };
  const read = async () => {
    for await (const _ of reply.body ?? []);
  };
  read()
    .catch(() => undefined)
    .finally(() => {
      stream.ended = true;
    });
  return stream;
}

const ended = (stream: { readonly ended: boolean }) =>
  vi.waitFor(() => expect(stream.ended).toBe(true), { timeout: 100_000 });

async function ask(method: string, path: string, body?: object): Promise<void> {
  expect((await send(server, method, `/api/v1/${path}`, body)).status).toBe(200);
}

it("streams: one ends when its key is revoked, those of others continue", async () => {
  const { id, text } = await server.addKey({ scopes: ["jobs:read", "cluster:read"] });
  const [own, other] = [await openStream(text), await openStream(server.adminKey)];
  await ask("DELETE", `keys/${id}`);
  await ended(own);
  expect(other.ended).toBe(false);
});

it("streams: one ends when its service account is disabled", async () => {
  await ask("PUT", "service-accounts/ci", {});
  const spec = { name: "k", service_account: "ci", role: "viewer" };
  const reply = await send(server, "POST", "/api/v1/keys", spec);
  const { key } = (await reply.json()) as { key: string };
  const stream = await openStream(key);
  await ask("PUT", "service-accounts/ci", { disabled: true });
  await ended(stream);
});

it("streams: one ends when its caller loses a role, also one of another project", async () => {
  const { id, text } = await server.addKey({ scopes: ["jobs:read"], project: "vision" });
  const binding = { kind: "key", subject: id, role: "viewer", project: "speech" };
  await ask("POST", "bindings", binding);
  const stream = await openStream(text);
  await ask("DELETE", `bindings?${new URLSearchParams(binding)}`);
  await ended(stream);
  expect((await openStream(text)).ended).toBe(false);
});
