// holds: client-browser

import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { CHROMIUM, ConsoleRig, NEEDS_CHROMIUM } from "../test/browser.ts";

// The client's own modules in a page of another origin, as an application has them.

const CLIENT = new URL(".", import.meta.resolve("@heddle/client/heddle"));
const rig = new ConsoleRig();
let site: Server;
let origin = "";

beforeAll(async () => {
  if (!CHROMIUM) return;
  site = createServer(({ url = "/" }, reply) => {
    const module = /^\/client\/([\w/-]+\.js)$/.exec(url)?.[1];
    if (module === undefined) return reply.setHeader("content-type", "text/html").end(PAGE);
    const text = readFileSync(fileURLToPath(new URL(module, CLIENT)));
    return reply.setHeader("content-type", "text/javascript").end(text);
  });
  await new Promise<void>((resolve) => site.listen(0, "127.0.0.1", resolve));
  origin = `http://127.0.0.1:${(site.address() as AddressInfo).port}`;
  vi.stubEnv("HEDDLE_CORS_ORIGINS", origin);
  await rig.start("--parameter-servers", "0");
});
afterAll(async () => {
  vi.unstubAllEnvs();
  site?.close();
  await rig.close();
});

const PAGE = `<!doctype html><html lang="en"><link rel="icon" href="data:,"><title>page</title>`;

/** Calls of each kind: a change, streams, a list in pages, bytes, refusals. */
const PROGRAM = `async ({ endpoint, auth_token }) => {
  const { Heddle } = await import("/client/heddle.js");
  const heddle = new Heddle({ endpoint, auth_token });
  const refused = (call) => call.then(() => "none", ({ name, code, status, request_id }) => {
    return { name, code, status, hasRequestId: typeof request_id === "string" };
  });
  const command = 'for i in 1 2 3; do echo "line $i"; done; echo made > "$HEDDLE_ARTIFACT_DIR/made"';
  const { job_id } = await heddle.jobs.create({ name: "browser", command });
  const phases = [];
  for await (const update of heddle.jobs.stream(job_id))
    if (update.type === "state" && phases.at(-1) !== update.phase) phases.push(update.phase);
  const lines = [];
  for await (const entry of heddle.jobs.logs(job_id, { follow: true, stream: "stdout" }))
    if (entry.type === "line") lines.push(entry.text);
  let artifact = "";
  for await (const bytes of heddle.jobs.artifact(job_id, "made"))
    artifact += new TextDecoder().decode(bytes);
  const names = [];
  for await (const { name } of heddle.jobs.list({ limit: 1 })) names.push(name);
  const [{ id: model }] = await heddle.models.list();
  let tokens = 0;
  const messages = [{ role: "user", content: "Hello" }];
  for await (const { usage } of heddle.chat.stream({ model, messages, max_tokens: 4 }))
    tokens = usage?.completion_tokens ?? tokens;
  const logged = await heddle.events.log({ type: "browser.test", data: { n: 1 } });
  const aborted = new AbortController();
  const stream = heddle.events.stream({ signal: aborted.signal });
  setTimeout(() => aborted.abort(), 100);
  return {
    phases, lines, artifact, names, tokens, logged: logged.object,
    missing: await refused(heddle.jobs.get("job_none")),
    wrong: await refused(heddle.jobs.create({ name: "", command: "" })),
    keyless: await refused(new Heddle({ endpoint, maxRetries: 0 }).jobs.get("job_none")),
    away: await refused(new Heddle({ endpoint: "http://127.0.0.1:9", maxRetries: 0 }).jobs.get("x")),
    aborted: await refused(stream.next()),
  };
}`;

describe.skipIf(!CHROMIUM)(`the client in a browser${NEEDS_CHROMIUM}`, () => {
  it("client: changes, streams, pages, bytes and refusals work from another origin", async () => {
    const page = await rig.openAt(origin);
    const call = JSON.stringify({ endpoint: rig.url, auth_token: rig.key });
    const seen = await page.evaluate(`(${PROGRAM})(${call})`);
    expect(seen).toMatchObject({
      phases: expect.arrayContaining(["ACCEPTED", "RUNNING", "SUCCEEDED"]),
      lines: ["line 1", "line 2", "line 3"],
      artifact: "made\n",
      names: ["browser"],
      logged: "logged_event",
      missing: { name: "NotFoundError", code: "not_found", status: 404, hasRequestId: true },
      wrong: { status: 400, hasRequestId: true },
      keyless: { name: "AuthenticationError", status: 401 },
      away: { name: "ConnectionError", code: "unavailable" },
      aborted: { name: "AbortedError" },
    });
    expect((seen as { tokens: number }).tokens).toBeGreaterThan(0);
    await page.context().close();
  });
});
