import type { KeyObject } from "node:crypto";
import { type RetryOptions, retry } from "@heddle/base/async/retry";
import { AppError, toAppError } from "@heddle/base/errors";
import type { Logger } from "@heddle/observability/logger";
import { type CatalogSeed, seedModels, unseededModels } from "../catalog/seed.ts";
import type { RaftControlPlane } from "./raft-control-plane.ts";
import {
  bootstrapAdminKey,
  clusterPepper,
  type EnrollKey,
  firstEnrollKey,
  keepFirst,
  registerEnrollKey,
} from "./secrets.ts";

const BACKOFF = { baseMs: 100, maxMs: 100 };

export interface PrepareOptions {
  readonly bootstrapKeyFile: string | undefined;
  /** With a key by which workers and parameter servers join; undefined for none. */
  readonly enrollKeyFile: string | undefined;
  /** What the shipped models are answered by; undefined leaves them as they are. */
  readonly seed: CatalogSeed | undefined;
  /** The PEM text of what signs the nodes' certificates, which all masters and backups must have. */
  readonly authority: string | undefined;
  /** Ends every wait. */
  readonly signal: AbortSignal;
}

/** What every master needs before it can serve. */
export interface PreparedCluster {
  readonly pepper: KeyObject;
  /** The text of an admin key that was made here and is in no file. */
  readonly shownKey: string | undefined;
}

/**
 * Gives a new cluster its pepper, its first admin key and its shipped models. A new cluster waits
 * for its first leader; one that has a key was prepared before, and is served even without a
 * leader.
 */
export async function prepareCluster(
  control: RaftControlPlane,
  options: PrepareOptions,
  logger: Logger,
): Promise<PreparedCluster> {
  const prepare = async () => {
    try {
      return await prepareOnce(control, options, logger);
    } catch (error) {
      if (control.fault?.code === "member_removed") await control.released;
      throw error;
    }
  };
  // Each step may be made twice, but for a key that is nowhere but in this process.
  const mayRepeat = () => options.bootstrapKeyFile !== undefined && !control.fault;
  return retry(prepare, {
    backoff: BACKOFF,
    signal: options.signal,
    isPassing: (error) => toAppError(error).code === "unavailable" && mayRepeat(),
    onRetry: (error) => {
      const why = toAppError(error).message;
      logger.info({ why }, "the leader changed while the cluster was prepared");
    },
  });
}

async function prepareOnce(
  control: RaftControlPlane,
  options: PrepareOptions,
  logger: Logger,
): Promise<PreparedCluster> {
  const { bootstrapKeyFile, seed, authority, signal } = options;
  const enroll = enrollKeyOf(options);
  // The only master is its own majority, and soon knows all that was committed.
  if (control.status().members.length === 1) await awaitLeader(control, logger, signal);
  const isSeeded = seed === undefined || unseededModels(control.state, seed).length === 0;
  const hasAuthority = authority === undefined || control.secret("authority") !== undefined;
  if (hasAuthority) checkAuthority(control, authority);
  const hasEnroll = enroll === undefined || control.state.keys.has(enroll.id);
  const hasPepper = control.secret("pepper") !== undefined;
  if (hasPepper && control.state.keys.size > 0 && isSeeded && hasAuthority && hasEnroll) {
    return { pepper: await clusterPepper(control), shownKey: undefined };
  }
  await awaitLeader(control, logger, signal);
  if (!hasPepper) await awaitEncryption(control, logger, signal);
  const pepper = await clusterPepper(control);
  if (authority !== undefined) await keepFirst(control, "authority", authority);
  checkAuthority(control, authority);
  // Without a file each master would make a key of its own, so only the leader does.
  const { id, leader } = control.status();
  const shownKey =
    bootstrapKeyFile === undefined && id !== leader
      ? undefined
      : await bootstrapAdminKey(control, pepper, bootstrapKeyFile);
  if (enroll) await registerEnrollKey(control, pepper, enroll);
  if (seed) await seedModels(control, seed, logger);
  return { pepper, shownKey };
}

function enrollKeyOf({ enrollKeyFile, authority }: PrepareOptions): EnrollKey | undefined {
  if (enrollKeyFile === undefined) return undefined;
  if (authority !== undefined) return firstEnrollKey(enrollKeyFile, authority);
  const message = "--enroll-key-file is for nodes with TLS: give --tls, or leave it out.";
  throw new AppError("invalid_value", message);
}

/** Throws `conflict` for a master whose signatures the others would not know. */
function checkAuthority(control: RaftControlPlane, authority: string | undefined): void {
  const kept = control.secret("authority");
  if (authority === undefined || kept === undefined || kept === authority) return;
  const message =
    "The --ca-file of this master is not the cluster's: copy it from another master, or remove it and join with a token.";
  throw new AppError("conflict", message);
}

/** A new cluster's first secrets go into a log that is encrypted already, where there is a key. */
function awaitEncryption(
  control: RaftControlPlane,
  logger: Logger,
  signal: AbortSignal,
): Promise<void> {
  if (!control.takesSecrets) logger.info("waiting until the log is encrypted with the secrets key");
  const check = async () => {
    if (!control.takesSecrets) throw new AppError("unavailable", "the log is not encrypted yet");
  };
  return whileNoFault(control, check, { signal });
}

function awaitLeader(
  control: RaftControlPlane,
  logger: Logger,
  signal: AbortSignal,
): Promise<void> {
  let lastMessage = "";
  const onRetry = (error: unknown) => {
    const { message } = toAppError(error);
    if (message !== lastMessage) logger.info({ why: message }, "waiting for a leader");
    lastMessage = message;
  };
  return whileNoFault(control, () => control.readBarrier(), { signal, onRetry });
}

/** Repeats until it succeeds; a fault of this master is thrown at once. */
function whileNoFault(
  control: RaftControlPlane,
  work: () => Promise<void>,
  how: Pick<RetryOptions, "signal" | "onRetry">,
): Promise<void> {
  const orFault = () =>
    work().catch((error: unknown) => {
      throw control.fault ?? error;
    });
  return retry(orFault, { ...how, backoff: BACKOFF, isPassing: () => !control.fault });
}
