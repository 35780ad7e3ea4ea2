// holds: kube-alerts

import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "@heddle/base/testing/free-ports";
import { programOf } from "@heddle/base/testing/programs";
import { afterAll, beforeAll, describe, expect, it, onTestFinished, test } from "vitest";
import { parse } from "yaml";
import { DrivenProcess } from "../../apps/cli/src/testing/driven-process.ts";
import { CHART, installedProgram } from "./kube-tools.ts";

const ROOT = join(import.meta.dirname, "..", "..");
const ALERTS = join(CHART, "files", "alerts.yaml");
const DASHBOARDS = join(CHART, "files", "dashboards");
/** Names of metrics in an expression; functions and labels have other forms. */
const METRIC = /\b(?:heddle_|vllm:|process_|nodejs_)[a-z0-9_]+/g;

/** Nothing listens there: neither an API server nor a master. */
const NOWHERE = "http://127.0.0.1:9";

interface Rules {
  readonly groups: readonly {
    readonly rules: readonly {
      readonly alert: string;
      readonly expr: string;
      readonly annotations: { readonly runbook: string };
    }[];
  }[];
}

interface Dashboard {
  readonly uid: string;
  readonly panels: readonly {
    readonly title: string;
    readonly targets: readonly { readonly expr: string }[];
  }[];
}

const rules = (parse(readFileSync(ALERTS, "utf8")) as Rules).groups.flatMap((group) => group.rules);
const dashboards = readdirSync(DASHBOARDS).map(
  (name) => JSON.parse(readFileSync(join(DASHBOARDS, name), "utf8")) as Dashboard,
);
const expressions = [
  ...rules.map(({ alert, expr }) => [alert, expr] as const),
  ...dashboards.flatMap(({ uid, panels }) =>
    panels.flatMap(({ title, targets }) =>
      targets.map(({ expr }) => [`${uid}: ${title}`, expr] as const),
    ),
  ),
];

const folder = mkdtempSync(join(tmpdir(), "heddle-metrics-"));
let up: DrivenProcess;
let live: Set<string>;

beforeAll(async () => {
  const port = String(await freePort());
  const flags = ["--port", port, "--profile", "tiny", "--parameter-servers", "0"];
  up = new DrivenProcess(
    [process.execPath, programOf("cli"), "up", "--data", folder, ...flags],
    {},
  );
  await up.printed(/API +(http:\/\/\S+)\/api\/v1/);
  const key = readFileSync(join(folder, "bootstrap-key"), "utf8").trim();
  const [, node = ""] =
    /"metrics":"([^"]+)"/.exec(readFileSync(join(folder, "logs/worker-1.log"), "utf8")) ?? [];
  const texts = await Promise.all(
    [`http://127.0.0.1:${port}/metrics`, node.replace(/(\d)$/, "$1/metrics")].map(async (url) =>
      (await fetch(url, { headers: { authorization: `Bearer ${key}` } })).text(),
    ),
  );
  const types = [...texts.join("\n").matchAll(/^# TYPE (\S+) (\w+)$/gm)];
  live = new Set(
    types.flatMap(([, name = "", type]) =>
      type === "histogram" ? ["_bucket", "_sum", "_count"].map((part) => name + part) : [name],
    ),
  );
});

afterAll(async () => {
  up.child.kill("SIGTERM");
  await up.end();
  rmSync(folder, { recursive: true });
});

describe("alerts and dashboards", () => {
  it("alerts: every metric of a rule or dashboard is one of a running cluster", () => {
    expect(live.size).toBeGreaterThan(100);
    expect(expressions.length).toBeGreaterThan(50);
    for (const [where, expr] of expressions) {
      const names = expr.match(METRIC) ?? [];
      expect(names.length, where).toBeGreaterThan(0);
      expect(
        names.filter((name) => !live.has(name)),
        where,
      ).toEqual([]);
    }
  });

  it("alerts: each has a section of the runbook, and each section an alert", () => {
    const page = readFileSync(join(ROOT, "docs/runbooks/alerts.md"), "utf8");
    const sections = [...page.matchAll(/^## (\w+)$/gm)].map(([, name]) => name);
    expect(sections).toEqual(rules.map(({ alert }) => alert));
    for (const { alert, annotations } of rules)
      expect(annotations.runbook).toBe(`alerts.md#${alert.toLowerCase()}`);
  });

  const promtool = installedProgram("promtool");
  if (!promtool) console.log("promtool is not here: the rules' own tests are skipped");
  it.skipIf(!promtool)("alerts: fire at their values and not before, by promtool", () => {
    const run = (...args: readonly string[]) =>
      execFileSync(promtool ?? "", args, { encoding: "utf8", stdio: "pipe" });
    expect(run("check", "rules", ALERTS)).toContain(`SUCCESS: ${rules.length} rules found`);
    expect(run("test", "rules", join(import.meta.dirname, "alerts.test.yaml"))).toContain(
      "SUCCESS",
    );
    const tested = readFileSync(join(import.meta.dirname, "alerts.test.yaml"), "utf8");
    for (const { alert } of rules) expect(tested).toContain(`alertname: ${alert}`);
  });
});

// holds: kube-operator-metrics
test("operator: its port serves metrics and probes, also without Kubernetes", async () => {
  const own = mkdtempSync(join(tmpdir(), "heddle-operator-metrics-"));
  onTestFinished(() => rmSync(own, { recursive: true }));
  const kubeconfig = join(own, "kubeconfig");
  const clusters = [{ name: "a", cluster: { server: NOWHERE } }];
  const contexts = [{ name: "a", context: { cluster: "a", user: "a" } }];
  const users = [{ name: "a", user: { token: "t" } }];
  const config = { apiVersion: "v1", kind: "Config", clusters, contexts, users };
  writeFileSync(kubeconfig, JSON.stringify({ ...config, "current-context": "a" }));
  const keyFile = join(own, "key");
  writeFileSync(keyFile, "hdl_key");
  const port = await freePort();
  const flags = [`--endpoints=${NOWHERE}`, `--key-file=${keyFile}`, "--namespaces=default"];
  const operator = new DrivenProcess(
    [process.execPath, programOf("operator"), "run", ...flags, `--health-port=${port}`],
    { KUBECONFIG: kubeconfig },
  );
  onTestFinished(async () => {
    operator.child.kill("SIGTERM");
    await operator.end();
  });
  await operator.printed(/"msg":"ready"/);

  const ask = (path: string, method = "GET") =>
    fetch(`http://127.0.0.1:${port}${path}`, { method });
  const text = await (await ask("/metrics")).text();
  for (const kind of ["trainingjobs", "inferencemodels", "queues", "projects"]) {
    const labels = `{kind="${kind}",service="operator"}`;
    expect(text).toContain(`heddle_operator_objects${labels} 0`);
    expect(text).toContain(`heddle_operator_open_objects${labels} 0`);
  }
  expect(text).toMatch(/^heddle_operator_reconciles_total\{.*outcome="failed".*\} 0$/m);
  expect(text).toMatch(/^process_resident_memory_bytes\{service="operator"\} \d+$/m);
  expect((await ask("/healthz")).status).toBe(200);
  expect((await ask("/readyz")).status).toBe(503);
  expect((await ask("/none")).status).toBe(404);
  expect((await ask("/metrics", "POST")).status).toBe(405);
});
