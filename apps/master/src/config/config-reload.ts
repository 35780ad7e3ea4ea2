import { isDeepStrictEqual } from "node:util";
import { SerialQueue } from "@heddle/base/async/serial-queue";
import { toAppError } from "@heddle/base/errors";
import {
  isLiveSetting,
  type LiveSetting,
  MASTER_SETTING_NAMES,
  type MasterSettings,
} from "@heddle/contracts/configuration/master-settings";
import type { Logger } from "@heddle/observability/logger";
import { type MasterConfig, readAllSettings, readConfig, readConfigFile } from "./config.ts";

/** What settings that may change while the master runs set: it is read at each use. */
const LIVE_FIELDS = {
  cors_origins: "corsOrigins",
  drain_ms: "drainMs",
  log_level: "logLevel",
  max_calls: "maxCalls",
  max_queued: "maxQueued",
  max_wait_ms: "maxWaitMs",
  moderation_judge: "moderationJudge",
  webhook_hosts: "webhookHosts",
} as const satisfies Record<LiveSetting, keyof MasterConfig>;

/** Where a process has its settings from. */
interface Sources {
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
}

/** Reads the configuration file again, and changes what may change in the running master. */
export class ConfigReload {
  readonly #config: MasterConfig;
  readonly #sources: Sources;
  readonly #logger: Logger;
  readonly #queue = new SerialQueue();
  /** The settings that the master runs with. */
  #used: MasterSettings;

  private constructor(
    config: MasterConfig,
    sources: Sources,
    used: MasterSettings,
    logger: Logger,
  ) {
    this.#config = config;
    this.#sources = sources;
    this.#used = used;
    this.#logger = logger;
  }

  /**
   * Reloads on SIGHUP, if there is a configuration file; without one the signal keeps its meaning.
   * The config is the object that all parts have; it was read from these sources.
   */
  static async onSignal(config: MasterConfig, sources: Sources, logger: Logger): Promise<void> {
    const { args, env } = sources;
    const file = await readConfigFile(args, env);
    if (!file) return;
    const reload = new ConfigReload(config, sources, readAllSettings(args, env, file), logger);
    process.on("SIGHUP", () => void reload.run());
  }

  /** A file with a fault changes nothing. */
  run(): Promise<void> {
    return this.#queue.run(async () => {
      try {
        await this.#reload();
      } catch (error) {
        const fields = { error: toAppError(error).message };
        this.#logger.error(fields, "the configuration was not reloaded");
      }
    });
  }

  async #reload(): Promise<void> {
    const { args, env } = this.#sources;
    const file = await readConfigFile(args, env);
    const next = readConfig(args, env, file);
    const settings = readAllSettings(args, env, file);
    const changed = MASTER_SETTING_NAMES.filter(
      (name) => !isDeepStrictEqual(settings[name], this.#used[name]),
    );
    const live = changed.filter(isLiveSetting);
    for (const name of live) {
      const field = LIVE_FIELDS[name];
      Object.assign(this.#config, { [field]: next[field] });
      this.#used = { ...this.#used, [name]: settings[name] };
    }
    const fields = { changed: live, needs_restart: changed.filter((name) => !isLiveSetting(name)) };
    this.#logger.info(fields, "the configuration was reloaded");
    this.#logger.level = this.#config.logLevel;
  }
}
