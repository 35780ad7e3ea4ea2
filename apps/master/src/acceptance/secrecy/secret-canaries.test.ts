// holds: no-secret-leaks

import { randomBytes } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createApiKey } from "@heddle/auth/api-key";
import { Browser } from "@heddle/auth/oidc/testing/browser";
import { IdentityProvider } from "@heddle/auth/oidc/testing/identity-provider";
import { readSecretKeys } from "@heddle/base/secret-keys";
import { type S3Server, startS3Server } from "@heddle/base/testing/s3-server";
import { afterAll, beforeAll, expect, test } from "vitest";
import { JobCluster } from "../../../test/job-cluster.ts";
import {
  type Canary,
  CanarySearch,
  filesBelow,
  type Place,
} from "../../../test/secrecy/canary-search.ts";
import { RecordingPipe, RecordingProxy } from "../../../test/secrecy/recording-proxy.ts";
import { openStoppedMember } from "../../offline/stopped-member.ts";

// One run with a canary in every place of a secret; then all files, outputs and replies are searched.

const MASTER = "master-1";
const secret = (name: string) => `canary ${name} "${randomBytes(9).toString("hex")}"/+`;
const SECRETS_KEY = randomBytes(32);
const S3_SECRET = secret("s3");
const NATS_PASSWORD = secret("nats");
const CONSOLE_SECRET = "console-secret-of-the-test";
const small = { cpu_cores: 0.2, memory_gb: 0.2 };

const settings = mkdtempSync(join(tmpdir(), "heddle-canaries-"));
const unknownKey = createApiKey("live").text;
let cluster: JobCluster;
let provider: IdentityProvider;
let s3: S3Server;
let proxy: RecordingProxy;
let pipe: RecordingPipe;

beforeAll(async () => {
  proxy = await RecordingProxy.start(() => cluster.masters.url(MASTER) ?? "");
  provider = await IdentityProvider.start(proxy.url);
  s3 = await startS3Server();
  const sinks = ["s3://heddle/audit", "nats://127.0.0.1:9/none", `file://${settings}/copies`];
  cluster = new JobCluster(1, { leaseMs: 30_000, nodeLostMs: 10_000 }, () => ({
    ...s3.env,
    AWS_SECRET_ACCESS_KEY: S3_SECRET,
    NATS_USER: "heddle",
    NATS_PASSWORD,
    HEDDLE_SECRETS_KEY: SECRETS_KEY.toString("base64"),
    HEDDLE_EVENT_SINKS: sinks.join(),
    HEDDLE_AUTH_FILE: authFile(),
    HEDDLE_LOG_LEVEL: "debug",
  }));
  await cluster.masters.startAll();
  const [address = ""] = cluster.masters.grpcAddresses;
  pipe = await RecordingPipe.start("127.0.0.1", Number(address.split(":")[1]));
  await cluster.startWorker("worker-1", { masters: [pipe.address] });
  await cluster.takesJobs("worker-1");
});
afterAll(async () => {
  await cluster?.close();
  for (const each of [proxy, pipe, provider, s3]) await each?.close();
  rmSync(settings, { recursive: true });
});

function settingFile(name: string, text: string): string {
  const file = join(settings, name);
  writeFileSync(file, text);
  return file;
}

function authFile(): string {
  const console = {
    public_url: proxy.url,
    client_id: "heddle-console",
    client_secret_file: settingFile("client-secret", CONSOLE_SECRET),
  };
  const { issuer, audience } = provider;
  const bindings = [{ kind: "user", subject: "alice", role: "admin" }];
  const oauth2 = { issuer, audience, console };
  return settingFile("auth.json", JSON.stringify({ method: "oauth2", oauth2, rbac: { bindings } }));
}

/** A call through the proxy; a stream is read for a while. */
async function call(
  method: string,
  path: string,
  body?: unknown,
  headers: Readonly<Record<string, string>> = {
    authorization: `Bearer ${cluster.masters.adminKey}`,
  },
): Promise<string> {
  const json = typeof body === "string" ? body : JSON.stringify(body);
  const reply = await fetch(`${proxy.url}${path}`, {
    method,
    headers: { "content-type": "application/json", ...headers },
    ...(body !== undefined && { body: json }),
    redirect: "manual",
    signal: AbortSignal.timeout(20_000),
  });
  const stream = reply.headers.get("content-type")?.includes("event-stream");
  if (!stream) return reply.text();
  await new Promise((resolve) => setTimeout(resolve, 500));
  await reply.body?.cancel();
  return "";
}

async function created<T>(path: string, body: unknown): Promise<T> {
  return JSON.parse(await call("POST", `/api/v1${path}`, body)) as T;
}

const DOCUMENT = new URL("../../../../../libs/contracts/openapi.json", import.meta.url);

/** Each route that only reads, with ids of things that are there. */
function readPaths(job: string): string[] {
  const { paths } = JSON.parse(readFileSync(DOCUMENT, "utf8")) as {
    readonly paths: Readonly<Record<string, object>>;
  };
  const known: Readonly<Record<string, string>> = { jobs: job, secrets: "token", projects: "p" };
  return Object.entries(paths).flatMap(([path, methods]) => {
    const [root = ""] = path.replace("/api/v1/", "").split("/");
    return "get" in methods ? [path.replace(/\{[^}]*\}/g, known[root] ?? "x")] : [];
  });
}

/** What runs with secrets; resolves with them. */
async function useSecrets(): Promise<Canary[]> {
  const [value, planted, changed] = [secret("job"), secret("planted"), secret("job, changed")];
  await call("PUT", "/api/v1/secrets/token", { value });
  await call("PUT", "/api/v1/secrets/planted", { value: planted });
  for (const wrong of [`{"value":"${value}`, { value: [value] }, { value, valu: 1 }, [value]]) {
    await call("PUT", "/api/v1/secrets/token", wrong);
  }
  const { id, key } = await created<{ id: string; key: string }>("/keys", { name: "one" });
  const next = await created<{ key: string }>(`/keys/${id}/rotate`, { overlap_seconds: 60 });
  const hook = { url: "https://example.com/hook" };
  const webhook = await created<{ secret: string }>("/webhooks", hook);
  const member = { role: "master", name: "master-9" };
  const { token } = await created<{ token: string }>("/cluster/join-tokens", member);
  const jobs = await runJobs();
  await refusedCalls([unknownKey, key, token]);
  const session = await signIn();
  for (const job of jobs) for (const path of readPaths(job)) await call("GET", path);
  await call("PUT", "/api/v1/secrets/token", { value: changed });
  const exported = await call("GET", "/api/v1/events/log/export");
  expect(exported.length).toBeGreaterThan(1_000);
  return [
    { name: "secret of a job", secret: value, allowed: RAW_OUTPUT },
    { name: "changed secret of a job", secret: changed },
    { name: "planted secret", secret: planted },
    { name: "API key", secret: key, allowed: /^reply POST \/api\/v1\/keys$/ },
    { name: "rotated API key", secret: next.key, allowed: /^reply POST .*\/rotate$/ },
    { name: "unknown API key", secret: unknownKey },
    { name: "webhook secret", secret: webhook.secret, allowed: /^reply POST .*\/webhooks$/ },
    { name: "join token", secret: token.split("::").at(-1) ?? "", allowed: /join-tokens$/ },
    ...session,
  ];
}

/** What a task itself has printed, which disks hold as it is; readers get it with secrets hidden. */
const RAW_OUTPUT = /^file .*\/(worker-1\/.*\/logs|master-1\/task-logs)\//;

/** One shows its secret as it is, which is hidden; the other as hex, which nothing can know. */
async function runJobs(): Promise<string[]> {
  const job = (name: string, of: string, command: string) =>
    cluster.submit({ name, command, secret_variables: { TOKEN: of }, resources: small });
  const shows = await job("shows", "token", 'echo "it is <$TOKEN>"; echo "$TOKEN" >&2; exit 3');
  const hex = String.raw`printf '%s' "$TOKEN" | od -An -v -tx1 | tr -d ' \n'`;
  const leaks = await job("leaks", "planted", `${hex}; echo`);
  await cluster.reaches(shows, "failed");
  await cluster.reaches(leaks, "succeeded");
  return [shows, leaks];
}

/** Calls with secrets in wrong places, of which some may be repeated in errors. */
async function refusedCalls(secrets: readonly string[]): Promise<void> {
  for (const each of secrets) {
    const changed = `${each.slice(0, -1)}${each.endsWith("a") ? "b" : "a"}`;
    const jwt = `eyJhbGciOiJub25lIn0.${Buffer.from(JSON.stringify({ sub: each })).toString("base64url")}.`;
    const headers: Record<string, string>[] = [
      { authorization: `Bearer ${each}` },
      { authorization: each },
      { "x-api-key": each },
      { authorization: `Bearer ${jwt}` },
      { authorization: `Bearer ${changed}` },
    ];
    for (const own of headers) await call("GET", "/api/v1/jobs", undefined, own);
    const query = new URLSearchParams({ api_key: each });
    await call("GET", `/api/v1/jobs?${query}`, undefined, {});
    await call("POST", "/api/v1/chat/completions", `{"model":"x","key":"${each}"`);
  }
}

/** Alice signs in to the console, and a service uses a token; resolves with what they were given. */
async function signIn(): Promise<Canary[]> {
  const browser = new Browser();
  const end = await browser.follow(`${proxy.url}/console/session/login?to=/console/jobs`);
  expect(end).toBe(`${proxy.url}/console/jobs`);
  const state = (await (await browser.ask(`${proxy.url}/console/session`)).json()) as {
    readonly csrf: string;
  };
  const own = { cookie: browser.cookies(new URL(proxy.url).host), "x-heddle-csrf": state.csrf };
  expect(await call("GET", "/api/v1/access/whoami", undefined, own)).toContain("alice");
  // A forged header, with the cookie that is right.
  await call("GET", "/api/v1/jobs", undefined, { ...own, "x-heddle-csrf": "x" });
  const [, cookie = ""] = /heddle_session=([^;]*)/.exec(own.cookie) ?? [];
  const codes = browser.visited.map((url) => new URL(url).searchParams.get("code") ?? "");
  const robot = await robotToken();
  const bearer = { authorization: `Bearer ${robot}` };
  expect(await call("GET", "/api/v1/access/whoami", undefined, bearer)).toContain("robot");
  await call("GET", `/api/v1/jobs?access_token=${robot}`, undefined, bearer);
  const isSession = /^reply GET \/console\/session(\/callback)?$/;
  return [
    { name: "session cookie", secret: cookie, allowed: isSession },
    { name: "CSRF token", secret: state.csrf, allowed: isSession },
    { name: "authorization code", secret: codes.find((code) => code !== "") ?? "" },
    { name: "access token", secret: robot },
  ];
}

async function robotToken(): Promise<string> {
  const basic = Buffer.from("robot:robot-secret-of-the-test").toString("base64");
  const reply = await fetch(`${provider.issuer}/token`, {
    method: "POST",
    body: new URLSearchParams({ grant_type: "client_credentials" }),
    headers: { authorization: `Basic ${basic}` },
  });
  return ((await reply.json()) as { access_token: string }).access_token;
}

/** Everything that the run has written or sent, after its end. */
function places(): Place[] {
  const { masters, output } = cluster;
  return [
    ...filesBelow(masters.folder),
    ...filesBelow(s3.directory),
    ...filesBelow(join(settings, "copies")),
    { name: `output ${MASTER}`, bytes: Buffer.from(masters.printed(MASTER)) },
    { name: "output worker-1", bytes: Buffer.from(output.get("worker-1") ?? "") },
    ...proxy.replies,
    pipe.sent("gRPC of the master to its worker"),
  ];
}

/** Secrets of the masters themselves, which no route shows. */
async function ownSecrets(): Promise<Canary[]> {
  const { masters } = cluster;
  const token = readFileSync(masters.tokenFile, "utf8").trim();
  const keys = readSecretKeys(undefined, { HEDDLE_SECRETS_KEY: SECRETS_KEY.toString("base64") });
  const member = await openStoppedMember(masters.directory(MASTER), keys);
  const pepper = member.machine.control.secret("pepper") ?? "";
  await member.close();
  expect(pepper).toMatch(/^[0-9a-f]{64}$/);
  return [
    { name: "bootstrap key", secret: masters.adminKey, allowed: /^file .*\/admin-key$/ },
    { name: "cluster token", secret: token, allowed: /^file .*\/token$/ },
    { name: "pepper", secret: pepper },
    { name: "pepper's bytes", secret: Buffer.from(pepper, "hex") },
    { name: "secrets key", secret: SECRETS_KEY },
    { name: "secret of S3", secret: S3_SECRET },
    { name: "password of NATS", secret: NATS_PASSWORD },
    { name: "client secret of the console", secret: CONSOLE_SECRET },
  ];
}

test("secrets: a whole run leaves none in files, outputs and replies", async () => {
  const used = await useSecrets();
  await cluster.masters.request(MASTER, "POST", "/api/v1/cluster/snapshot");
  await call("GET", "/api/v1/cluster/backup");
  await call("GET", "/metrics");
  const { adminKey } = cluster.masters;
  await cluster.end("worker-1", "SIGTERM");
  await cluster.masters.end(MASTER, "SIGTERM");
  const all = places();
  const sent = new Map(all.map(({ name, bytes }) => [name, bytes.length]));
  for (const name of ["reply GET /api/v1/cluster/backup", "reply GET /metrics"]) {
    expect(sent.get(name), name).toBeGreaterThan(5_000);
  }
  expect(sent.get("gRPC of the master to its worker")).toBeGreaterThan(1_000);
  expect(all.length).toBeGreaterThan(150);
  const own = await ownSecrets();
  expect(own[0]?.secret).toBe(adminKey);
  const isPlanted = ({ name }: Canary) => name === "planted secret";
  const search = new CanarySearch([...own, ...used.filter((each) => !isPlanted(each))]);
  expect(search.leaks(all)).toEqual([]);

  // The same search finds what a task has printed, and a secret in another file.
  const planted = new CanarySearch(used.filter(isPlanted)).leaks(all);
  expect(planted).toContainEqual(expect.stringMatching(/\(hex\) in reply GET .*\/logs$/));
  expect(planted).toContainEqual(
    expect.stringMatching(/\(hex\) in file .*\/master-1\/.*task-logs/),
  );
  const leak = Buffer.from(`x${NATS_PASSWORD}`).toString("base64");
  writeFileSync(join(cluster.masters.directory(MASTER), "forgotten"), `password=${leak}\n`);
  expect(search.leaks(places())).toEqual([
    expect.stringMatching(/^password of NATS \(base64 at 1\) in file .*forgotten$/),
  ]);
});
