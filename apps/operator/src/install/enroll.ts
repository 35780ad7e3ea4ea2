import { readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { retry } from "@heddle/base/async/retry";
import { AppError } from "@heddle/base/errors";
import { readFlagFile } from "@heddle/base/flag-file";
import { HeddleError } from "@heddle/client/errors";
import { Heddle } from "@heddle/client/heddle";
import { hasGroup } from "@heddle/consensus/member/identity";
import type { Log } from "@heddle/observability/logger";
import { NODE_ROLES, type NodeRole } from "@heddle/pki/node-name";
import { readMaterial } from "@heddle/pki/tls-files";
import { commandFlags } from "./command-flags.ts";

const REQUIRED = ["role", "name", "data", "endpoints", "key-file", "token-file"] as const;
/** An init container that fails is started again by the kubelet, with back-off. */
const DEADLINE_MS = 300_000;
const BACKOFF = { baseMs: 250, maxMs: 2_000 };
const TRY_MS = 3_000;
/** The time for an answer of a loaded master: a removed one that starts with its data ends each time. */
const REMOVED_MS = 15_000;
/** The node starts within this time. */
const TOKEN_SECONDS = 3_600;

/**
 * Writes a join token for a node that has no place in its cluster yet; nothing for others. A master that was
 * removed from its group loses its data, which are of no use to the group, and starts empty.
 */
export async function enroll(args: readonly string[], log: Log): Promise<void> {
  const flags = commandFlags<(typeof REQUIRED)[number] | "if-running-seconds">(args, REQUIRED, [
    "if-running-seconds",
  ]);
  const role = roleOf(flags.role);
  const { name, data } = flags;
  const endpoint = flags.endpoints.split(",").filter((each) => each !== "");
  const wanted = "the file with an administrator's API key";
  const key = readFlagFile("--key-file", flags["key-file"], wanted).trim();
  const enrolled = await isEnrolled(role, data);
  const isRemoved = enrolled && role === "master" && (await wasRemoved(name, endpoint, key));
  if (enrolled && !isRemoved) return log.info({ role, name }, "the node is enrolled already");
  const options = { endpoint, auth_token: key, timeout: TRY_MS, maxRetries: 0 };
  const heddle = new Heddle(options);
  const waitSeconds = flags["if-running-seconds"];
  if (waitSeconds !== "" && !(await isRunning(endpoint, secondsOf(waitSeconds)))) {
    return log.info({ role, name }, "no master answers: the masters form a new group");
  }
  const body = { role, name, ttl_seconds: TOKEN_SECONDS };
  const { token } = await retry(() => heddle.cluster.createJoinToken(body), {
    backoff: BACKOFF,
    deadlineMs: DEADLINE_MS,
    isPassing: (error) => error instanceof HeddleError && (error.status ?? 500) >= 500,
    onRetry: (error) => log.info({ why: (error as Error).message }, "waiting for the masters"),
  });
  if (isRemoved) {
    log.info({ name }, "the master was removed from its group: its data are deleted");
    emptyVolume(data);
  }
  writeFileSync(flags["token-file"], `${token}\n`, { mode: 0o440 });
  log.info({ role, name }, "the node has a join token");
}

function roleOf(text: string): NodeRole {
  const role = NODE_ROLES.find((known) => known === text);
  if (role) return role;
  throw new AppError("invalid_value", `--role takes ${NODE_ROLES.join(", ")}, not ${text}.`);
}

function secondsOf(text: string): number {
  if (/^\d{1,4}$/.test(text)) return Number(text);
  throw new AppError("invalid_value", `--if-running-seconds takes 0 to 9999, not ${text}.`);
}

async function isEnrolled(role: NodeRole, dataDirectory: string): Promise<boolean> {
  if (role === "master") return hasGroup(dataDirectory);
  return (await readMaterial(dataDirectory)) !== undefined;
}

/** Whether a group has no such master any more; false where none answers. */
async function wasRemoved(
  name: string,
  endpoints: readonly string[],
  auth_token: string,
): Promise<boolean> {
  const options = { auth_token, timeout: REMOVED_MS, maxRetries: 0 };
  const asked = endpoints.map(async (endpoint) => {
    const { cluster } = new Heddle({ endpoint, ...options });
    const { masters, quorum } = await cluster.status({ consistency: "strong" });
    return quorum.has_quorum && !masters.some(({ id }) => id === name);
  });
  const answers = await Promise.allSettled(asked);
  return answers.some((answer) => answer.status === "fulfilled" && answer.value);
}

/** Deletes all but what a volume's file system has made. */
function emptyVolume(directory: string): void {
  const names = readdirSync(directory).filter((name) => name !== "lost+found");
  for (const name of names) rmSync(join(directory, name), { recursive: true });
}

/** Whether any of the masters serves HTTP, which one without a group does not. */
async function isRunning(endpoints: readonly string[], seconds: number): Promise<boolean> {
  const masters = endpoints.map((endpoint) => new Heddle({ endpoint, timeout: TRY_MS }));
  const check = () => Promise.any(masters.map(({ cluster }) => cluster.live()));
  try {
    await retry(check, { backoff: BACKOFF, deadlineMs: seconds * 1_000 });
    return true;
  } catch {
    return false;
  }
}
