import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "@heddle/base/testing/free-ports";
import { programOf } from "@heddle/base/testing/programs";
import {
  type Browser,
  type BrowserContextOptions,
  chromium,
  type Locator,
  type Page,
} from "playwright-core";

const require = createRequire(import.meta.url);
const START_MS = 120_000;
const TIMEOUT_MS = 50_000;
/** A sign-in with a provider is 28 exchanges, one after the other: 10 s with a fifth of a core. */
const SIGN_IN_MS = 100_000;
const SAID_CHARS = 4_000;
const NETWORK_CHANGED = "net::ERR_NETWORK_CHANGED";
/** In the texts of errors after which a page asks again. */
const PASSING = ["status of 503", NETWORK_CHANGED];
const PROGRAMS = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** The browser of this machine; HEDDLE_CHROMIUM names another. */
export const CHROMIUM = [process.env["HEDDLE_CHROMIUM"] ?? "", ...PROGRAMS].find(
  (path) => path !== "" && existsSync(path),
);
/** The end of the title of tests that need it. */
export const NEEDS_CHROMIUM = CHROMIUM ? "" : " (skipped: no Chromium; apt-get install chromium)";

/** `heddle up` with the tiny model, and a browser that opens its console. */
export class ConsoleRig {
  readonly folder = mkdtempSync(join(tmpdir(), "heddle-console-"));
  /**
   * Errors that pages have logged or thrown. Not counted are 503 of masters without a leader, which
   * are retried, and errors of this machine's network, to which other tests add interfaces.
   */
  readonly errors: string[] = [];
  /** Writes the `--auth-file` of a cluster at that address. */
  authFileOf: ((url: string) => string) | undefined;
  #output = "";
  #port = 0;
  #cluster: ChildProcess | undefined;
  #browser: Browser | undefined;

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  get key(): string {
    return readFileSync(join(this.folder, "data", "bootstrap-key"), "utf8").trim();
  }

  get output(): string {
    return this.#output;
  }

  async start(...flags: string[]): Promise<void> {
    this.#port = await freePort();
    const authFile = this.authFileOf?.(this.url);
    const place = ["--data", join(this.folder, "data"), "--port", String(this.#port)];
    const args = [programOf("cli"), "up", "--profile", "tiny", ...place, ...flags];
    const cluster = spawn(process.execPath, args, {
      stdio: ["ignore", "pipe", "pipe"],
      env: {
        ...process.env,
        HEDDLE_DRAIN_MS: "300",
        ...(authFile && { HEDDLE_AUTH_FILE: authFile }),
      },
    });
    this.#cluster = cluster;
    for (const stream of [cluster.stdout, cluster.stderr]) {
      stream.on("data", (text: Buffer) => {
        this.#output += text;
      });
    }
    const browser = chromium.launch({
      executablePath: CHROMIUM ?? "",
      // Its sandbox refuses to run as root, as in containers.
      args: process.getuid?.() === 0 ? ["--no-sandbox"] : [],
    });
    const until = Date.now() + START_MS;
    while (!this.#output.includes("Ctrl-C stops everything")) {
      if (cluster.exitCode !== null || Date.now() > until) throw new Error(this.#output);
      await sleep(50);
    }
    this.#browser = await browser;
  }

  /** The address of a master, as the start has printed it. */
  #addressOf(name: string): string {
    const row = new RegExp(`API \\(${name}\\) +(\\S+)/api/v1`).exec(this.#output);
    return row?.[1] ?? this.url;
  }

  /** The leader as a master knows it. */
  async leaderOf(name: string): Promise<string | undefined> {
    const reply = await fetch(`${this.#addressOf(name)}/api/v1/cluster/status`, {
      headers: { authorization: `Bearer ${this.key}` },
    });
    return ((await reply.json()) as { leader: string | null }).leader ?? undefined;
  }

  /** Kills the process of a master; it is restarted. */
  killMaster(name: string): void {
    const directory = join(this.folder, "data", name);
    const pid = readdirSync("/proc").find((each) => {
      if (!/^\d+$/.test(each)) return false;
      try {
        return readFileSync(`/proc/${each}/cmdline`, "latin1").split("\0").includes(directory);
      } catch {
        return false; // It has ended meanwhile.
      }
    });
    if (pid === undefined) throw new Error(`no process of ${name} was found`);
    process.kill(Number(pid), "SIGKILL");
  }

  async call(method: string, path: string, body?: unknown): Promise<Record<string, string>> {
    const reply = await fetch(`${this.url}/api/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${this.key}`, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    if (!reply.ok) throw new Error(await reply.text());
    return (await reply.json()) as Record<string, string>;
  }

  /** A new page at the path, before its sign-in. */
  async open(
    path = "/console/",
    options: BrowserContextOptions = {},
    master = "master-1",
  ): Promise<Page> {
    return this.openAt(`${this.#addressOf(master)}${path}`, options);
  }

  async openAt(url: string, options: BrowserContextOptions = {}): Promise<Page> {
    const context = await this.#browser!.newContext({
      viewport: { width: 1280, height: 800 },
      ...options,
    });
    const page = await context.newPage();
    page.setDefaultTimeout(TIMEOUT_MS);
    page.on("console", (message) => {
      const text = message.text();
      if (message.type() !== "error" || PASSING.some((reason) => text.includes(reason))) return;
      this.errors.push(`${message.location().url}: ${text}`);
    });
    page.on("pageerror", ({ message }) => this.errors.push(message));
    await page.goto(url).catch((error: Error) => {
      if (!error.message.includes(NETWORK_CHANGED)) throw error;
      return page.goto(url);
    });
    return page;
  }

  /** A page at the path, signed in. */
  async signedIn(
    path?: string,
    options?: BrowserContextOptions,
    key = this.key,
    master?: string,
  ): Promise<Page> {
    return enterKey(await this.open(path, options, master), key);
  }

  /** The same of another cluster's console. */
  async signedInAt(url: string, key: string): Promise<Page> {
    return enterKey(await this.openAt(url), key);
  }

  /** Waits until a sign-in has shown it; a failure says what the page and the cluster have said. */
  async shown(shown: Locator): Promise<void> {
    await shown.waitFor({ timeout: SIGN_IN_MS }).catch((cause: unknown) => {
      const said = [shown.page().url(), ...this.errors, this.#output.slice(-SAID_CHARS)];
      throw new Error(`${shown} was not shown:\n${said.join("\n")}`, { cause });
    });
  }

  async close(): Promise<void> {
    await this.#browser?.close();
    const cluster = this.#cluster;
    if (cluster && cluster.exitCode === null) {
      cluster.kill("SIGINT");
      await once(cluster, "exit");
    }
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
  }
}

async function enterKey(page: Page, key: string): Promise<Page> {
  await page.getByLabel("API key").fill(key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("navigation", { name: "Pages" }).waitFor();
  return page;
}

const AXE = CHROMIUM ? readFileSync(require.resolve("axe-core/axe.min.js"), "utf8") : "";

interface Violation {
  readonly id: string;
  readonly nodes: readonly { readonly html: string }[];
}

/** What axe finds against WCAG on the page as it is now. */
export async function violations(page: Page): Promise<string[]> {
  await page.evaluate(AXE);
  const found = (await page.evaluate(
    `axe.run(document, { resultTypes: ["violations"] }).then((all) => all.violations)`,
  )) as Violation[];
  return found.map(({ id, nodes }) => `${id}: ${nodes[0]?.html ?? ""}`);
}
