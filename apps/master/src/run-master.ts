import { once } from "node:events";
import { mkdir } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { AppError, ERROR_TABLE, toAppError } from "@heddle/base/errors";
import { readSecretKeys } from "@heddle/base/secret-keys";
import { registerSecretPaths } from "@heddle/base/secret-paths";
import { lockDirectory } from "@heddle/consensus/member/directory-lock";
import { masterUsage } from "@heddle/contracts/configuration/settings-text";
import { createLogger, type Logger } from "@heddle/observability/logger";
import { startTracing, stopTracing } from "@heddle/observability/tracing/tracing";
import { parseJoinToken } from "@heddle/pki/join-token";
import { closeContext } from "@heddle/rpc/nest/close-context";
import type { INestApplicationContext } from "@nestjs/common";
import { readAuthFile } from "./config/auth-file.ts";
import { type MasterConfig, readConfig, readConfigFile, secretPathsOf } from "./config/config.ts";
import { ConfigReload } from "./config/config-reload.ts";
import { VERSION } from "./config/version.ts";
import { type CatalogSeed, fileSeed, profileSeed } from "./control-plane/catalog/seed.ts";
import { readJoinToken } from "./control-plane/enrollment/master-credentials.ts";
import { witnessesOf } from "./control-plane/event-log/witnesses.ts";
import { startRaftMember } from "./control-plane/raft/raft-member.module.ts";
import { RaftMember, type RaftMemberOptions } from "./control-plane/raft/raft-member.ts";
import { checkBootstrapKey } from "./control-plane/raft/secrets.ts";
import { readServerCertificate } from "./http/connections/server-certificate.ts";
import { masterModule } from "./master.module.ts";
import { goOnWithoutMemory } from "./offline/halted-server.ts";
import { checkNoRecoveryUnderWay } from "./offline/recover-group.ts";
import { startMaster } from "./start-master.ts";

/** Modules that provide NODE_DIRECTORY and INFERENCE_DISPATCH. */
type ClusterModules = Parameters<typeof masterModule>[3];

/**
 * The master's process: reads the configuration, starts all parts and logs `ready`.
 * - Exit code 0 after SIGTERM or SIGINT.
 * - Exit code 1 after a failed start, with the reason in one line on standard error.
 * - Exit code 8 after its removal from the group: it must not restart on its data.
 *
 * Tests script the cluster's modules, lower the highest supported cluster version, and have fewer
 * events in a file.
 */
export async function runMaster(
  args: readonly string[],
  cluster?: ClusterModules,
  forTests: Pick<RaftMemberOptions, "newestVersion" | "eventSegment"> = {},
): Promise<void> {
  if (args.includes("--help")) {
    process.stdout.write(masterUsage());
    return;
  }
  try {
    const config = readConfig(args, process.env, await readConfigFile(args, process.env));
    const logger = createLogger({ service: "master", level: config.logLevel });
    await startTracing(config.otlp);
    registerSecretPaths(secretPathsOf(config), (message) => logger.warn(message));
    const goOn = (error: AppError) => goOnWithoutMemory(error, config, logger);
    const removed = Promise.withResolvers<AppError>();
    const full = Promise.withResolvers<AppError>();
    const group = { onRemoved: removed.resolve, onFull: full.resolve, ...forTests };
    const running = await openMaster(config, cluster, logger, group).catch((error) =>
      isFull(error) ? goOn(error) : Promise.reject(error),
    );
    if (!running) return;
    endOnSignals(running);
    await ConfigReload.onSignal(config, { args, env: process.env }, running.logger);
    endWhenRemoved(running, removed.promise);
    void full.promise.then((error) => running.close().then(() => goOn(error)));
    // Last, because its reader may send a signal at once.
    running.logger.info({ ...running.addresses, version: VERSION }, "ready");
  } catch (thrown) {
    process.stderr.write(`heddle master could not start: ${await startFailure(thrown, args)}\n`);
    process.exit(exitCodeOf(thrown));
  }
}

interface GroupEvents
  extends Pick<RaftMemberOptions, "onRemoved" | "newestVersion" | "eventSegment"> {
  /** Called when the state outgrows the memory of a running master. */
  readonly onFull: (error: AppError) => void;
}

interface Running {
  readonly logger: Logger;
  readonly addresses: { readonly http: string; readonly grpc: string };
  close(): Promise<void>;
}

/** True if the state does not fit this master's memory. */
function isFull(error: unknown): boolean {
  return toAppError(error).code === "insufficient_memory";
}

/** Locks the data directory, takes part in the group and starts the parts on it. */
async function openMaster(
  config: MasterConfig,
  cluster: ClusterModules,
  logger: Logger,
  { onFull, ...group }: GroupEvents,
): Promise<Running> {
  checkNoRecoveryUnderWay(config.dataDirectory);
  // Checks all inputs before it takes part in a group.
  checkBootstrapKey(config.bootstrapKeyFile);
  if (config.authFile !== undefined) readAuthFile(config.authFile);
  witnessesOf(config.eventWitnesses);
  if (config.httpTls) readServerCertificate(config.httpTls);
  const joinToken = readJoinToken(config.joinTokenFile);
  if (joinToken !== undefined) parseJoinToken(joinToken);
  await checkPort(config.httpHost, config.httpPort, "--http-port");
  await checkPort(config.grpcHost, config.raftPort, "--raft-port");
  const keys = readSecretKeys(config.secretsKeyFile, process.env);
  const seed = seedOf(config);
  const directory = join(config.dataDirectory, "control");
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const lock = await lockDirectory(directory);
  const context = await startRaftMember({
    config,
    directory,
    lock,
    keys,
    seed,
    logger,
    ...group,
    onFatal: (error) => {
      if (isFull(error)) return onFull(error);
      logger.fatal({ err: error }, error.message);
      process.exit(1);
    },
  }).catch(async (error: unknown) => {
    await lock.close();
    throw error;
  });
  try {
    return await startOn(context, config, cluster, logger);
  } catch (error) {
    await closeContext(context);
    throw error;
  }
}

/** Opens the control plane of the member and starts the modules on it. */
async function startOn(
  context: INestApplicationContext,
  config: MasterConfig,
  cluster: ClusterModules,
  logger: Logger,
): Promise<Running> {
  const member = context.get(RaftMember);
  const { shownKey, ...open } = await member.open();
  const { server, address: grpc } = member.server;
  const master = await startMaster(masterModule(config, logger, open, cluster), config, server);
  if (shownKey) process.stderr.write(`The administrator's API key, shown once: ${shownKey}\n`);
  const close = async (): Promise<void> => {
    await master.close();
    await closeContext(context);
    await stopTracing();
  };
  return { logger, addresses: { http: master.url, grpc }, close };
}

function seedOf({ profile, modelFile }: MasterConfig): CatalogSeed | undefined {
  if (modelFile !== undefined) return fileSeed(modelFile);
  return profile && profileSeed(profile);
}

/** Rejects if another process listens there; port 0 is any free one. */
async function checkPort(host: string, port: number, option: string): Promise<void> {
  if (port === 0) return;
  const probe = createServer();
  try {
    await once(probe.listen(port, host), "listening");
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "EADDRINUSE") throw cause;
    const message = `the address ${host}:${port} is in use. Stop what listens there, or choose another ${option}.`;
    throw new AppError("unavailable", message, { cause });
  }
  probe.close();
  await once(probe, "close");
}

/** The first signal drains; a second one ends at once. */
function endOnSignals({ logger, close }: Running): void {
  let ending = false;
  const onSignal = (signal: NodeJS.Signals): void => {
    if (ending) process.exit(130);
    ending = true;
    logger.info({ signal }, "shutting down");
    close().then(
      () => process.exit(0),
      (error: unknown) => {
        logger.fatal({ err: error }, "the shutdown failed");
        process.exit(1);
      },
    );
  };
  process.on("SIGTERM", onSignal);
  process.on("SIGINT", onSignal);
}

/** Drains its calls, as after a signal. */
function endWhenRemoved({ logger, close }: Running, removed: Promise<AppError>): void {
  removed
    .then(async (error) => {
      logger.error({ code: error.code }, error.message);
      await close();
      process.exit(exitCodeOf(error));
    })
    .catch((error: unknown) => {
      logger.fatal({ err: error }, "the shutdown failed");
      process.exit(1);
    });
}

function exitCodeOf(thrown: unknown): number {
  const { code } = toAppError(thrown);
  return code === "member_removed" ? ERROR_TABLE[code].exit : 1;
}

async function startFailure(thrown: unknown, args: readonly string[]): Promise<string> {
  if (isDiskFull(thrown)) {
    const file = await readConfigFile(args, process.env);
    const { dataDirectory, walSegmentBytes } = readConfig(args, process.env, file);
    return `the disk of its data directory ${dataDirectory} is full (ENOSPC); a start needs ${walSegmentBytes / 2 ** 20} MiB there for a file of the log, and some more. Make room there, or choose another --data.`;
  }
  const { code, address, port } = (thrown ?? {}) as Partial<
    NodeJS.ErrnoException & { address: string; port: number }
  >;
  if (code === "EADDRINUSE") {
    return `the address ${address}:${port} is in use. Stop what listens there, or choose another --http-port.`;
  }
  if (code === "EACCES") return `permission denied (${toAppError(thrown).message}).`;
  return toAppError(thrown).message;
}

/** Errors of the consensus thread arrive as messages without their code. */
function isDiskFull(thrown: unknown): boolean {
  for (let error = thrown; error instanceof Error; error = error.cause) {
    if (error.message.startsWith("ENOSPC")) return true;
  }
  return false;
}
