// holds: plugins-contained

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { KeyServer, signedToken } from "@heddle/auth/oidc/testing/key-server";
import { eventually } from "@heddle/base/testing/eventually";
import { afterAll, beforeAll, expect, it } from "vitest";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

/** Its stream and its answer never come to an end by themselves. */
const PLUGIN = `import { z } from "heddle/plugin-kit";
export default { name: "endless", version: "1", apiVersion: 1, capabilities: ["routes"],
  setup({ routes }) {
    let given = 0;
    let left = 0;
    const common = { method: "GET", summary: "Counts." };
    routes.add({ ...common, path: "/count", permission: "authenticated", events: { n: z.number() },
      async *handle() { for (;;) { yield { event: "n", data: given++ }; await null; } } });
    routes.add({ ...common, path: "/wait", permission: "authenticated", timeoutMs: 600_000, reply: z.number(),
      handle: ({ signal }) => new Promise((resolve) => {
        signal.addEventListener("abort", () => resolve(++left));
        if (signal.aborted) resolve(++left);
      }) });
    routes.add({ ...common, path: "/left", permission: "public", reply: z.number(), handle: () => left });
    routes.add({ ...common, path: "/given", permission: "public", reply: z.number(), handle: () => given });
  } };`;

const folder = mkdtempSync(join(tmpdir(), "heddle-left-streams-"));
const issuer = new KeyServer();
let server: TestMaster;
beforeAll(async () => {
  await issuer.start();
  const [plugin, authFile] = [join(folder, "endless.mjs"), join(folder, "auth.json")];
  writeFileSync(plugin, PLUGIN);
  const oauth2 = { issuer: issuer.issuer, audience: "heddle" };
  writeFileSync(authFile, JSON.stringify({ method: "oauth2", oauth2 }));
  server = await startTestMaster({ plugins: [plugin], authFile });
});
afterAll(async () => {
  await server.master.close();
  await issuer.close();
  rmSync(folder, { recursive: true });
});

const figure = async (name: "given" | "left") =>
  Number(await (await fetch(`${server.url}/api/v1/custom/endless/${name}`)).text());
const given = () => figure("given");

/** Whether the plugin's stream gives nothing any more. */
async function isStill(): Promise<boolean> {
  const before = await given();
  await delay(200);
  return (await given()) === before;
}

function ask(name: "count" | "wait", token: string, signal: AbortSignal): Promise<Response> {
  const headers = { authorization: `Bearer ${token}` };
  return fetch(`${server.url}/api/v1/custom/endless/${name}`, { headers, signal });
}

it("a plugin's stream: ends with its client", async () => {
  const leave = new AbortController();
  const { body } = await ask("count", server.adminKey, leave.signal);
  const reader = body!.getReader();
  for (let at = 0; at < 3; at++) await reader.read();
  leave.abort();
  await eventually(isStill, "the stream ends");
});

it("a plugin's call: is cancelled with its client", async () => {
  const leave = new AbortController();
  const asked = ask("wait", server.adminKey, leave.signal).catch((error: Error) => error.name);
  await delay(500);
  leave.abort();
  expect(await asked).toBe("AbortError");
  await eventually(async () => (await figure("left")) === 1, "the plugin has the signal");
});

it("a plugin's calls: end where their client left while they were checked", async () => {
  const signer = await issuer.addKey("k1");
  const exp = Math.floor(Date.now() / 1_000) + 300;
  const token = await signedToken(signer, { iss: issuer.issuer, aud: "heddle", sub: "a", exp });
  const before = await given();
  const release = Promise.withResolvers<void>();
  issuer.held = release.promise;
  const leave = new AbortController();
  const asked = (["count", "wait"] as const).map((name) => ask(name, token, leave.signal));
  const ended = Promise.allSettled(asked);
  await eventually(() => issuer.reads > 0, "the issuer is asked for its keys");
  leave.abort();
  await ended;
  // The master learns it from the connections.
  await delay(200);
  release.resolve();
  await eventually(async () => (await figure("left")) === 2, "the plugin has the signal");
  expect(await isStill()).toBe(true);
  expect((await given()) - before).toBeLessThan(100);
});
