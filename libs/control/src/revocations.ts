import { ACCEPTED, type CatalogCommand, type ControlReply, refuse } from "./command.ts";
import type { ControlState } from "./state.ts";

/** Nodes whose certificates were revoked; one more replaces the one that was revoked first. */
const MAX_REVOKED = 10_000;
const PREFIX = "revoked:";

/** A node as its certificates name it. Masters are not revoked: each holds the authority's key. */
interface Revocable {
  readonly role: string;
  readonly name: string;
}

type Cluster = ControlState["cluster"];
type RevokeCommand = Extract<CatalogCommand, { type: "node.revoke" }>;

export function revokeNode(cluster: Cluster, command: RevokeCommand): ControlReply {
  const { role, name, atMs } = command;
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/.test(name)) {
    return refuse("invalid_value", `no certificate names a node ${JSON.stringify(name)}`);
  }
  const key = keyOf({ role, name });
  cluster.set(key, Math.max(atMs, Number(cluster.get(key) ?? 0)));
  const revoked = [...cluster.keys()].filter((key) => key.startsWith(PREFIX));
  if (revoked.length <= MAX_REVOKED) return ACCEPTED;
  const oldest = revoked.reduce((one, other) =>
    Number(cluster.get(other)) < Number(cluster.get(one)) ? other : one,
  );
  cluster.delete(oldest);
  return ACCEPTED;
}

/**
 * Whether a certificate of the node was revoked, by the begin of its validity. That is some minutes
 * before its creation, for clocks that differ.
 */
export function isRevoked(
  cluster: Pick<Cluster, "get">,
  node: Revocable,
  validFromMs: number,
): boolean {
  const atMs = cluster.get(keyOf(node));
  return atMs !== undefined && validFromMs <= Number(atMs);
}

/** The nodes of revocations that were made no earlier, as role/name, each with its time. */
export function revocationsSince(
  cluster: Pick<Cluster, "entries">,
  sinceMs: number,
): (readonly [node: string, atMs: number])[] {
  const all = [...cluster.entries()].map(([key, value]) => [key, Number(value)] as const);
  return all
    .filter(([key, atMs]) => key.startsWith(PREFIX) && atMs >= sinceMs)
    .map(([key, atMs]) => [key.slice(PREFIX.length), atMs]);
}

function keyOf({ role, name }: Revocable): `revoked:${string}` {
  return `${PREFIX}${role}/${name}`;
}
