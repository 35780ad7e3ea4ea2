import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "@heddle/base/testing/free-ports";
import { programOf } from "@heddle/base/testing/programs";
import { Heddle } from "@heddle/client/heddle";
import { DrivenProcess } from "../../../apps/cli/src/testing/driven-process.ts";
import { define } from "../kube-cluster.ts";
import { CHART } from "../kube-tools.ts";

/** The chart's. */
export const DEFINITIONS = join(CHART, "files", "crds");

/** A cluster on this machine, whose operators carry out objects of the tests' Kubernetes. */
export class LocalHeddle {
  readonly folder: string;
  readonly heddle: Heddle;
  readonly #endpoint: string;
  readonly #up: DrivenProcess;

  private constructor(folder: string, endpoint: string, up: DrivenProcess) {
    this.folder = folder;
    this.#endpoint = endpoint;
    this.#up = up;
    const key = readFileSync(join(folder, "bootstrap-key"), "utf8").trim();
    this.heddle = new Heddle({ endpoint, auth_token: key });
  }

  /** Also brings the chart's definitions to Kubernetes. */
  static async start(): Promise<LocalHeddle> {
    const folder = mkdtempSync(join(tmpdir(), "heddle-operator-"));
    const port = String(await freePort());
    const flags = ["--port", port, "--profile", "tiny", "--parameter-servers", "0"];
    const args = ["--data", folder, ...flags];
    const up = new DrivenProcess([process.execPath, programOf("cli"), "up", ...args], {});
    const endpoint = (await up.printed(/API +(http:\/\/\S+)\/api\/v1/))[1] ?? "";
    await define(DEFINITIONS);
    return new LocalHeddle(folder, endpoint, up);
  }

  /** A ready operator of these namespaces, with further flags. */
  async operator(
    namespaces: readonly string[],
    more: readonly string[],
    kubeconfig = process.env["HEDDLE_KUBECONFIG"],
  ): Promise<DrivenProcess> {
    const flags = {
      endpoints: this.#endpoint,
      "key-file": join(this.folder, "bootstrap-key"),
      namespaces: namespaces.join(","),
      "health-port": "0",
    };
    const args = Object.entries(flags).map(([name, value]) => `--${name}=${value}`);
    const program = [process.execPath, programOf("operator"), "run", ...args, ...more] as const;
    const started = new DrivenProcess(program, { KUBECONFIG: kubeconfig });
    await started.printed(/"msg":"ready"/);
    return started;
  }

  async end(): Promise<void> {
    this.#up.child.kill("SIGTERM");
    await this.#up.end();
    rmSync(this.folder, { recursive: true });
  }
}
