import { type ChildProcess, spawn } from "node:child_process";
import { cpSync, existsSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";

const ADMIN = "admin";
/** The first start of a distribution compiles it for its settings. */
const START_MS = 270_000;

/** A Keycloak server with an empty in-memory database, from the distribution of HEDDLE_KEYCLOAK. */
export class Keycloak {
  readonly url: string;
  readonly #port: number;
  #child: ChildProcess | undefined;

  constructor(port: number) {
    this.#port = port;
    this.url = `http://127.0.0.1:${port}`;
  }

  static problem(): string | undefined {
    const home = process.env["HEDDLE_KEYCLOAK"];
    if (home && existsSync(join(home, "bin/kc.sh"))) return undefined;
    return "set HEDDLE_KEYCLOAK to an unpacked org.keycloak:keycloak-quarkus-dist";
  }

  get issuer(): string {
    return `${this.url}/realms/heddle`;
  }

  /** Starts it in a copy, with a realm. */
  async start(folder: string, realm: object): Promise<void> {
    const home = join(folder, "keycloak");
    cpSync(process.env["HEDDLE_KEYCLOAK"] ?? "", home, { recursive: true });
    const flags = ["--http-host=127.0.0.1", `--http-port=${this.#port}`, "--db=dev-mem"];
    this.#child = spawn(join(home, "bin/kc.sh"), ["start-dev", "--cache=local", ...flags], {
      env: {
        ...process.env,
        KC_BOOTSTRAP_ADMIN_USERNAME: ADMIN,
        KC_BOOTSTRAP_ADMIN_PASSWORD: ADMIN,
        JAVA_OPTS_KC_HEAP: "-Xms64m -Xmx512m",
      },
      stdio: "ignore",
      detached: true,
    });
    const isUp = () =>
      fetch(`${this.url}/realms/master`).then(
        ({ ok }) => ok,
        () => false,
      );
    await eventually(isUp, "Keycloak answers", START_MS);
    await this.manage("POST", "/admin/realms", realm);
  }

  /** A call of its administrator; the reply's JSON, if any. */
  async manage(method: string, path: string, body?: object): Promise<unknown> {
    const form = { grant_type: "password", client_id: "admin-cli", username: ADMIN };
    const tokens = await fetch(`${this.url}/realms/master/protocol/openid-connect/token`, {
      method: "POST",
      body: new URLSearchParams({ ...form, password: ADMIN }),
    });
    const { access_token: token } = (await tokens.json()) as { readonly access_token: string };
    const reply = await fetch(`${this.url}${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      ...(body && { body: JSON.stringify(body) }),
    });
    const text = await reply.text();
    if (!reply.ok) throw new Error(`${method} ${path}: ${reply.status} ${text}`);
    return text === "" ? undefined : JSON.parse(text);
  }

  async close(): Promise<void> {
    const pid = this.#child?.pid;
    if (pid === undefined || this.#child?.exitCode !== null) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#child.once("exit", () => resolve());
    process.kill(-pid, "SIGKILL");
    await promise;
  }
}
