// holds: start-package

import { execFile, execFileSync } from "node:child_process";
import { randomInt } from "node:crypto";
import { globSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { DrivenProcess } from "../apps/cli/src/testing/driven-process.ts";
import { HostNetwork, whyNoNetworks } from "../apps/master/test/faults/network.ts";
import { Runbook } from "../apps/master/test/runbook.ts";
import { EXTERNAL } from "./bundle.mjs";

// `npm pack` here, `npm install -g` of the tarball into an empty folder, and the use of the result.

const ROOT = join(import.meta.dirname, "..");
const run = promisify(execFile);
const folder = mkdtempSync(join(tmpdir(), "heddle-installed-"));
const prefix = join(folder, "prefix");
/** The machine's own Node and npm, and not those of this workspace. */
const PATH = (process.env["PATH"] ?? "")
  .split(delimiter)
  .filter((path) => !path.includes("node_modules"))
  .join(delimiter);
/** How this machine reaches its registry; nothing else of this process's environment is handed on. */
const REGISTRY_ACCESS = [
  "npm_config_cache",
  "npm_config_registry",
  "npm_config_userconfig",
  "NODE_EXTRA_CA_CERTS",
  "HTTP_PROXY",
  "HTTPS_PROXY",
  "NO_PROXY",
  "http_proxy",
  "https_proxy",
  "no_proxy",
];
const ENV = {
  ...Object.fromEntries(REGISTRY_ACCESS.map((name) => [name, process.env[name]])),
  PATH: `${join(prefix, "bin")}${delimiter}${PATH}`,
  HOME: process.env["HOME"],
  ONNXRUNTIME_NODE_INSTALL: "skip",
};
const NO_REGISTRY = /ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENETUNREACH|ENOTCACHED/;
const COMMANDS = [
  "heddle",
  "heddle-master",
  "heddle-worker",
  "heddle-parameter-server",
  "heddle-operator",
];

let noRegistry: string | undefined;

beforeAll(async () => {
  const empty = join(folder, "empty");
  mkdirSync(empty);
  await run("npm", ["pack", "--pack-destination", folder], { cwd: ROOT, env: ENV });
  const [tarball = ""] = globSync("*.tgz", { cwd: folder });
  const args = ["install", "-g", "--prefix", prefix, "--prefer-offline", join(folder, tarball)];
  try {
    await run("npm", args, { cwd: empty, env: ENV, maxBuffer: 2 ** 24 });
  } catch (error) {
    const { stderr } = error as { stderr: string };
    if (!NO_REGISTRY.test(stderr)) throw error;
    noRegistry = `no registry is reachable: ${NO_REGISTRY.exec(stderr)?.[0]}`;
  }
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Manifest {
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

const manifestOf = (path: string) => JSON.parse(readFileSync(join(ROOT, path), "utf8")) as Manifest;

/** Asks again until there is something. */
async function found<T>(poll: () => T | null | Promise<T | null>): Promise<T> {
  for (;;) {
    const value = await poll();
    if (value !== null) return value;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

const whyOnLoopback = whyNoNetworks();
if (whyOnLoopback !== undefined)
  console.log(`machines are addresses of loopback: ${whyOnLoopback}`);

/** Machines by number, each a network namespace, or an address of loopback where those cannot be made. */
class Machines {
  readonly #network = whyOnLoopback === undefined ? new HostNetwork(["1", "2", "3"]) : undefined;
  readonly #loopback = `127.${randomInt(1, 255)}.${randomInt(1, 255)}`;

  address(number: number): string {
    return this.#network?.address(`${number}`) ?? `${this.#loopback}.${number}`;
  }

  /** The prefix of a command line that runs there. */
  place(number: number): readonly string[] {
    return this.#network?.wrap(`${number}`) ?? [];
  }

  /** The HTTP API is at each machine's own 127.0.0.1, as the page says; on one loopback at the address. */
  httpSettings(number: number): NodeJS.ProcessEnv {
    if (this.#network) return { HEDDLE_ENDPOINT: "http://127.0.0.1:8080" };
    const endpoint = `http://${this.address(1)}:8080`;
    return { HEDDLE_HTTP_HOST: this.address(number), HEDDLE_ENDPOINT: endpoint };
  }

  close(): void {
    this.#network?.close();
  }
}

describe.skipIf(process.platform === "win32")("the installed package", () => {
  it("declares every dependency that is not bundled into it", () => {
    const { dependencies, optionalDependencies } = manifestOf("package.json");
    const needed = globSync("{apps,libs}/*/package.json", { cwd: ROOT })
      .map(manifestOf)
      .flatMap((own) => Object.entries({ ...own.dependencies, ...own.optionalDependencies }))
      .filter(([name]) => EXTERNAL.some((each) => name.startsWith(each)));
    expect(needed).not.toEqual([]);
    const declared = { ...dependencies, ...optionalDependencies };
    expect(declared).toMatchObject(Object.fromEntries(needed));
  });

  it.for(COMMANDS)("has %s --help, on the machine's own Node", (name, { skip }) => {
    skip(noRegistry !== undefined, noRegistry);
    const text = execFileSync(name, ["--help"], { cwd: folder, env: ENV, encoding: "utf8" });
    expect(text).toContain(`Usage: ${name} `);
  });

  it("several machines: the page's commands run as they stand", async (t) => {
    t.skip(noRegistry !== undefined, noRegistry);
    const machines = new Machines();
    const [first, second, third] = [1, 2, 3].map((number) => machines.place(number));
    const data = mkdtempSync(join(folder, "data-"));
    const page = new Runbook("guide/several-machines", folder, {
      ...ENV,
      MACHINE_1: machines.address(1),
      MACHINE_2: machines.address(2),
      MACHINE_3: machines.address(3),
      DATA: data,
      PROFILE: "tiny",
      HEDDLE_WAL_SEGMENT_MIB: "1",
      HEDDLE_DRAIN_MS: "100",
      HOME: folder,
      ...machines.httpSettings(1),
    });
    const others: DrivenProcess[] = [];
    try {
      expect((await page.run(first)).output).toMatch(/^\d+\.\d+\.\d+$/m);
      const { output: printed } = await page.start(first);
      const [, key = ""] = await found(() => /shown once: (\S+)/.exec(printed.text));
      page.env["HEDDLE_API_KEY"] = key;
      expect((await page.run(first)).output).toContain("master-1");
      await page.run(first);
      await page.start(second);
      const [program = "", ...list] = [...(first ?? []), "heddle", "workers", "list"];
      const workers = async () => (await run(program, list, { env: page.env })).stdout;
      await found(async () => /worker-1 +ready/.exec(await workers()));
      expect((await page.run(first)).output).toContain("worker-1");
      await page.run(first);
      const enrollKey = readFileSync(join(data, "enroll-key"), "utf8");
      expect(enrollKey).toMatch(/^hdlj_[0-9a-f]{64}::hdl_live_\w+\n$/);
      // As the page says, the key in place of the token: a second worker's machine.
      const joining = `exec heddle-worker --tls --name worker-2 --data "$DATA/worker-2" --grpc-host "$MACHINE_3" \\
        --masters "$MACHINE_1:8081" --enroll-key-file "$DATA/enroll-key"`;
      const [bash = "", ...flags] = [...(third ?? []), "bash", "-c", joining];
      const worker = new DrivenProcess([bash, ...flags], page.env);
      others.push(worker);
      await worker.printed(/"msg":"ready"/);
      await found(async () => /worker-2 +ready/.exec(await workers()));
      await page.run(first);
      await page.start(third);
      expect((await page.run(first)).output).toContain("FamilyA-1-2B is pulled");
      expect((await page.run(first)).output).toMatch(/tokens in/);
      const { output } = await page.run(first);
      const command = output.split("\n").find((line) => line.startsWith("heddle-master")) ?? "";
      const [shell = "", ...args] = [...(second ?? []), "bash", "-c", `exec ${command}`];
      const env = { ...page.env, ...machines.httpSettings(2) };
      const other = new DrivenProcess([shell, ...args], env);
      others.push(other);
      await other.printed(/"msg":"ready"/);
      page.end();
    } finally {
      for (const { child } of others) child.kill("SIGTERM");
      await Promise.all(others.map((other) => other.end()));
      await page.close();
      machines.close();
    }
  });
});
