// holds: cli-verbs, cli-address-and-key

import { spawnSync } from "node:child_process";
import {
  closeSync,
  existsSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { freePort } from "@heddle/base/testing/free-ports";
import { describe, expect, it } from "vitest";
import { DrivenProcess } from "./testing/driven-process.ts";

import {
  CLUSTER,
  HEALTH,
  JOB,
  KEY,
  MAIN,
  MODELS,
  NOWHERE,
  ROTATED,
  ScriptedApi,
} from "./testing/scripted-api.ts";

const api = new ScriptedApi();
const { calls } = api;
const heddle = api.heddle.bind(api);

describe("command line", () => {
  it("prints help with 0 and refuses unknown commands with 2", async () => {
    expect(await heddle(["--help"])).toMatchObject({ code: 0, stderr: "" });
    expect(await heddle(["weave"])).toMatchObject({ code: 2, stdout: "" });
    expect(await heddle(["health", "-o", "xml"])).toMatchObject({ code: 2 });
    expect(await heddle(["up", "--masters", "2"])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--masters "2": give 1, 3 or 5'),
    });
  });

  // holds: engine-template
  it("lists models as a table, as names and as records", async () => {
    const table = await heddle(["models", "list", "-o", "wide"]);
    expect(table.stdout).toMatch(
      /m-1 +pulling +8192 +a small model \(a stand-in\) +A +w1:pulling 50% +-/,
    );
    expect(table.stdout).toMatch(
      /m-2 +ready +4096 .*w1:ready +- +plain \(none in the file\) +InsufficientGpu: one; NodesLost: two/,
    );
    expect((await heddle(["models", "list", "-o", "name"])).stdout).toBe("m-1\nm-2\n");
    const json = await heddle(["-o", "json", "models", "list"]);
    expect(JSON.parse(json.stdout)).toEqual(MODELS.data);
  });

  it("-o json: one record is an object, and no array", async () => {
    for (const verb of ["status", "metrics"]) {
      const { stdout } = await heddle(["cluster", verb, "-o", "json"]);
      expect(JSON.parse(stdout), verb).toMatchObject({ leader: "master-2" });
    }
    const health = await heddle(["health", "-o", "json"]);
    expect(JSON.parse(health.stdout)).toMatchObject({ status: "ok" });
  });

  it("--help of a verb shows the global options", async () => {
    const { stdout } = await heddle(["models", "list", "--help"]);
    expect(stdout).toMatch(/Global Options:.*--endpoint.*--api-key.*--output/s);
  });

  it("lists workers, endpoints and health", async () => {
    const { stdout } = await heddle(["workers", "list"]);
    expect(stdout).toMatch(/w1 +worker-1 +ready +worker +0/);
    expect(stdout).toMatch(/w2 +worker-2 +suspect \(silent for 45 s\) +worker +0.* none: no offer/);
    expect((await heddle(["workers", "list", "-o", "name"])).stdout).toBe("w1\nw2\n");
    expect((await heddle(["health"])).stdout).toMatch(/ok +0\.1\.0 +12 s/);
    Object.assign(HEALTH, { status: "degraded", detail: "a node refuses the leader" });
    const degraded = await heddle(["health"]);
    expect(degraded).toMatchObject({ code: 7, stderr: "a node refuses the leader\n" });
    Object.assign(HEALTH, { status: "ok", detail: "" });
    const endpoints = await heddle(["endpoints", "list", "--endpoint", "http://flag:1"]);
    expect(endpoints.stdout).toMatch(/http:\/\/flag:1 +--endpoint +yes/);
    expect(endpoints.stdout).toMatch(/HEDDLE_ENDPOINT +no/);
  });

  // holds: cli-cluster
  it("shows the masters, transfers leadership, truncates the log, removes a master", async () => {
    const status = await heddle(["cluster", "status"]);
    expect(status.stdout).toMatch(
      /master-2 +degraded +1\/2 \(needs 2\) +7 +20 +20 +00ff +1 \(supports 2\) +master-1/,
    );
    const members = await heddle(["cluster", "members"]);
    expect(members.stdout).toMatch(/master-1 +1 +follower +yes +3 +h:1\nmaster-2 +2 +leader/);
    expect(await heddle(["cluster", "transfer", "master-1"])).toMatchObject({ code: 0 });
    expect(calls.at(-1)).toMatchObject({ method: "POST", body: { to: "master-1" } });
    expect((await heddle(["cluster", "snapshot"])).stderr).toContain("a snapshot of entry 11");
    expect(await heddle(["cluster", "remove", "master-1"])).toMatchObject({ code: 0 });
    const url = "/api/v1/cluster/masters/master-1";
    expect(calls.at(-1)).toMatchObject({ method: "DELETE", url });
  });

  // holds: key-rotation
  it("keys rotate: prints only the new key on standard output", async () => {
    const rotated = await heddle(["keys", "rotate", "abcdefgh", "--overlap", "7d"]);
    expect(rotated).toMatchObject({ code: 0, stdout: "hdl_live_newnewne_x\n" });
    expect(rotated.stderr).toContain("abcdefgh is replaced by newnewne");
    expect(rotated.stderr).toContain("2030-01-01");
    expect(calls.at(-1)).toEqual({
      method: "POST",
      url: "/api/v1/keys/abcdefgh/rotate",
      body: { overlap_seconds: 604_800 },
    });
    const json = await heddle(["keys", "rotate", "abcdefgh", "-o", "json"]);
    expect(JSON.parse(json.stdout)).toEqual(ROTATED);
    expect(calls.at(-1)?.body).toEqual({});
    expect(await heddle(["keys", "rotate", "abcdefgh", "--overlap", "soon"])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--overlap "soon": give a whole number'),
    });
  });

  // holds: cli-next-master
  it("tries the next master of `heddle up` if the first is unreachable", async () => {
    const data = mkdtempSync(join(tmpdir(), "heddle-masters-"));
    const gone = `http://127.0.0.1:${await freePort()}`;
    const credentials = { endpoint: gone, endpoints: [gone, api.endpoint], api_key: KEY.key };
    writeFileSync(join(data, "credentials.json"), JSON.stringify(credentials));
    const env = { HEDDLE_DATA: data, HEDDLE_ENDPOINT: "", HEDDLE_API_KEY: "" };
    for (const what of ["workers", "models"]) {
      expect(await heddle([what, "list", "-o", "name"], env)).toMatchObject({
        code: 0,
        stderr: "",
      });
    }
    rmSync(data, { recursive: true });
  });

  it("keys rotate: stores the key that it uses itself for the next start", async () => {
    const data = mkdtempSync(join(tmpdir(), "heddle-rotate-"));
    const credentials = join(data, "credentials.json");
    writeFileSync(credentials, JSON.stringify({ endpoint: api.endpoint, api_key: KEY.key }));
    const env = { HEDDLE_DATA: data, HEDDLE_ENDPOINT: "", HEDDLE_API_KEY: "" };
    const rotated = await heddle(["keys", "rotate", "abcdefgh"], env);
    expect(rotated).toMatchObject({ code: 0, stdout: "hdl_live_newnewne_x\n" });
    expect(rotated.stderr).toContain(`${data} stores the new key`);
    expect(JSON.parse(readFileSync(credentials, "utf8"))).toEqual({
      endpoint: api.endpoint,
      endpoints: [api.endpoint],
      api_key: "hdl_live_newnewne_x",
    });
    expect(readFileSync(join(data, "bootstrap-key"), "utf8")).toBe("hdl_live_newnewne_x\n");
    expect(statSync(credentials).mode & 0o777).toBe(0o600);
    rmSync(data, { recursive: true });
  });

  it("keys: create prints only the key on standard output; list and revoke", async () => {
    const made = await heddle(["keys", "create", "ci", "--scopes", "jobs:read, jobs:create"]);
    expect(made).toMatchObject({ code: 0, stdout: "hdl_live_abcdefgh_x\n" });
    expect(calls.at(-1)).toEqual({
      method: "POST",
      url: "/api/v1/keys",
      body: { name: "ci", scopes: ["jobs:read", "jobs:create"], limits: {} },
    });
    expect(made.stderr).toContain(
      "no model `later` is registered; the key can call it after its registration",
    );
    expect((await heddle(["keys", "list", "-o", "name"])).stdout).toBe("abcdefgh\n");
    expect(await heddle(["keys", "revoke", "abcdefgh"])).toMatchObject({ code: 0, stdout: "" });
    expect(calls.at(-1)).toMatchObject({ method: "DELETE", url: "/api/v1/keys/abcdefgh" });
  });

  it("keys create: has an expiry and every limit; a wrong one is named", async () => {
    const limits = ["--requests-per-minute", "60", "--tokens-per-minute", "5000"];
    const spend = ["--concurrency", "4", "--budget", "20/month", "--expires", "30d"];
    const beganMs = Date.now();
    expect(await heddle(["keys", "create", "ci", ...limits, ...spend])).toMatchObject({ code: 0 });
    const { expires_at, ...body } = calls.at(-1)!.body as { expires_at: string };
    expect(body).toEqual({
      name: "ci",
      limits: {
        requests_per_minute: 60,
        tokens_per_minute: 5_000,
        concurrency: 4,
        budget: { amount: 20, period: "month" },
      },
    });
    const days = (Date.parse(expires_at) - beganMs) / 86_400_000;
    expect(days).toBeGreaterThanOrEqual(30);
    expect(days).toBeLessThan(30.01);
    await heddle(["keys", "create", "ci", "--expires", "2099-01-31T00:00:00+01:00"]);
    expect(calls.at(-1)?.body).toMatchObject({ expires_at: "2099-01-30T23:00:00.000Z" });
    const before = calls.length;
    for (const [flag, value] of [
      ["--expires", "2027-01-31"],
      ["--expires", "soon"],
      ["--expires", "999999999d"],
      ["--budget", "20"],
      ["--concurrency", "many"],
    ] as const) {
      const { code, stderr } = await heddle(["keys", "create", "ci", flag, value]);
      expect(code).toBe(2);
      expect(stderr).toContain(`${flag} "${value}": give `);
    }
    expect(calls).toHaveLength(before);
  });

  // holds: start-bad-options
  it("refuses an option with an empty value", async () => {
    const before = calls.length;
    for (const args of [
      ["up", "--data", "", "--once"],
      ["models", "list", "--endpoint="],
    ]) {
      const stderr = expect.stringMatching(/--(data|endpoint) "": the value is empty/);
      expect(await heddle(args)).toMatchObject({ code: 2, stdout: "", stderr });
    }
    expect(calls).toHaveLength(before);
  });

  it("exits quietly when its output is closed", async () => {
    for (const args of [["models", "list", "-o", "json"], ["chat", "Hi"], ["--help"]]) {
      const driven = new DrivenProcess([process.execPath, MAIN, ...args], {
        HEDDLE_DATA: NOWHERE,
        HEDDLE_ENDPOINT: api.endpoint,
        HEDDLE_API_KEY: "good",
      });
      driven.child.stdout?.destroy();
      expect(await driven.end(), args.join(" ")).toBe(0);
      expect(driven.stderr, args.join(" ")).not.toMatch(/EPIPE|error/i);
    }
  });

  it.skipIf(!existsSync("/dev/full"))("says in a line that its output cannot be written", () => {
    const full = openSync("/dev/full", "w");
    const ended = spawnSync(process.execPath, [MAIN, "--help"], {
      stdio: ["ignore", full, "pipe"],
    });
    closeSync(full);
    expect(ended.status).toBe(1);
    expect(ended.stderr.toString()).toMatch(/^heddle: cannot write the output: ENOSPC[^\n]*\n$/);
  });

  it("prints cause, remedy and request id of a refusal, and exits with its code", async () => {
    const refused = await heddle(["models", "list"], { HEDDLE_API_KEY: "bad" });
    expect(refused).toMatchObject({ code: 4, stdout: "" });
    expect(refused.stderr).toMatch(/^error Bad key\.\nfix .*--api-key.*\nrequest req_7\n$/);
    const missing = await heddle(["models", "pull", "none"]);
    expect(missing).toMatchObject({ code: 3, stderr: expect.stringContaining("models list") });
    const unreachable = await heddle(["health", "--endpoint", "http://127.0.0.1:1"]);
    expect(unreachable).toMatchObject({ code: 7, stderr: expect.stringContaining("heddle up") });
  });

  it("pulls a model with progress", async () => {
    expect(await heddle(["models", "pull", "m-2"])).toEqual({
      code: 0,
      stdout: "m-2 is pulled\n",
      stderr: "pulling m-2 50 % (5.0 of 10.0 MB)\n",
    });
  });

  it("reports why a pulled model cannot be loaded, and exits with 1", async () => {
    expect(await heddle(["models", "pull", "m-3"])).toMatchObject({
      code: 1,
      stdout: "m-3 is pulled\n",
      stderr: expect.stringContaining(
        "m-3 is pulled, but loading it failed on w1: m-3.gguf is not a usable GGUF file",
      ),
    });
  });

  // holds: cli-cluster
  it("prints how to start another master, with its own join token under TLS", async () => {
    const token = join(tmpdir(), `heddle-join-token-${process.pid}`);
    const add = ["cluster", "add", "master-3", "--address", "10.0.0.3:8081"];
    const { stdout } = await heddle([...add, "--data", "/d", "--join-token-file", token]);
    expect(stdout).toBe(
      `heddle-master --name master-3 --peers master-1=h:1,master-2=h:2,master-3=10.0.0.3:8081 --grpc-host 10.0.0.3 --grpc-port 8081 --tls --join-token-file ${token} --secrets-key-file SECRETS_KEY_FILE --data /d\n`,
    );
    expect(readFileSync(token, "utf8")).toBe("hdlj_made\n");
    rmSync(token);
    const again = await heddle(["cluster", "add", "master-2", "--address", "h:2"]);
    expect(again).toMatchObject({
      code: 5,
      stderr: expect.stringContaining("is a running member"),
    });
    expect(await heddle(["cluster", "add", "m", "--address", "nowhere"])).toMatchObject({
      code: 2,
    });
    for (const address of ["127.0.0.1:99999", "127.0.0.1:65536", "[::1]:0"]) {
      const impossible = await heddle(["cluster", "add", "m", "--address", address]);
      expect(impossible, address).toMatchObject({ code: 2, stdout: "" });
      expect(impossible.stderr).toContain("a port from 1 to 65535");
    }
    const made = await heddle(["cluster", "join-token", "--role", "worker", "--name", "w-1"]);
    expect(made.stdout).toBe("hdlj_made\n");
    expect(calls.at(-1)).toMatchObject({ body: { role: "worker", name: "w-1" } });
  });

  it("shows the cluster's metrics and resources as tables and as records", async () => {
    const metrics = await heddle(["cluster", "metrics"]);
    expect(metrics.stdout).toMatch(/2 ready, 1 suspect +3\/8 +1\.5\/64 +1\.0\/4\.0 GiB/);
    const json = await heddle(["cluster", "metrics", "-o", "json"]);
    expect(JSON.parse(json.stdout)).toEqual(CLUSTER);
    const resources = await heddle(["cluster", "resources"]);
    expect(resources.stdout).toMatch(
      /w1 +worker +ready +1\/4 +0\.5 +1\.0\/2\.0 GiB.*1\/2 H100\nall /,
    );
  });

  it("models register: sends what each replica needs of a GPU, and no unset flag", async () => {
    const posted = async (...flags: string[]) => {
      await heddle(["models", "register", "m-9", "--source", "builtin://tiny", ...flags]);
      return calls.at(-1);
    };
    const gpu = ["--gpus", "1", "--gpu-type", "H100,A100", "--gpu-memory-gb", "80"];
    expect(await posted("--replicas", "2", ...gpu)).toMatchObject({
      method: "POST",
      url: "/api/v1/models",
      body: {
        id: "m-9",
        source: "builtin://tiny",
        replicas: 2,
        resources: { gpu_count: 1, gpu_type: ["H100", "A100"], gpu_memory_gb: 80 },
      },
    });
    const plain = { id: "m-9", source: "builtin://tiny", replicas: "every-worker" };
    expect((await posted("--replicas", "every-worker"))?.body).toEqual(plain);
  });

  it("prints the result of a change as one record if records are requested", async () => {
    const deleted = { id: "m-2", deleted: true };
    for (const [args, record] of [
      [["models", "remove", "m-2"], deleted],
      [["models", "pull", "m-2"], deleted],
      [["keys", "revoke", "abcdefgh"], {}],
      [["cluster", "snapshot"], CLUSTER],
      [["cluster", "transfer"], CLUSTER],
      [["cluster", "remove", "master-1"], CLUSTER],
      [["jobs", "cancel", "job_1"], JOB],
      [
        ["jobs", "suspend", "job_1", "job_1"],
        [JOB, JOB],
      ],
      [["jobs", "submit", "--command", "true", "--wait"], JOB],
    ] as const) {
      const { code, stdout } = await heddle(["-o", "json", ...args]);
      expect(code, args.join(" ")).toBe(0);
      expect(JSON.parse(stdout), args.join(" ")).toEqual(record);
    }
    const yaml = await heddle(["cluster", "metrics", "-o", "yaml"]);
    expect(yaml.stdout).toMatch(/^leader: "master-2"$/m);
  });

  it("removes a model", async () => {
    expect(await heddle(["models", "remove", "m-2"])).toMatchObject({ code: 0, stdout: "" });
    expect(calls.at(-1)).toMatchObject({ method: "DELETE", url: "/api/v1/models/m-2" });
  });

  it("help loads no module besides commander", async () => {
    const trace = new DrivenProcess([process.execPath, MAIN, "--help"], { NODE_DEBUG: "esm" });
    await trace.end();
    const loaded = [...trace.stderr.matchAll(/Storing (file:\S+)/g)].map(([, url]) => url ?? "");
    const own = loaded.filter((url) => !url.includes("/commander/"));
    const ours = new Set(own.filter((url) => url.includes("/apps/cli/")));
    // Files of verbs are tables: what a verb does is loaded when it is called.
    const verbs = readdirSync(dirname(MAIN), { recursive: true })
      .map(String)
      .filter((name) => name.endsWith("-verbs.ts"));
    expect([...ours].sort()).toEqual(
      [...verbs, "command-line.ts", "main.ts", "program.ts"]
        .sort()
        .map((name) => `file://${MAIN.replace("main.ts", name)}`),
    );
    expect(own.filter((url) => url.includes("/libs/"))).toEqual([]);
  });
});
