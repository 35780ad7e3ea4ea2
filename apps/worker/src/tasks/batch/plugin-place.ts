import { AppError } from "@heddle/base/errors";
import type { PlaceOffer } from "@heddle/node-agent/machine";
import type { HostedPlugin } from "@heddle/plugin-kit/host/hosted-plugin";
import type { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import type {
  ExecutorJob,
  ExecutorJobState,
  ExecutorOffer,
  ExecutorQuestion,
} from "@heddle/plugin-kit/points/executors";
import { type BatchPlace, type BatchSystem, placeOffer } from "./batch-place.ts";

/** For one answer: the outer system may be far, and busy. */
const CALL_MS = 60_000;
/** The worker's start waits for it. */
const OFFER_MS = 10_000;

/** An executor of a plugin, in its process. */
class HostedExecutor implements BatchSystem {
  readonly #title: string;
  readonly #plugins: PluginSet;

  constructor(title: string, plugins: PluginSet) {
    this.#title = title;
    this.#plugins = plugins;
  }

  async offer(): Promise<ExecutorOffer> {
    return (await this.#call({ ask: "offer" })) as ExecutorOffer;
  }

  async submit(job: ExecutorJob): Promise<void> {
    await this.#call({ ask: "submit", job });
  }

  async list(prefix: string): Promise<readonly ExecutorJobState[]> {
    return (await this.#call({ ask: "list", prefix })) as readonly ExecutorJobState[];
  }

  async cancel(job: string): Promise<void> {
    await this.#call({ ask: "cancel", job });
  }

  async #call(question: ExecutorQuestion): Promise<unknown> {
    const { plugin, name } = find(this.#title, this.#plugins);
    const call = { point: "executor", name, question } as const;
    const timeoutMs = question.ask === "offer" ? OFFER_MS : CALL_MS;
    return plugin.call(call, { timeoutMs });
  }
}

/** The executor `PLUGIN.NAME` of a worker's plugins. It may fail, and is then asked again. */
export class PluginPlace implements BatchPlace {
  readonly title: string;
  readonly folder = "batch";
  readonly system: HostedExecutor;
  readonly #plugins: PluginSet;
  offer: PlaceOffer | undefined;
  fault = "";

  constructor(title: string, plugins: PluginSet) {
    this.title = title;
    this.#plugins = plugins;
    this.system = new HostedExecutor(title, plugins);
  }

  /**
   * Asks for its offer; again also a plugin that did not start. Rejects with `invalid_value` where no
   * plugin can have the executor.
   */
  async ask(): Promise<void> {
    try {
      if (this.fault !== "") await this.#plugins.startRefused();
      const { cpus, memoryBytes, gpus = [] } = await this.system.offer();
      this.offer = placeOffer(`plugin-${this.title}`, { cpus, memoryBytes, gpus });
      this.fault = "";
    } catch (error) {
      if (error instanceof AppError && error.code === "invalid_value") throw error;
      this.fault = `the executor ${this.title} makes no offer: ${(error as Error).message}`;
      throw new AppError("unavailable", this.fault, { cause: error });
    }
  }
}

function find(title: string, plugins: PluginSet): { plugin: HostedPlugin; name: string } {
  const known: string[] = [];
  for (const plugin of plugins.loaded) {
    for (const name of plugin.description?.executors ?? []) {
      if (`${plugin.name}.${name}` === title) return { plugin, name };
      known.push(`${plugin.name}.${name}`);
    }
  }
  const refused = plugins
    .statuses()
    .flatMap(({ from, reason }) => (reason === undefined ? [] : [`${from}: ${reason}`]));
  const have = known.length > 0 ? `they have ${known.join(", ")}` : "they have none";
  const message = `the plugins have no executor ${title}: ${[have, ...refused].join("; ")}`;
  throw new AppError(refused.length > 0 ? "unavailable" : "invalid_value", message);
}
