import { AppError } from "@heddle/base/errors";
import type { HostedPlugin } from "@heddle/plugin-kit/host/hosted-plugin";
import type { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import type {
  ExecutorJob,
  ExecutorJobState,
  ExecutorOffer,
  ExecutorQuestion,
  PluginExecutor,
} from "@heddle/plugin-kit/points/executors";
import { type BatchPlace, placeOffer } from "./batch-place.ts";

/** For one answer: the outer system may be far, and busy. */
const CALL_MS = 60_000;
/** At the worker's start. */
const OFFER_MS = 10_000;

/** An executor of a plugin, in its process. */
class HostedExecutor implements PluginExecutor {
  readonly name: string;
  readonly #plugin: HostedPlugin;

  constructor(plugin: HostedPlugin, name: string) {
    this.#plugin = plugin;
    this.name = name;
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

  #call(question: ExecutorQuestion): Promise<unknown> {
    const call = { point: "executor", name: this.name, question } as const;
    const timeoutMs = question.ask === "offer" ? OFFER_MS : CALL_MS;
    return this.#plugin.call(call, { timeoutMs });
  }
}

/** The executor `PLUGIN.NAME` of a worker's plugins. Rejects where it cannot be used. */
export async function pluginPlace(title: string, plugins: PluginSet): Promise<BatchPlace> {
  const system = find(title, plugins);
  const {
    cpus,
    memoryBytes,
    gpus = [],
  } = await system.offer().catch((cause: Error) => {
    throw new AppError("unavailable", `its offer: ${cause.message}`, { cause });
  });
  const offer = placeOffer(`plugin-${title}`, { cpus, memoryBytes, gpus });
  return { title, folder: "batch", offer, system };
}

function find(title: string, plugins: PluginSet): HostedExecutor {
  const known: string[] = [];
  for (const plugin of plugins.loaded) {
    for (const name of plugin.description?.executors ?? []) {
      if (`${plugin.name}.${name}` === title) return new HostedExecutor(plugin, name);
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
