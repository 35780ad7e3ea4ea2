import { once } from "node:events";
import { mkdir } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { AppError, ERROR_TABLE, toAppError } from "@heddle/base/errors";
import { readSecretKeys, type SecretKeys } from "@heddle/base/secret-keys";
import { registerSecretPaths } from "@heddle/base/secret-paths";
import { lockDirectory } from "@heddle/consensus/member/directory-lock";
import type { RunningCredentials } from "@heddle/node-agent/node-credentials";
import { INSECURE_NODES } from "@heddle/node-agent/own-credentials";
import { createLogger, type Logger } from "@heddle/observability/logger";
import { createRegistry } from "@heddle/observability/registry";
import { authorityHash, type CertificateAuthority } from "@heddle/pki/certificate-authority";
import { parseJoinToken } from "@heddle/pki/join-token";
import { formatAuthority } from "@heddle/pki/tls-files";
import { type BoundServer, bindServer, closeServer } from "@heddle/rpc/server";
import type { Registry } from "prom-client";
import { type MasterConfig, readConfig, secretPathsOf, usageText } from "./config/config.ts";
import { VERSION } from "./config/version.ts";
import { prepareCluster } from "./control-plane/raft/prepare-cluster.ts";
import {
  RaftControlPlane,
  type RaftControlPlaneOptions,
} from "./control-plane/raft/raft-control-plane.ts";
import { checkBootstrapKey, readOrCreateClusterToken } from "./control-plane/raft/secrets.ts";
import { stateRoomMib } from "./control-plane/state-memory.ts";
import { keepStateRoom } from "./control-plane/state-room.ts";
import { DEFAULT_HTTP_LIMITS } from "./http/fastify-server.ts";
import { UsageLedger } from "./inference/usage-ledger.ts";
import { createMaster, type Master } from "./master.ts";
import { exposeDispatchMetrics } from "./metrics/dispatch-metrics.ts";
import { type CatalogSeed, fileSeed, profileSeed } from "./models/seed.ts";
import type { ClusterLink, ClusterLinkOptions } from "./nodes/cluster-link.ts";
import { EnrollmentService } from "./nodes/enrollment-service.ts";
import { openMasterTls, readJoinToken } from "./nodes/master-credentials.ts";
import { goOnWithoutMemory } from "./offline/halted-server.ts";
import { checkNoRecoveryUnderWay } from "./offline/recover-group.ts";
import { startOrchestration } from "./orchestration/orchestration.ts";
import type { Scheduling } from "./orchestration/scheduling/scheduling.ts";
import { ProgressBook } from "./orchestration/tasks/progress-book.ts";
import { startTaskControllers } from "./orchestration/tasks/task-controllers.ts";
import type { ArtifactReader } from "./task-output/artifact-reader.ts";
import type { LogReader } from "./task-output/log-reader.ts";

/** `startClusterLink`, or another link with the same ports. */
export type StartClusterLink = (options: ClusterLinkOptions) => ClusterLink;

/**
 * The master's process: reads the configuration, starts all parts and logs `ready`.
 * - Exit code 0 after SIGTERM or SIGINT.
 * - Exit code 1 after a failed start, with the reason in one line on standard error.
 * - Exit code 8 after its removal from the group: it must not restart on its data.
 *
 * `newestVersion` is the highest supported cluster version, which upgrade tests lower.
 */
export async function runMaster(
  args: readonly string[],
  startClusterLink: StartClusterLink,
  newestVersion?: number,
): Promise<void> {
  if (args.includes("--help")) {
    process.stdout.write(usageText());
    return;
  }
  try {
    const config = readConfig(args, process.env);
    const logger = createLogger({ service: "master", level: config.logLevel });
    registerSecretPaths(secretPathsOf(config), (message) => logger.warn(message));
    const goOn = (error: AppError) => goOnWithoutMemory(error, config, logger);
    const removed = Promise.withResolvers<AppError>();
    const full = Promise.withResolvers<AppError>();
    const group = { onRemoved: removed.resolve, onFull: full.resolve, newestVersion };
    const running = await startMaster(config, startClusterLink, logger, group).catch((error) =>
      isFull(error) ? goOn(error) : Promise.reject(error),
    );
    if (!running) return;
    endOnSignals(running);
    endWhenRemoved(running, removed.promise);
    void full.promise.then((error) => running.close().then(() => goOn(error)));
    // Last, because its reader may send a signal at once.
    running.logger.info({ ...running.addresses, version: VERSION }, "ready");
  } catch (thrown) {
    process.stderr.write(`heddle master could not start: ${startFailure(thrown, args)}\n`);
    process.exit(exitCodeOf(thrown));
  }
}

interface GroupEvents extends Pick<RaftControlPlaneOptions, "onRemoved" | "newestVersion"> {
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

/** Locks the data directory and starts the parts on it. */
async function startMaster(
  config: MasterConfig,
  startClusterLink: StartClusterLink,
  logger: Logger,
  group: GroupEvents,
): Promise<Running> {
  checkNoRecoveryUnderWay(config.dataDirectory);
  // Checks all inputs before it takes part in a group.
  checkBootstrapKey(config.bootstrapKeyFile);
  const joinToken = readJoinToken(config.joinTokenFile);
  if (joinToken !== undefined) parseJoinToken(joinToken);
  await checkPort(config.httpHost, config.httpPort, "--http-port");
  await checkPort(config.grpcHost, config.raftPort, "--raft-port");
  const keys = readSecretKeys(config.secretsKeyFile, process.env);
  const seed = seedOf(config);
  const directory = join(config.dataDirectory, "control");
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const lock = await lockDirectory(directory);
  const ground = { directory, lock, logger, seed, keys, ...group };
  try {
    return await startParts(config, startClusterLink, ground);
  } catch (error) {
    await lock.close();
    throw error;
  }
}

interface Ground
  extends Pick<RaftControlPlaneOptions, "directory" | "lock" | "logger">,
    GroupEvents {
  readonly seed: CatalogSeed | undefined;
  readonly keys: SecretKeys;
}

/** Starts the parts in order of dependency; `close` stops them in reverse order. */
async function startParts(
  config: MasterConfig,
  startClusterLink: StartClusterLink,
  { seed, ...ground }: Ground,
): Promise<Running> {
  const { logger, keys } = ground;
  const registry = createRegistry("master");
  const { credentials, authority } = await openCredentials(config, keys, logger);
  const { grpcHost: host, grpcPort: port, masterId, maxQueued, maxWaitMs } = config;
  const server = await bindServer({ host, port, credentials });
  const enrollment = authority && enroll(config, server, { credentials, authority }, logger);
  const control = await openControl(config, { ...ground, server, credentials }).catch(
    async (error: unknown) => {
      await closeServer(server.server, 0);
      throw error;
    },
  );
  enrollment?.serve(control);
  const prepared = {
    ...{ bootstrapKeyFile: config.bootstrapKeyFile, seed },
    authority: authority && formatAuthority(authority),
  };
  const { pepper, shownKey } = await prepareCluster(control, prepared, logger);
  const progress = new ProgressBook();
  const speaker = { ...credentials, cluster: control.status().cluster };
  const link = startClusterLink({
    ...{ server, masterId, control, progress, logger, maxQueued, maxWaitMs },
    credentials: speaker,
  });
  const orchestration = startOrchestration({
    ...{ control, directory: link.directory, logger, times: config.jobTimes },
  });
  const tasks = startTaskControllers({
    ...config,
    ...{ server: server.server, credentials: speaker, control, logger, progress, pepper },
    ...{ directory: link.directory, leaseMs: config.jobTimes.leaseMs },
  });
  exposeDispatchMetrics(registry, () => link.stats());
  const ledger = new UsageLedger(join(config.dataDirectory, "usage"), logger);
  const master = await listen(config, {
    ...{ control, link, progress, pepper, logger, registry, ledger },
    ...{ scheduling: orchestration.scheduling, logs: tasks.logs, artifacts: tasks.artifacts },
    authorityHash: authority && authorityHash(authority.certificate),
  });
  if (shownKey) process.stderr.write(`The administrator's API key, shown once: ${shownKey}\n`);
  const roomWatch = new AbortController();
  void keepStateRoom(control, stateRoomMib(), logger, roomWatch.signal);
  const close = async (): Promise<void> => {
    roomWatch.abort();
    await master.close(config.drainMs);
    orchestration.close();
    await tasks.close();
    link.close();
    await ledger.close();
    await control.close();
    await closeServer(server.server, 1_000);
    credentials.close();
  };
  return { logger, addresses: { http: master.url, grpc: server.address }, close };
}

function seedOf({ profile, modelFile }: MasterConfig): CatalogSeed | undefined {
  if (modelFile !== undefined) return fileSeed(modelFile);
  return profile && profileSeed(profile);
}

interface OwnCredentials {
  readonly credentials: RunningCredentials;
  readonly authority: CertificateAuthority | undefined;
}

/** With TLS this master's certificate, otherwise the nodes' shared token. */
async function openCredentials(
  config: MasterConfig,
  keys: SecretKeys,
  log: Logger,
): Promise<OwnCredentials> {
  const { dataDirectory, masterId: name, authorityFile, joinTokenFile, peers } = config;
  if (config.isExposed) log.warn(INSECURE_NODES);
  if (!config.tls) {
    const clusterToken = await readOrCreateClusterToken(config.clusterTokenFile);
    return { credentials: plainCredentials(name, clusterToken), authority: undefined };
  }
  const others = [...peers].flatMap(([peer, address]) => (peer === name ? [] : [address]));
  const { certificateLifetimeMs } = config;
  const own = { dataDirectory, name, authorityFile, joinTokenFile, certificateLifetimeMs, keys };
  return openMasterTls({ ...own, others, log });
}

function plainCredentials(name: string, clusterToken: string): RunningCredentials {
  return { clusterToken, node: { role: "master", name }, close: () => {} };
}

function enroll(
  { certificateLifetimeMs }: MasterConfig,
  { server }: BoundServer,
  own: OwnCredentials & { readonly authority: CertificateAuthority },
  log: Logger,
): EnrollmentService {
  const { authority } = own;
  if (!own.credentials.tls) throw new Error("there is an authority, but no certificate");
  const { tls } = own.credentials;
  return new EnrollmentService(server, {
    ...{ authority, tls, certificateLifetimeMs, log },
  });
}

function openControl(
  config: MasterConfig,
  parts: Omit<Ground, "seed"> & Pick<RaftControlPlaneOptions, "server" | "credentials">,
): Promise<RaftControlPlane> {
  const { masterId: name, peers, walSegmentBytes, snapshotEntries, raftPort } = config;
  return RaftControlPlane.open({
    ...parts,
    name,
    peers: peers.size > 0 ? peers : new Map([[name, parts.server.address]]),
    segmentBytes: walSegmentBytes,
    snapshotEntries,
    raftPort,
    // Read again while this master waits to be added.
    joinToken: () => readJoinToken(config.joinTokenFile),
    onFatal: (error) => {
      if (isFull(error)) return parts.onFull(error);
      parts.logger.fatal({ err: error }, error.message);
      process.exit(1);
    },
  });
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

interface Started {
  readonly control: RaftControlPlane;
  readonly link: ClusterLink;
  readonly scheduling: Scheduling;
  readonly progress: ProgressBook;
  readonly logs: LogReader;
  readonly artifacts: ArtifactReader;
  readonly pepper: Uint8Array;
  readonly logger: Logger;
  readonly registry: Registry;
  readonly ledger: UsageLedger;
  readonly authorityHash: string | undefined;
}

function listen(config: MasterConfig, started: Started): Promise<Master> {
  const { control, link, pepper, logger, registry, ledger, authorityHash } = started;
  const { scheduling, progress, logs, artifacts } = started;
  return createMaster({
    control,
    dispatch: link.dispatch,
    directory: link.directory,
    scheduling,
    progress,
    logs,
    artifacts,
    pepper,
    logger,
    registry,
    usageSink: (row) => ledger.record(row),
    authorityHash,
    queued: () => link.stats().queued,
    masterId: config.masterId,
    version: VERSION,
    dataDirectory: config.dataDirectory,
    host: config.httpHost,
    port: config.httpPort,
    http: { ...DEFAULT_HTTP_LIMITS, ...httpLimitsOf(config) },
    maxCalls: config.maxCalls,
    deadlineMs: config.deadlineMs,
  });
}

function httpLimitsOf(config: MasterConfig) {
  const { maxBodyBytes, maxReadingBytes, maxConnections, corsOrigins } = config;
  return { maxBodyBytes, maxReadingBytes, maxConnections, corsOrigins };
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

function startFailure(thrown: unknown, args: readonly string[]): string {
  if (isDiskFull(thrown)) {
    const { dataDirectory, walSegmentBytes } = readConfig(args, process.env);
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
