import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { parse } from "yaml";

const ROOT = join(import.meta.dirname, "..", "..");

interface Service {
  readonly image: string;
  readonly command: readonly string[];
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
const helpOf = (program: string) => {
  const main = join(ROOT, "packaged/apps", program.replace("heddle-", ""), "dist/main.js");
  return execFileSync(process.execPath, [main, "--help"], { encoding: "utf8" });
};

it("compose: programs get only flags and variables that they have", { timeout: 180_000 }, () => {
  const own = services.filter(([, { command }]) => command[0]?.startsWith("heddle-"));
  expect(own.length).toBeGreaterThan(9);
  const helps = new Map<string, string>();
  for (const [name, { command, environment = {} }] of own) {
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
      if (source.startsWith(".")) expect(readFileSync(join(ROOT, source), "utf8")).not.toBe("");
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
