import { AppError } from "@heddle/base/errors";
import { formatJoinToken } from "@heddle/pki/join-token";
import type { Command } from "commander";
import { commandContext } from "../../command-context.ts";
import { fieldsOf, textOf } from "../../http/json-fields.ts";
import { isRecordFormat, printRecord } from "../../output/rows.ts";

/**
 * `heddle cluster enroll`: prints an enrolment key alone on standard output. The key is the hash of
 * the cluster's authority, and an API key that can only admit nodes.
 */
export async function enrollKey(command: Command): Promise<number> {
  const { heddle, data, messages, format } = commandContext(command);
  const [name = "node enrolment"] = command.args;
  const { expiresAt } = command.opts<{ expiresAt?: string }>();
  const { authority_sha256: authorityHash } = fieldsOf(await heddle.cluster.status());
  if (typeof authorityHash !== "string") {
    const message =
      "The masters run without TLS: nodes join with the cluster token, --cluster-token-file.";
    throw new AppError("precondition_failed", message);
  }
  const expiry = expiresAt === undefined ? {} : { expires_at: expiresAt };
  const key = fieldsOf(await heddle.keys.create({ name, scopes: ["cluster:enroll"], ...expiry }));
  const id = textOf(key["id"]);
  const enrollment = formatJoinToken({ authorityHash, secret: textOf(key["key"]) });
  if (isRecordFormat(format)) {
    printRecord({ id, name, key: enrollment, expires_at: key["expires_at"] }, id, format, data);
    return 0;
  }
  data.write(`${enrollment}\n`);
  messages.write(
    `enrolment key ${id} for --enroll-key-file, not shown again; it ends with heddle keys revoke ${id}\n`,
  );
  return 0;
}
