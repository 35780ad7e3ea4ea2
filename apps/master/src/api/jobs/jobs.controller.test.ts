import { jobId } from "@heddle/control/jobs/testing/specs";
import { afterEach, beforeEach, describe, expect, it, test } from "vitest";
import { JobApi } from "../../../test/job-api.ts";

let api: JobApi;

beforeEach(async () => {
  api = await JobApi.start();
  await api.join("a", { name: "worker-1" });
});

afterEach(() => api.close());

const VARIABLES = (name: string) => `#/environment_variables/${name}`;
const VALUES = "#/resources/node_affinity/0/values";
const affinity = (operator: string) => ({
  resources: { node_affinity: [{ key: "zone", operator, values: ["a"] }] },
});

/** A map of this many entries. */
const map = (size: number) =>
  Object.fromEntries(Array.from({ length: size }, (_, at) => [`k${at}`, "v"]));

describe("POST /jobs", () => {
  it("answers 202 with id, state, time and location", async () => {
    const { status, headers, body } = await api.call("POST", "/jobs", { name: "n", command: "x" });
    expect(status).toBe(202);
    expect(body).toEqual({
      job_id: expect.stringMatching(/^job_[0-7][0-9A-HJKMNP-TV-Z]{25}$/),
      state: "accepted",
      submitted_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
    });
    expect(headers.get("location")).toBe(`/api/v1/jobs/${body?.job_id}`);
  });

  // holds: jobs-idempotency
  it("replays the answer to a repeated Idempotency-Key, and makes one job", async () => {
    const once = { "idempotency-key": "k-1" };
    const first = await api.call("POST", "/jobs", { name: "n", command: "x" }, once);
    const again = await api.call("POST", "/jobs", { name: "n", command: "x" }, once);
    expect(again.body).toEqual(first.body);
    expect(again.headers.get("idempotency-replayed")).toBe("true");
    const other = await api.call("POST", "/jobs", { name: "m", command: "x" }, once);
    expect(other.status).toBe(422);
    expect(api.master.control.state.jobs.size).toBe(1);
  });

  // holds: task-network
  it("gives the node's network to keys with jobs:privileged only", async () => {
    const body = { name: "n", container_image: "a:1", container_options: { network: "host" } };
    const few = await api.master.addKey({ scopes: ["jobs:create"] });
    const more = await api.master.addKey({ scopes: ["jobs:create", "jobs:privileged"] });
    for (const path of ["/jobs", "/jobs?dry_run=true"]) {
      const refused = await api.call("POST", path, body, {}, few.text);
      expect(refused.status).toBe(403);
      expect(refused.body?.detail).toContain("jobs:privileged");
    }
    const own = { ...body, container_options: { network: "own", read_only: true } };
    expect((await api.call("POST", "/jobs?dry_run=true", own, {}, few.text)).status).toBe(200);
    expect((await api.call("POST", "/jobs?dry_run=true", body, {}, more.text)).status).toBe(200);
  });

  // holds: jobs-body-limit
  it("refuses a body beyond the setting job_spec_kib with 413", async () => {
    const body = { name: "n", command: "x", algorithm: "own", config: { a: "x".repeat(270_000) } };
    const large = await api.call("POST", "/jobs", body);
    expect([large.status, large.body]).toMatchObject([413, { code: "request_too_large" }]);
    const dry = await api.call("POST", "/jobs?dry_run=true", body);
    expect(dry.status).toBe(413);
    await api.call("PUT", "/cluster/settings/job_spec_kib", { value: 300 });
    expect((await api.call("POST", "/jobs", body)).status).toBe(202);
  });

  // holds: jobs-pointers
  it.each([
    ["an unknown field", { colour: "red" }, 400, "#/colour"],
    ["a bad resource", { resources: { gpu_count: -1 } }, 400, "#/resources/gpu_count"],
    ["nothing to run", { command: undefined }, 422, "#/command"],
    [
      "a kind of GPU without GPUs",
      { resources: { gpu_type: "H100" } },
      422,
      "#/resources/gpu_type",
    ],
    ["1.5 GPUs", { resources: { gpu_count: 1.5 } }, 422, "#/resources/gpu_count"],
    [
      "3 GPUs over 2 tasks",
      { tasks: 2, resources: { gpu_count: 3 } },
      422,
      "#/resources/gpu_count",
    ],
    ["a tolerance of all", { tasks: 2, failure_tolerance: 2 }, 422, "#/failure_tolerance"],
    ["a tolerance of the one task", { failure_tolerance: 3 }, 422, "#/failure_tolerance"],
    [
      "a tolerance of as many as may be",
      { failure_tolerance: 4, resources: { gpu_count: 4 } },
      422,
      "#/failure_tolerance",
    ],
    ["hyperparameters of nothing", { config: { lr: 1 } }, 422, "#/config"],
    ["a name with NUL", { name: "a\0" }, 400, "#/name"],
    ["a name of two lines", { name: "a\nb" }, 400, "#/name"],
    ["a blank name", { name: "   " }, 400, "#/name"],
    ["a lone surrogate", { name: "a\ud800" }, 400, "#/name"],
    ["a command with NUL", { command: "a\0" }, 400, "#/command"],
    ["an argument with NUL", { command: ["a", "b\0"] }, 400, "#/command/1"],
    ["an empty program", { command: ["", "x"] }, 400, "#/command/0"],
    ["a blank command", { command: " \n" }, 400, "#/command"],
    ["a directory with NUL", { working_directory: "a\0" }, 400, "#/working_directory"],
    ["a label with NUL", { labels: { a: "b\0" } }, 400, "#/labels/a"],
    ["a variable with NUL", { environment_variables: { A: "\0" } }, 400, VARIABLES("A")],
    [
      "the platform's variable",
      { environment_variables: { HEDDLE_TASK: "x" } },
      400,
      VARIABLES("HEDDLE_TASK"),
    ],
    ["the platform's rank", { environment_variables: { RANK: "x" } }, 400, VARIABLES("RANK")],
    [
      "too large a variable",
      { environment_variables: { A: "€".repeat(50_000) } },
      400,
      VARIABLES("A"),
    ],
    [
      "too large an environment",
      {
        environment_variables: Object.fromEntries(
          Array.from({ length: 4 }, (_, n) => [`A${n}`, "x".repeat(60_000)]),
        ),
      },
      400,
      "#/environment_variables",
    ],
    ["too large a command", { command: Array(1_024).fill("x".repeat(250)) }, 400, "#/command"],
    ["65 labels", { labels: map(65) }, 400, "#/labels"],
    ["1,025 variables", { environment_variables: map(1_025) }, 400, "#/environment_variables"],
    ["65 selectors", { resources: { node_affinity: map(65) } }, 400, "#/resources/node_affinity"],
    [
      "65 selectors against",
      { resources: { node_anti_affinity: map(65) } },
      400,
      "#/resources/node_anti_affinity",
    ],
    ["1,025 hyperparameters", { algorithm: "own", config: map(1_025) }, 400, "#/config"],
    ["1,025 inner fields", { algorithm: "own", config: { a: [map(1_025)] } }, 400, "#/config/a"],
    [
      "16,385 inner items",
      { algorithm: "own", config: { a: { b: Array(16_385).fill(0) } } },
      400,
      "#/config/a",
    ],
    ["too long a shell line", { command: "x".repeat(120_000) }, 400, "#/command"],
    ["a number beyond all bounds", { retry_limit: 1e99 }, 400, "#/retry_limit"],
    ["a number below all bounds", { retry_limit: -1e99 }, 400, "#/retry_limit"],
    ["values that `exists` ignores", affinity("exists"), 400, "#/resources/node_affinity/0/values"],
    [
      "values that `not_exists` ignores",
      affinity("not_exists"),
      400,
      "#/resources/node_affinity/0/values",
    ],
    [
      "no values for `in`",
      { resources: { node_affinity: [{ key: "zone", operator: "in" }] } },
      400,
      VALUES,
    ],
    [
      "an empty list of values for `not_in`",
      { resources: { node_affinity: [{ key: "zone", operator: "not_in", values: [] }] } },
      400,
      VALUES,
    ],
    ["an invalid image name", { container_image: "bad image name!!" }, 400, "#/container_image"],
    ["a name that is read backwards", { name: "n\u202egpj" }, 400, "#/name"],
    ["a name with an isolate", { name: "n\u2066x" }, 400, "#/name"],
    ["a name with a hidden space", { name: "n\u200bx" }, 400, "#/name"],
    ["next to no GPU", { resources: { gpu_count: 1e-10 } }, 422, "#/resources/gpu_count"],
    ["next to no memory", { resources: { memory_gb: 1e-10 } }, 400, "#/resources/memory_gb"],
    ["next to no CPU", { resources: { cpu_cores: 1e-10 } }, 400, "#/resources/cpu_cores"],
    [
      "a label that no object keeps",
      { labels: JSON.parse('{"__proto__": "x"}') },
      400,
      "#/labels/__proto__",
    ],
    ["an unknown queue", { queue: "fast" }, 422, "#/queue"],
    ["an unknown dependency", { dependencies: ["gone"] }, 422, "#/dependencies/0"],
    ["a dependency on itself", { dependencies: ["n"] }, 422, "#/dependencies/0"],
  ])("refuses %s with a pointer", async (_what, change, status, pointer) => {
    const reply = await api.call("POST", "/jobs", { name: "n", command: "x", ...change });
    expect(reply.status).toBe(status);
    expect(reply.headers.get("content-type")).toContain("application/problem+json");
    expect(reply.body?.errors).toMatchObject([{ pointer }]);
  });

  it.each([
    ["a shell line of 119,000 bytes", "x".repeat(119_000)],
    ["arguments of 250 KiB in all", Array(5).fill("x".repeat(50 * 1024))],
  ])("takes %s, as it says that it does", async (_what, command) => {
    expect((await api.call("POST", "/jobs", { name: "n", command })).status).toBe(202);
  });

  // holds: jobs-pointers
  it("reports all faults of a body at once, of single and of several fields", async () => {
    const resources = { gpu_count: 1.5, cpu_cores: -1 };
    const reply = await api.call("POST", "/jobs", {
      name: "zz",
      config: { a: 1 },
      foo: 1,
      resources,
    });
    expect(reply.status).toBe(400);
    const pointers = reply.body?.errors?.map(({ pointer }) => pointer).sort();
    expect(pointers).toEqual([
      "#/command",
      "#/config",
      "#/foo",
      "#/resources/cpu_cores",
      "#/resources/gpu_count",
    ]);
    // The intended value of a malformed field is not guessed.
    const vague = { name: 7, command: "", config: { a: 1 }, algorithm: "A B", tasks: 0 };
    const refused = await api.call("POST", "/jobs", {
      ...vague,
      failure_tolerance: 2,
      resources: { gpu_count: 3, gpu_type: "" },
    });
    const places = new Set(refused.body?.errors?.map(({ pointer }) => pointer));
    expect([...places].sort()).toEqual([
      "#/algorithm",
      "#/command",
      "#/name",
      "#/resources/gpu_type",
      "#/tasks",
    ]);
  });

  // holds: jobs-pointers
  it.each([
    [
      { environment_variables: { RANK: "1" } },
      /RANK': HEDDLE_\*, RANK, .* are set by the platform/,
    ],
    [{ environment_variables: { "A-B": "1" } }, /A-B': expected a variable's name: letters/],
    [{ labels: { "": "x" } }, /expected string to have >=1 characters/],
    [{ queue: "BAD" }, /expected 1 to 63 of a-z, .* with a letter or digit at both ends/],
  ])("says of %j what is expected", async (change, words) => {
    const { body } = await api.call("POST", "/jobs", { name: "n", command: "x", ...change });
    expect(body?.detail).toMatch(words);
  });

  // holds: sec-trainer-environment
  it("refuses variables from which a trainer's runtime would load code", async () => {
    const trainer = { name: "t", algorithm: "ppo", config: { total_timesteps: 1_000 } };
    const loaders = [
      "NODE_OPTIONS",
      "NODE_PATH",
      "NODE_EXTRA_CA_CERTS",
      "LD_PRELOAD",
      "LD_AUDIT",
      "PATH",
      "ENV",
      "DYLD_INSERT_LIBRARIES",
      "GCONV_PATH",
      "OPENSSL_CONF",
      "SSL_CERT_FILE",
      "GLIBC_TUNABLES",
    ];
    const asked = Object.fromEntries(loaders.map((name) => [name, "x"]));
    const refused = await api.call("POST", "/jobs", { ...trainer, environment_variables: asked });
    expect(refused.status).toBe(422);
    const pointers = refused.body?.errors?.map(({ pointer }) => pointer);
    expect(pointers).toEqual(loaders.map((name) => VARIABLES(name)));
    expect(refused.body?.detail).toMatch(/Heddle's own trainer, which takes no such variable/);
    const harmless = { PLUGIN_LEVEL: "3", OMP_NUM_THREADS: "1", LC_ALL: "C" };
    const taken = await api.call("POST", "/jobs", { ...trainer, environment_variables: harmless });
    expect(taken.status).toBe(202);
    const own = { name: "p", command: "x", environment_variables: asked };
    expect((await api.call("POST", "/jobs", own)).status).toBe(202);
  });

  it("accepts the minimal body of each training algorithm", async () => {
    for (const algorithm of ["ppo", "weave"]) {
      const body = { name: `least-${algorithm}`, algorithm, resources: { gpu_count: 1 } };
      expect((await api.call("POST", "/jobs", body)).status).toBe(202);
    }
  });

  // holds: jobs-names
  it("derives a unique name from generate_name", async () => {
    const body = { generate_name: "sweep-", command: "x" };
    const names: string[] = [];
    for (let i = 0; i < 2; i++) {
      const { body: reply } = await api.call("POST", "/jobs", body);
      names.push(api.master.control.state.jobs.get(String(reply?.job_id))?.name ?? "");
    }
    for (const name of names) expect(name).toMatch(/^sweep-[0-9a-z]{6}$/);
    expect(new Set(names).size).toBe(2);
    const own = { id: jobId(8), ...body };
    for (let i = 0; i < 2; i++) expect((await api.call("POST", "/jobs", own)).status).toBe(202);
    const refused = [
      { ...body, name: "n" },
      { ...body, generate_name: "" },
      { ...body, generate_name: 3 },
      { ...body, generate_name: "x".repeat(123) },
    ];
    for (const each of refused) {
      const { status, body: reply } = await api.call("POST", "/jobs", each);
      expect(status).toBe(400);
      expect(reply?.errors?.[0]?.pointer).toMatch(/^#\/(generate_)?name$/);
    }
  });

  // holds: jobs-ids
  it("answers a repeated client id with the existing job", async () => {
    const body = { id: jobId(7), name: "own", command: "x" };
    const first = await api.call("POST", "/jobs", body);
    expect(first.body).toMatchObject({ job_id: jobId(7), state: "accepted" });
    await api.run(jobId(7));
    const again = await api.call("POST", "/jobs", body);
    expect(again.status).toBe(202);
    expect(again.body).toEqual({ ...first.body, state: "running" });
    const other = await api.call("POST", "/jobs", { ...body, command: "y" });
    expect(other.status).toBe(409);
  });

  it("resolves a dependency on its own name to the previous job of that name", async () => {
    const nightly = { name: "nightly", command: "x" };
    expect((await api.call("POST", "/jobs", { ...nightly, id: jobId(1) })).status).toBe(202);
    await api.run(jobId(1));
    await api.report(jobId(1), "exited", { endedAtMs: Date.now(), exitCode: 0 });
    await api.reached(jobId(1), "succeeded");
    const next = { ...nightly, id: jobId(2), dependencies: ["nightly"] };
    expect((await api.call("POST", "/jobs", next)).status).toBe(202);
    expect(api.master.control.state.jobs.get(jobId(2))?.waitingFor).toEqual([]);
  });

  // holds: jobs-names, jobs-dependencies
  it("refuses a cycle of dependencies with its path, and a duplicate live name", async () => {
    const [a, b] = [jobId(1), jobId(2)];
    const spec = { command: "x", name: "a" };
    expect((await api.call("POST", "/jobs", { ...spec, id: a, dependencies: [b] })).status).toBe(
      202,
    );
    const cycle = { ...spec, name: "b", id: b, dependencies: [a] };
    const refused = await api.call("POST", "/jobs", cycle);
    expect(refused.status).toBe(422);
    expect(refused.body?.detail).toContain(`${b} -> ${a} -> ${b}`);
    const twice = await api.call("POST", "/jobs", spec);
    expect(twice.status).toBe(409);
  });

  it("refuses a job that waits for itself with a message of its own", async () => {
    const own = { name: "v", command: "x", dependencies: ["v"] };
    const { status, body } = await api.call("POST", "/jobs?dry_run=true", own);
    expect(status).toBe(422);
    expect(body?.detail).toContain("job v would wait for itself");
    expect(body?.detail).not.toContain("job_");
  });

  // holds: jobs-unknown-input
  it("refuses an unknown query parameter: a misspelt dry_run submits nothing", async () => {
    const reply = await api.call("POST", "/jobs?dryrun=true", { name: "n", command: "x" });
    expect(reply.status).toBe(400);
    expect(reply.body?.errors).toMatchObject([{ pointer: "#/dryrun", code: "invalid_value" }]);
    expect((await api.call("GET", "/jobs?name=n")).body?.data).toEqual([]);
    for (const [query, pointer] of [
      ["state=foo", "#/state/0"],
      ["state=running,running", "#/state"],
      ["label=a&".repeat(17), "#/label"],
      [`label=${"a".repeat(321)}&label=b`, "#/label/0"],
      ["bogus=1", "#/bogus"],
      ["since=yesterday", "#/since"],
      ["since=2026-01-01", "#/since"],
    ] as const) {
      const refused = await api.call("GET", `/jobs?${query}`);
      expect(refused.status, query).toBe(400);
      if (query.startsWith("since")) {
        expect(refused.body?.detail).toMatch("expected a time as 2026-01-31T12:00:00Z");
      }
      expect(refused.body?.errors, query).toMatchObject([{ pointer, code: "invalid_value" }]);
    }
  });

  // holds: jobs-dry-run
  it("says with dry_run where it would go or why it would wait", async () => {
    const index = api.master.control.appliedIndex;
    const dry = (gpus: number) =>
      api.call("POST", "/jobs?dry_run=true", {
        name: "n",
        command: "x",
        tasks: 1,
        resources: { gpu_count: gpus },
      });
    const fits = await dry(2);
    expect(fits.status).toBe(200);
    expect(fits.body).toMatchObject({ verdict: "would_start", placement: [{ node: "a" }] });
    const never = await dry(8);
    expect(never.body).toMatchObject({ verdict: "unsatisfiable", placement: [] });
    expect(never.body?.never_fits).toMatchObject([{ reason: "InsufficientGpu" }]);
    expect(api.master.control.appliedIndex).toBe(index);
  });

  // holds: jobs-concurrent
  it("accepts 200 concurrent submissions, each with its own id", async () => {
    const jobs = Array.from({ length: 200 }, (_, n) => api.submit({ name: `n${n}` }));
    expect(new Set(await Promise.all(jobs)).size).toBe(200);
    expect(api.master.control.state.jobs.size).toBe(200);
  });
});

// holds: life-failed-once
test("reports a failure once: rank, node, exit code and last lines", async () => {
  const id = await api.submit();
  await api.run(id);
  const exit = { reason: "ExitCode", exitCode: 3, message: "exit code 3", lastLines: ["a", "b"] };
  await api.report(id, "exited", { ...exit, reason: "ExitCode", endedAtMs: 1 });
  const { body } = await api.call("GET", `/jobs/${id}/events`);
  const failed = (body?.data ?? []).filter((event) => event.phase === "FAILED");
  expect(failed).toHaveLength(1);
  expect(failed[0]?.failure).toMatchObject({
    reason: "ExitCode",
    exit_code: 3,
    rank: 0,
    last_lines: ["a", "b"],
    node: "a",
    node_name: "worker-1",
  });
});

test("jobs: one that can never run fails as Unsatisfiable with the numbers", async () => {
  const id = await api.submit({ tasks: 1, resources: { gpu_count: 64 } });
  await api.reached(id, "failed");
  const { body } = await api.call("GET", `/jobs/${id}`);
  expect(body?.failure).toMatchObject({ reason: "Unsatisfiable" });
  expect(body?.failure?.message).toMatch(/InsufficientGpu.*64 GPUs requested/);
});

test("jobs: one fails as DeadlineExceeded at its time limit", async () => {
  const id = await api.submit({ max_runtime_hours: 0.3 / 3_600 });
  await api.run(id);
  await api.reached(id, "failed");
  const { body } = await api.call("GET", `/jobs/${id}`);
  expect(body?.failure).toMatchObject({ reason: "DeadlineExceeded" });
});
