import type { KeyObject } from "node:crypto";
import { grantsOfScopes } from "@heddle/auth/access/grants";
import { KeyVerifier } from "@heddle/auth/key-verifier";
import { AppError } from "@heddle/base/errors";
import { isOfDisabledService } from "@heddle/control/access/service-changes";
import type { ApiKeyRecord, JoinRecord } from "@heddle/control/state";
import { joinSecretId, newJoinSecret } from "@heddle/pki/join-token";
import type { ControlPlane } from "../control-plane.ts";
import { propose } from "../propose.ts";

/** The node that a join is for. */
type Joining = Required<Pick<JoinRecord, "name">> & Pick<JoinRecord, "role">;

const PERMISSION = "cluster:enroll";
const PROJECT = "default";
/** A join that is used at once; long enough for clocks that differ. */
const AT_ONCE_MS = 300_000;

/** Whether the secret of a joining node is an API key, and not that of a join token. */
export function isEnrollKey(secret: string): boolean {
  return secret.startsWith("hdl_");
}

/** Lets one node of that role and name join within the time. */
export async function createJoin(
  control: ControlPlane,
  { role, name }: Joining,
  ttlMs: number,
): Promise<{ readonly secret: string; readonly expiresAtMs: number }> {
  const secret = newJoinSecret();
  const atMs = Date.now();
  const expiresAtMs = atMs + ttlMs;
  const join = { role, name, expiresAtMs };
  await propose(control, { type: "join.create", atMs, id: joinSecretId(secret), join });
  return { secret, expiresAtMs };
}

/**
 * Makes a join for a node that shows an enrolment key, an API key with `cluster:enroll`; resolves
 * with the join's secret. The state is that of the leader, so a revoked key admits no one.
 */
export async function joinByKey(
  control: ControlPlane,
  pepper: KeyObject,
  text: string,
  node: Joining,
): Promise<string> {
  if (node.role === "master") {
    const message =
      "an enrolment key admits workers and parameter servers; a master joins with a token: heddle cluster add";
    throw new AppError("permission_denied", message);
  }
  await control.group?.readBarrier();
  const lookup = (id: string): ApiKeyRecord | undefined => control.state.keys.get(id);
  const isDisabled = (key: ApiKeyRecord) => isOfDisabledService(control.state, key);
  const verified = new KeyVerifier({ lookup, pepper, now: Date.now, isDisabled }).verify(text);
  if (!verified.ok) throw new AppError("invalid_api_key", verified.message);
  const { id, scopes, project } = verified.key;
  if (!grantsOfScopes(scopes, project, PROJECT).may(PERMISSION, PROJECT)) {
    const message = `the key ${id} lacks the scope ${PERMISSION}: make one with it by heddle cluster enroll`;
    throw new AppError("permission_denied", message);
  }
  return (await createJoin(control, node, AT_ONCE_MS)).secret;
}
