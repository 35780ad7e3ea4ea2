import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { expect, it } from "vitest";
import { parse } from "yaml";
import { installedProgram } from "./kube-tools.ts";

const ROOT = join(import.meta.dirname, "..", "..");

interface Service {
  readonly image: string;
  readonly command?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly volumes?: readonly string[];
  readonly depends_on?: Readonly<Record<string, object>>;
}

const text = readFileSync(join(ROOT, "docker-compose.yml"), "utf8");
const compose = parse(text, { merge: true }) as {
  readonly services: Readonly<Record<string, Service>>;
  readonly volumes: Readonly<Record<string, null>>;
};
const services = Object.entries(compose.services);
const promtool = installedProgram("promtool");
if (!promtool) console.log("promtool is not here: it does not check Prometheus' configuration");
const helpOf = (program: string) => {
  const main = join(ROOT, "packaged/apps", program.replace("heddle-", ""), "dist/main.js");
  return execFileSync(process.execPath, [main, "--help"], { encoding: "utf8" });
};

it("compose: programs get only flags and variables that they have", () => {
  const own = services.filter(([, { command = [] }]) => command[0]?.startsWith("heddle-"));
  expect(own.length).toBeGreaterThan(6);
  const helps = new Map<string, string>();
  for (const [name, { command = [], environment = {} }] of own) {
    const [program = "", ...args] = command;
    const help = helps.get(program) ?? helpOf(program);
    helps.set(program, help);
    const flags = args.filter((arg) => arg.startsWith("--")).map((arg) => arg.split("=")[0]);
    for (const flag of flags) expect(help.match(/--[a-z-]+/g), name).toContain(flag);
    for (const variable of Object.keys(environment)) expect(help, name).toContain(variable);
  }
});

it("compose: volumes, services and files that are named exist, images have tags", () => {
  const names = new Set(Object.keys(compose.services));
  for (const [name, { image, volumes = [], depends_on = {} }] of services) {
    expect(image, name).toMatch(/:[^/]+$/);
    expect(image, name).not.toMatch(/:latest$/);
    for (const other of Object.keys(depends_on)) expect(names, name).toContain(other);
    for (const volume of volumes) {
      const [source = ""] = volume.split(":");
      if (source.startsWith(".")) expect(existsSync(join(ROOT, source)), source).toBe(true);
      else expect(Object.keys(compose.volumes), name).toContain(source);
    }
  }
});

it("compose: Prometheus asks every master and node for its metrics", () => {
  const path = join(ROOT, "deploy/compose/prometheus.yml");
  const { scrape_configs } = parse(readFileSync(path, "utf8")) as {
    readonly scrape_configs: readonly {
      readonly static_configs: readonly { readonly targets: readonly string[] }[];
    }[];
  };
  const targets = scrape_configs.flatMap(({ static_configs }) =>
    static_configs.flatMap((each) => each.targets.map((target) => target.split(":")[0])),
  );
  const nodes = [...Object.keys(compose.services)].filter((name) =>
    /^(master|worker|parameter-server)-\d$/.test(name),
  );
  expect([...targets].sort()).toEqual(nodes.sort());
});

it("compose: Prometheus loads the alerts, and promtool takes its configuration", () => {
  const { volumes = [] } = compose.services["prometheus"] ?? {};
  const folder = mkdtempSync(join(tmpdir(), "heddle-prometheus-"));
  try {
    for (const [source = "", target = ""] of volumes.map((each) => each.split(":"))) {
      if (source.startsWith(".")) copyFileSync(join(ROOT, source), join(folder, basename(target)));
    }
    const config = join(folder, "prometheus.yml");
    const { rule_files = [] } = parse(readFileSync(config, "utf8")) as { rule_files?: string[] };
    expect(rule_files).toEqual(["alerts.yaml"]);
    for (const file of rule_files) expect(existsSync(join(folder, file)), file).toBe(true);
    if (!promtool) return;
    const text = execFileSync(promtool, ["check", "config", config], { encoding: "utf8" });
    expect(text).toMatch(/SUCCESS: 1 rule files found[\s\S]*SUCCESS: \d+ rules found/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

// holds: compose-keys
it("compose: workers have a key to join, masters the administrator's", () => {
  const mounting = (volume: string) =>
    services
      .filter(([, { volumes = [] }]) => volumes.some((each) => each.startsWith(`${volume}:`)))
      .map(([name]) => name)
      .sort();
  const masters = ["master-1", "master-2", "master-3"];
  expect(mounting("secrets")).toEqual(["enroll-key", ...masters, "secrets", "volumes"]);
  const nodes = ["parameter-server-1", "worker-1", "worker-2"];
  expect(mounting("enroll")).toEqual(["enroll-key", ...nodes, "volumes"].sort());
  for (const node of nodes) {
    expect(compose.services[node]?.command).toContain(
      "--enroll-key-file=/run/heddle/enroll/enroll-key",
    );
  }
});

it("compose: Grafana has the dashboards and a password, no anonymous readers", () => {
  const { environment = {}, volumes = [] } = compose.services["grafana"] ?? {};
  expect(environment).toMatchObject({ GF_AUTH_ANONYMOUS_ENABLED: "false" });
  expect(environment["GF_SECURITY_ADMIN_PASSWORD__FILE"]).toBe("/run/grafana/password");
  const provider = join(ROOT, "deploy/compose/grafana/dashboards/heddle.yml");
  const { providers } = parse(readFileSync(provider, "utf8")) as {
    readonly providers: readonly { readonly options: { readonly path: string } }[];
  };
  const mount = volumes.find((each) => each.split(":")[1] === providers[0]?.options.path);
  const files = readdirSync(join(ROOT, mount?.split(":")[0] ?? ""));
  expect(files.filter((name) => name.endsWith(".json"))).toHaveLength(3);
});
