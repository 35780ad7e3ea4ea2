import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { SCRIPTED_MASTER } from "@heddle/base/testing/programs";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { eventsOf, postChat, send } from "../test/http.ts";

let data: string;
const children: ChildProcess[] = [];

async function setUp(): Promise<void> {
  data = await mkdtemp(join(tmpdir(), "heddle-master-"));
}

async function tearDown(): Promise<void> {
  for (const child of children.splice(0)) {
    if (child.exitCode !== null || child.signalCode !== null) continue;
    child.kill("SIGKILL");
    await once(child, "exit");
  }
  await rm(data, { recursive: true });
}

interface Process {
  readonly child: ChildProcess;
  readonly output: { out: string; err: string };
  exited(): Promise<number | null>;
}

function run(flags: string[], env: Record<string, string> = {}): Process {
  const args = [
    "--data",
    data,
    "--http-port",
    "0",
    "--grpc-port",
    "0",
    "--profile",
    "tiny",
    ...flags,
  ];
  const child = spawn(process.execPath, [...SCRIPTED_MASTER, ...args], {
    env: { ...process.env, ...env },
  });
  children.push(child);
  const output = { out: "", err: "" };
  child.stdout.on("data", (chunk) => {
    output.out += chunk;
  });
  child.stderr.on("data", (chunk) => {
    output.err += chunk;
  });
  const exit = once(child, "exit");
  return { child, output, exited: async () => (await exit)[0] as number | null };
}

async function ready(started: Process): Promise<{ url: string }> {
  const find = () => /^.*"msg":"ready".*$/m.exec(started.output.out)?.[0];
  await eventually(
    () => find() !== undefined || started.child.exitCode !== null,
    undefined,
    120_000,
  );
  const line = find();
  if (line === undefined) throw new Error(`did not start: ${started.output.err}`);
  return { url: (JSON.parse(line) as { http: string }).http };
}

/** The new key; its pipe may be read after that of the ready line. */
async function shownKey({ output }: Process): Promise<string> {
  const find = () => /shown once: (\S+)\n/.exec(output.err)?.[1];
  await eventually(() => find() !== undefined);
  return find() as string;
}

const hello = { model: "FamilyA-1-2B", messages: [{ role: "user", content: "one two" }] };

describe("master process", () => {
  beforeEach(setUp);
  afterEach(tearDown);

  // holds: key-restart
  it("keeps keys and models over a kill, and shows its first key once", async () => {
    const keyFile = join(data, "admin-key");
    const first = run(["--bootstrap-key-file", keyFile]);
    const target = { ...(await ready(first)), adminKey: (await readFile(keyFile, "utf8")).trim() };
    expect((await stat(keyFile)).mode & 0o777).toBe(0o600);
    const made = (await (await send(target, "POST", "/api/v1/keys", { name: "ci" })).json()) as {
      key: string;
    };
    const body = { id: "mine", source: "builtin://tiny" };
    expect((await send(target, "POST", "/api/v1/models", body)).status).toBe(200);
    for (const id of [
      "FamilyA-1-2B",
      "FamilyA-1-4B",
      "FamilyA-1-8B",
      "FamilyB-1-2B",
      "FamilyB-1-8B",
    ]) {
      expect((await send(target, "DELETE", `/api/v1/models/${id}`)).status).toBe(200);
    }
    first.child.kill("SIGKILL");
    await first.exited();
    const second = run(["--bootstrap-key-file", keyFile]);
    const { url } = await ready(second);
    const list = await send({ url, adminKey: made.key }, "GET", "/api/v1/models");
    expect(((await list.json()) as { data: { id: string }[] }).data.map(({ id }) => id)).toEqual([
      "mine",
    ]);
    second.child.kill("SIGTERM");
    expect(await second.exited()).toBe(0);
  });

  // holds: cli-config-early
  it("names the port that is in use, in one line", async () => {
    const blocker = createServer().listen(0, "127.0.0.1");
    await once(blocker, "listening");
    const { port } = blocker.address() as { port: number };
    for (const option of ["--http-port", "--raft-port"]) {
      const started = run([option, String(port)]);
      expect(await started.exited()).toBe(1);
      expect(started.output.err.trim().split("\n")).toHaveLength(1);
      expect(started.output.err).toContain(`127.0.0.1:${port} is in use`);
      expect(started.output.err).toContain(`another ${option}`);
    }
    // It took no part in a group, so no leadership moved.
    expect(existsSync(join(data, "control"))).toBe(false);
    blocker.close();
  });

  // holds: cli-config-early
  it("refuses a malformed bootstrap key, token, certificate or flag before Raft", async () => {
    const keyFile = join(data, "typo");
    await writeFile(keyFile, "hdl_live_nonsense");
    const typo = run(["--bootstrap-key-file", keyFile]);
    expect(await typo.exited()).toBe(1);
    expect(typo.output.err).toMatch(/typo holds no API key/);
    await writeFile(join(data, "join"), "not-a-token");
    const token = run(["--join-token-file", join(data, "join")]);
    expect(await token.exited()).toBe(1);
    expect(token.output.err).toMatch(/the join token or enrolment key is not of the form/);
    const https = run(["--http-cert-file", keyFile, "--http-key-file", keyFile]);
    expect(await https.exited()).toBe(1);
    expect(https.output.err).toMatch(/--http-cert-file .*typo holds no certificate as PEM/);
    const witness = run(["--event-witnesses", "witness.example"]);
    expect(await witness.exited()).toBe(1);
    expect(witness.output.err).toMatch(/"witness\.example" is no key: it has the form NAME/);
    // None has a log: they ended before Raft started.
    expect(existsSync(join(data, "control"))).toBe(false);
    const open = run(["--http-host", "0.0.0.0"]);
    expect(await open.exited()).toBe(1);
    expect(open.output.err).toMatch(/--insecure-bind/);
  });

  it("warns where the API or the nodes' connections are without TLS beyond loopback", async () => {
    const started = run([
      "--insecure-bind",
      "--insecure-nodes",
      "--http-host",
      "::",
      "--grpc-host",
      "::",
    ]);
    await ready(started);
    const { out } = started.output;
    expect(out).toContain("no TLS for the HTTP API (--insecure-bind)");
    expect(out).toContain("no TLS between nodes (--insecure-nodes)");
    started.child.kill("SIGTERM");
    await started.exited();
  });
});

// These share one master; the last one ends it.
describe("a running master", () => {
  let started: Process;
  let target: { readonly url: string; readonly adminKey: string };

  beforeAll(async () => {
    await setUp();
    const flags = ["--log-level", "debug", "--drain-ms", "200"];
    started = run(flags, { SCRIPT_TOKEN_DELAY_MS: "20" });
    const { url } = await ready(started);
    target = { url, adminKey: await shownKey(started) };
  });
  afterAll(tearDown);

  // holds: usage-private
  it("shows a key that is in no file, and logs no key, prompt or answer", async () => {
    const secret = "xylophone-secret";
    const messages = [{ role: "user", content: secret }];
    expect((await postChat(target, { ...hello, messages })).status).toBe(200);
    const wrongKey = { ...target, adminKey: `${target.adminKey}x` };
    await postChat(wrongKey, { ...hello, temperature: secret });
    expect(started.output.out).not.toContain(secret);
    expect(started.output.out).not.toContain(target.adminKey);
  });

  // holds: wal-lock
  it("holds its data directory: a second process names it, in one line", async () => {
    const second = run([]);
    expect(await second.exited()).toBe(1);
    expect(second.output.err.trim().split("\n")).toHaveLength(1);
    expect(second.output.err).toContain(`in use by the process ${started.child.pid}`);
  });

  it("ends streams with an event and exits 0 on SIGTERM, its usage written", async () => {
    const reply = await postChat(target, { ...hello, stream: true, max_tokens: 5000 });
    started.child.kill("SIGTERM");
    const events = eventsOf(await reply.text());
    expect(JSON.parse(events.at(-1)?.data ?? "")).toMatchObject({ error: { code: "unavailable" } });
    expect(await started.exited()).toBe(0);
    expect(started.output.out).not.toContain(target.adminKey);
    const day = new Date().toISOString().slice(0, 10);
    const rows = await readFile(join(data, "usage", `usage-${day}.jsonl`), "utf8");
    expect(JSON.parse(rows.trim().split("\n").at(-1) ?? "")).toMatchObject({
      model: "FamilyA-1-2B",
      errorCode: "unavailable",
    });
  });

  it("does not show its key again at the next start", async () => {
    const second = run([]);
    await ready(second);
    expect(second.output.err).toBe("");
  });
});
