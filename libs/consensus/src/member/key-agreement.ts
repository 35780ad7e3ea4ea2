import { AppError } from "@heddle/base/errors";
import type { SecretKeys } from "@heddle/base/secret-keys";
import type { Log } from "@heddle/observability/logger";
import type { Step } from "./agreement.ts";

interface KeyAgreementParts {
  readonly keys: SecretKeys;
  /** The fields of the replicated state. */
  readonly control: { readonly version: number; readonly secretsKey: string | undefined };
  /** From this cluster version on the log can be encrypted. */
  readonly sinceVersion: number;
  readonly use: (id: string) => Promise<unknown>;
  readonly log: Log;
}

/** Has the log encrypted with the first of this master's keys, once all members hold it. */
export function keyAgreement({ keys, control, sinceVersion, use, log }: KeyAgreementParts): Step {
  const [key] = keys.ids;
  return {
    waitText: `the log is encrypted with the secrets key ${key} when these masters answer that they hold it`,
    isDone: () => key === undefined || control.secretsKey === key,
    isDue: () => control.version >= sinceVersion,
    accepts: (answer) => answer?.secretsKeys.includes(key ?? "") === true,
    take: () => {
      log.info({ key, before: control.secretsKey }, "the log is encrypted with this secrets key");
      return use(key ?? "");
    },
  };
}

/**
 * Throws `invalid_value` for another first master of a new group that was given other keys. What
 * one of them encrypts the other could not read, or one of them would write in clear.
 */
export function checkSameKeys(
  keys: SecretKeys,
  other: { readonly name: string; readonly secretsKeys: readonly string[] },
): void {
  if (keys.ids.join() === other.secretsKeys.join()) return;
  const say = (ids: readonly string[]) => (ids.length === 0 ? "none" : ids.join(", "));
  const message = `${other.name} was started with other secrets keys (${say(other.secretsKeys)}) than this master (${say(keys.ids)}): give all masters of a new cluster the same --secrets-key-file`;
  throw new AppError("invalid_value", message);
}
