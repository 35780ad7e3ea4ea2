import { MAX_SEALED, SECRET_NAME } from "@heddle/contracts/api/access/secrets";
import { PROJECT_NAME } from "@heddle/contracts/roles";
import { secretsKeyOf } from "../cluster-version.ts";
import { ACCEPTED, type ControlReply, refuse } from "../command.ts";
import { isTerminal } from "../jobs/records/lifecycle.ts";
import type { ControlState } from "../state.ts";
import { type SecretCommand, type SecretRecord, secretKey } from "./records.ts";

const MAX_SECRETS = 10_000;
const MAX_SECRETS_OF_PROJECT = 1_000;

const TYPES: ReadonlySet<string> = new Set<SecretCommand["type"]>([
  "secret.set",
  "secret.remove",
  "secret.reseal",
]);

type SecretState = Pick<ControlState, "secrets" | "cluster" | "jobs" | "specs">;
type CommandOf<T> = Extract<SecretCommand, { readonly type: T }>;

export function isSecretCommand(command: { readonly type: string }): command is SecretCommand {
  return TYPES.has(command.type);
}

/**
 * The only code that changes secrets of projects.
 * - A value is under the key that encrypts the log, so none is stored in a cluster without one.
 * - A secret that a job names exists until the job has ended.
 */
export function changeSecret(state: SecretState, command: SecretCommand): ControlReply {
  switch (command.type) {
    case "secret.set":
      return setSecret(state, command);
    case "secret.remove":
      return removeSecret(state, command);
    case "secret.reseal":
      return resealSecret(state, command);
    default:
      return command satisfies never;
  }
}

function setSecret(state: SecretState, command: CommandOf<"secret.set">): ControlReply {
  const { project, name, sealed, key, atMs } = command;
  const fault = nameFault(command);
  if (fault) return refuse("invalid_value", fault);
  const at = secretKey(command);
  const known = state.secrets.get(at);
  const version = known?.version ?? 0;
  const refusal =
    sealingRefusal(state, command) ?? (known ? undefined : roomRefusal(state, project));
  if (refusal) return refusal;
  const createdAtMs = known?.createdAtMs ?? atMs;
  const record = {
    project,
    name,
    version: version + 1,
    sealed,
    key,
    createdAtMs,
    updatedAtMs: atMs,
  };
  state.secrets.set(at, record satisfies SecretRecord);
  return { ok: true, version: version + 1 };
}

function nameFault({ project, name }: SecretRecordName): string | undefined {
  if (!SECRET_NAME.test(name)) return "a secret's name has 1 to 63 of a-z, 0-9, `.`, `_` and `-`";
  if (PROJECT_NAME.test(project)) return undefined;
  return "a project's name has 1 to 63 of a-z, 0-9, `.`, `_` and `-`";
}

type SecretRecordName = Pick<SecretRecord, "project" | "name">;

function sealingRefusal(
  state: SecretState,
  { sealed, key }: Pick<SecretRecord, "sealed" | "key">,
): ControlReply | undefined {
  if (sealed.length > MAX_SEALED) return refuse("invalid_value", "the value is too long", "value");
  const present = secretsKeyOf(state);
  if (present === key) return undefined;
  const message =
    present === undefined
      ? "the masters have no secrets key"
      : "the masters' secrets key has changed meanwhile; send it again";
  return refuse("conflict", message);
}

function roomRefusal({ secrets }: SecretState, project: string): ControlReply | undefined {
  if (secrets.size >= MAX_SECRETS) {
    return refuse("conflict", `the cluster holds ${MAX_SECRETS} secrets`);
  }
  let own = 0;
  for (const secret of secrets.values()) if (secret.project === project) own++;
  return own < MAX_SECRETS_OF_PROJECT
    ? undefined
    : refuse("conflict", `the project ${project} holds ${MAX_SECRETS_OF_PROJECT} secrets`);
}

function removeSecret(state: SecretState, command: CommandOf<"secret.remove">): ControlReply {
  const { project, name } = command;
  const at = secretKey(command);
  if (!state.secrets.has(at)) return refuse("not_found", noSecret(name));
  const user = userOf(state, project, name);
  if (user !== undefined) {
    return refuse("conflict", `the job ${user} names the secret ${name} and has not ended`);
  }
  state.secrets.delete(at);
  return ACCEPTED;
}

function noSecret(name: string): string {
  return `no secret has the name ${name.slice(0, 63)}`;
}

/** A job that has not ended and names the secret. */
function userOf({ jobs, specs }: SecretState, project: string, name: string): string | undefined {
  for (const job of jobs.values()) {
    if (job.project !== project || isTerminal(job.state)) continue;
    const named = specs.get(job.id)?.secret_variables ?? {};
    if (Object.values(named).includes(name)) return job.id;
  }
  return undefined;
}

function resealSecret(state: SecretState, command: CommandOf<"secret.reseal">): ControlReply {
  const { name, version, sealed, key } = command;
  const at = secretKey(command);
  const known = state.secrets.get(at);
  if (!known) return refuse("not_found", noSecret(name));
  if (known.version !== version) {
    return refuse("conflict", `the secret ${name} has the version ${known.version} by now`);
  }
  const refusal = sealingRefusal(state, command);
  if (refusal) return refusal;
  state.secrets.set(at, { ...known, sealed, key });
  return ACCEPTED;
}
